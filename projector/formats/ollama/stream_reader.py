"""Ollama chat streams, a line a piece, and answers that came whole: text, thinking, calls, images, usage.

Nothing names an answer: it ends with the piece that is `done`.
Source: the *API* document of Ollama, Generate a chat completion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from projector import events as ev
from projector.formats.format import FormatError, StreamEnd
from projector.formats.ollama.parts import EXTRA, KNOWN, PROVIDER, message_blocks
from projector.formats.shared.fields import Fields, says_nothing
from projector.formats.shared.response import OpenBlock, ResponseDraft
from projector.formats.shared.stream import StreamReader, maybe_text, maybe_whole
from projector.json_text import InvalidJson, JsonText, decode, dump, join_fields, raw, split

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from projector.message import Block

_EXPECTED: Final = 'a piece of an answer of Ollama\'s chat was expected: an object with "message" and "done"'
_OF_ANSWER: Final = ("message", "done", "done_reason")
_ONCE: Final = ("created_at",)
"""Fields that change with each piece; the first value counts."""
_COUNTS: Final = ("prompt_eval_count", "eval_count")
_FAILED: Final = ("error",)


class OllamaStream(StreamReader[dict[str, JsonText]]):
    """Turns the pieces of one or more streamed answers of a run into events of the conversation.

    `mint()` gives the id of the next message. An answer that came whole is one piece.
    """

    PROVIDER = PROVIDER
    EXPECTED = _EXPECTED
    CALLED = "the piece"

    def __init__(self, run_id: str, mint: Callable[[], str]) -> None:
        super().__init__(run_id, mint)
        self._draft: _Answer | None = None

    def _refusal(self, error: InvalidJson) -> FormatError:
        return FormatError(f"{_EXPECTED} ({error})")

    def _read(self, text: JsonText) -> tuple[str, dict[str, JsonText]]:
        fields = split(text)
        if not says_nothing(fields.get("error", "null")):
            return "error", fields
        if fields.get("message", "").startswith("{"):
            return "message", fields
        if "response" in fields and "done" in fields:
            raise FormatError(f"{_EXPECTED}; this is an answer of /api/generate, another interface")
        if self._draft is None:
            raise FormatError(f"{_EXPECTED}, not {sorted(fields)[:8]}")
        return "", fields

    def _take(self, kind: str, fields: dict[str, JsonText], text: JsonText) -> list[ev.Body] | None:  # noqa: ARG002 - one shape
        if kind == "error":
            self._end = StreamEnd("failed", error=fields["error"])
            return []
        if not kind:
            return None
        message = Fields(fields["message"], "the message")
        blocks = message_blocks(message, lambda ref: ref or "")  # before anything is changed, as what follows
        is_done, used, rest = decode(fields.get("done", "null")) is True, _usage_of(fields), message.rest(*KNOWN)
        reason = maybe_text(fields, "done_reason") if is_done else None
        bodies, draft = self._open()
        for block in blocks:
            bodies += draft.add(block)
        bodies += draft.learn({name: said for name, said in fields.items() if name not in (*_OF_ANSWER, *_COUNTS)})
        bodies += draft.note_news({EXTRA: join_fields(rest)}) if rest else []
        bodies += [] if used is None else draft.use(used)
        return bodies + self._finish(draft, reason) if is_done else bodies

    def _finish(self, draft: _Answer, reason: str | None) -> list[ev.Body]:
        if reason in _FAILED:
            self._end = StreamEnd("failed", reason, dump({"type": reason}))
            return []
        self._conclude(StreamEnd("completed", finish_reason=reason))
        return [*draft.seal_all(), *draft.finish("complete")]

    def _open(self) -> tuple[list[ev.Body], _Answer]:
        if self._draft is not None and not self._draft.is_finished:
            return [], self._draft
        bodies, self._draft = self._begin_next(self._draft, _Answer, None)
        return bodies, self._draft


class _Answer(ResponseDraft[OpenBlock]):
    """An answer: text and thinking go on, all else comes whole."""

    def __init__(self, run_id: str, message_id: str, step: int, ref: str | None) -> None:
        super().__init__(run_id, message_id, step, ref)
        self._calls = 0

    def add(self, block: Block) -> list[ev.Body]:
        """More text, or a block that came whole; a call without an id is named by its place."""
        if block.kind in ("text", "reasoning"):
            return self.say(block.kind, block.provider_ref, block.text)
        if block.kind != "tool_call":
            return self.hush() + self.put(block)
        self._calls += 1
        named = block.tool_call_id or f"{self.message_id}.call{self._calls}"
        return self.hush() + self.put(replace(block, tool_call_id=named))

    def learn(self, fields: Mapping[str, JsonText]) -> list[ev.Body]:
        """What is new about the answer as a whole."""
        said = {name: text for name, text in fields.items() if not says_nothing(text)}
        return self.note_news({name: text for name, text in said.items() if name not in _ONCE or name not in self.noted})


def _usage_of(fields: Mapping[str, JsonText]) -> ev.RunUsage | None:
    """Tokens of the prompt and of the answer; one that was read before may not be counted. Raises `FormatError`."""
    counts = {name: fields[name] for name in _COUNTS if not says_nothing(fields.get(name, "null"))}
    given, made = (maybe_whole(counts, name) for name in _COUNTS)
    return ev.RunUsage("", "", given, made, raw=raw(join_fields(counts))) if counts else None
