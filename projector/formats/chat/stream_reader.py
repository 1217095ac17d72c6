"""Chat Completions streams, and the dialects of it: text, reasoning in each of its fields, tool calls, refusals, usage.

Chunks become events of a conversation, one by one; memory holds what is open, not what has passed. A whole response is
taken as one chunk. Of several choices the first is the message, the others are kept as they came. Padding is dropped.
Source: the public API reference of *Chat Completions*; field names of the dialects as they were recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from projector import events as ev
from projector.formats.chat.growing import OF_DELTA, Answer, has_content
from projector.formats.chat.parts import PROVIDER, check_delta
from projector.formats.chat.usage import read_usage
from projector.formats.format import FormatError, StreamEnd
from projector.formats.shared.fields import items_of, reason_of, says_nothing, shown, text_of_field
from projector.formats.shared.stream import StreamReader
from projector.json_text import JsonText, decode, raw, split

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_OF_CHUNK: Final = {"id", "object", "choices", "usage", "error", "obfuscation", "type"}
_OF_CHOICE: Final = {"index", "delta", "message", "finish_reason", "logprobs", "text", "usage"}


class ChatStream(StreamReader[dict[str, JsonText]]):
    """Turns the chunks of one or more streamed responses of a run into events of the conversation.

    `mint()` gives the id of the next message. What this version does not know is kept as `raw`, or with the message.
    """

    PROVIDER = PROVIDER
    EXPECTED = 'a JSON object with "choices" was expected, as in {"choices": [{"delta": …}]}'
    CALLED = "the chunk"

    def __init__(self, run_id: str, mint: Callable[[], str]) -> None:
        super().__init__(run_id, mint)
        self._draft: Answer | None = None  # the newest one, finished or not

    def _read(self, text: JsonText) -> tuple[str, dict[str, JsonText]]:
        fields = split(text)
        if not says_nothing(fields.get("error", "null")) or fields.get("object") == '"error"':
            return "error", fields
        if "choices" in fields or "usage" in fields:
            return "choices", fields
        if self._draft is None:
            raise FormatError('a Chat Completions chunk has "choices" or an "error"')
        return "", fields

    def _take(self, kind: str, fields: dict[str, JsonText], text: JsonText) -> list[ev.Body] | None:
        if not kind:
            return None
        bodies = self._take_choices(fields, text)
        if kind == "error":
            self._end = StreamEnd("failed", error=text if says_nothing(fields.get("error", "null")) else fields["error"])
        return bodies

    def _take_choices(self, fields: Mapping[str, JsonText], text: JsonText) -> list[ev.Body]:
        choices = [split(choice) for choice in items_of(fields.get("choices", "[]"), "choices")]
        indices = [_index_of(choice) for choice in choices]
        first = choices[indices.index(0)] if 0 in indices else None
        ref = text_of_field(fields, "id") or None
        usage = read_usage(fields, first)
        delta = {} if first is None else _delta_of(first)
        stop, message = (
            ("null", "null") if first is None else (first.get("finish_reason", "null"), first.get("message", "null"))
        )
        reason = None if says_nothing(stop) else reason_of(stop)
        for said in (delta, {} if says_nothing(message) else split(message)):
            check_delta(said)  # before anything is changed: what is refused leaves nothing
        bodies: list[ev.Body] = []
        if first is not None and self._needs_new(ref, delta):
            bodies, self._draft = self._begin_next(self._draft, Answer, ref)
        draft = self._draft
        if draft is None:
            return [*bodies, *([ev.RawEvent(PROVIDER, raw(text))] if "error" not in fields else [])]
        kept: dict[str, JsonText] = {name: value for name, value in fields.items() if name not in _OF_CHUNK}
        is_unsaid = len(choices) > (first is not None)
        if is_unsaid:  # the others stay as they came: a run is one line
            kept["other_choices"] = str(max(indices))
        if first is not None:
            kept |= {name: value for name, value in first.items() if name not in _OF_CHOICE}
            kept |= {name: value for name, value in delta.items() if name not in OF_DELTA}
            kept["finish_reason"] = first.get("finish_reason", "null")
            is_unsaid = is_unsaid or not says_nothing(first.get("logprobs", "null"))
            bodies_of_choice = self._say(first, draft, delta)
            is_unsaid = is_unsaid or bodies_of_choice is None
            bodies += bodies_of_choice or []
        bodies += draft.learn(kept)
        if reason is not None:
            bodies += self._finish(StreamEnd("failed" if reason == "error" else "completed", finish_reason=reason))
        if usage is not None:  # a total, however often it comes
            bodies += draft.use(usage)
        if is_unsaid:
            bodies.append(ev.RawEvent(PROVIDER, raw(text)))
        return bodies

    @staticmethod
    def _say(choice: Mapping[str, JsonText], draft: Answer, delta: Mapping[str, JsonText]) -> list[ev.Body] | None:
        """What a choice adds; some servers say the whole message once more at the end of its deltas."""
        message, is_delta = choice.get("message", "null"), not says_nothing(choice.get("delta", "null"))
        ends = draft.is_streamed and not draft.is_finished and not says_nothing(choice.get("finish_reason", "null"))
        draft.is_streamed = draft.is_streamed or is_delta
        if not ends or says_nothing(message):
            return draft.take(delta)
        return [*((draft.take(delta) or []) if is_delta else []), *draft.end_with(split(message))]

    def _needs_new(self, ref: str | None, delta: Mapping[str, JsonText]) -> bool:
        """A chunk of another completion begins the next response; more of a finished one does not."""
        if self._draft is None:
            return True
        if ref is None or ref == self._draft.ref:
            return False
        return not self._draft.is_finished or has_content(delta)

    def _finish(self, end: StreamEnd) -> list[ev.Body]:
        if self._end.outcome == "failed" or self._draft is None or self._draft.is_finished:
            return []  # an error in the stream is not undone by what follows
        self._end = end
        if end.outcome == "failed":
            return []
        return [*self._draft.seal_all(), *self._draft.finish("complete")]

    def _close(self) -> list[ev.Body]:
        return self._finish(StreamEnd("completed"))


def _index_of(choice: Mapping[str, JsonText]) -> int:
    index = decode(choice.get("index", "0")) or 0
    try:
        return int(index)
    except (TypeError, ValueError, OverflowError) as error:
        raise FormatError(f'"index" should be a whole number, not {shown(choice["index"])}') from error


def _delta_of(choice: Mapping[str, JsonText]) -> dict[str, JsonText]:
    """What a choice adds; a whole response has a message, the older API a text."""
    for name in ("delta", "message"):
        if not says_nothing(choice.get(name, "null")):
            return split(choice[name])
    return {"content": choice["text"]} if "text" in choice else {}
