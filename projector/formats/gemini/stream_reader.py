"""Google Gemini `streamGenerateContent`: text, thoughts, signatures, tool calls whole or in pieces, grounding, usage.

Each chunk is a whole `GenerateContentResponse`; parts of one kind that follow each other are one block. A part with a
`thoughtSignature` is a block of its own and kept byte for byte, as Google asks to send it back: never joined.
Source: the reference of `generateContent` and *Thought signatures* of the Gemini API documentation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from projector import events as ev
from projector.formats.format import FormatError, StreamEnd
from projector.formats.gemini.arguments import Arguments, read_partials
from projector.formats.shared.payloads import opaque
from projector.formats.shared.response import OpenBlock, ResponseDraft
from projector.formats.shared.stream import StreamReader, maybe_text, need_object, need_text, sum_of
from projector.json_text import InvalidJson, JsonText, decode, join_fields, raw, split, split_array
from projector.message import Block

if TYPE_CHECKING:
    from collections.abc import Callable

    from projector.message import BlockKind

PROVIDER: Final = "google"
_EXPECTED: Final = 'a response of generateContent was expected: an object with "candidates"'
_HEADS: Final = ("candidates", "promptFeedback", "usageMetadata", "error")
_OF_RESPONSE: Final = ("candidates", "usageMetadata", "responseId")
_OF_CANDIDATE: Final = ("content", "finishReason", "index")
_TEXT: Final = {"text", "thought", "thoughtSignature"}
_CALL: Final = {"functionCall", "thoughtSignature"}
_MEDIA: Final = {"data": "data", "url": "fileUri"}
_REFUSED: Final = ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "MODEL_ARMOR")
_FINISHED: Final = ("", "STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "OTHER")
_BLOCKED: Final = ("", "SAFETY", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT")
"""Names by their numbers, as far as both of Google's interfaces give them the same ones."""
_KINDS: Final[dict[str, BlockKind]] = {
    "executableCode": "server_tool_call",
    "toolCall": "server_tool_call",
    "codeExecutionResult": "server_tool_result",
    "toolResponse": "server_tool_result",
    "inlineData": "media",
    "fileData": "media",
}


class GeminiStream(StreamReader[dict[str, JsonText]]):
    """Turns the chunks of one or more streamed responses of a run into events of the conversation.

    `mint()` gives the id of the next message. A response that came whole is one chunk. Candidates beside the first
    are kept as `raw`. Nothing in the stream says that a response ends but its `finishReason`.
    """

    PROVIDER = PROVIDER
    EXPECTED = _EXPECTED
    CALLED = "the response"

    def __init__(self, run_id: str, mint: Callable[[], str]) -> None:
        super().__init__(run_id, mint)
        self._draft: _Draft | None = None

    def _refusal(self, error: InvalidJson) -> FormatError:
        return FormatError(f"{_EXPECTED} ({error})")

    def _read(self, text: JsonText) -> tuple[str, dict[str, JsonText]]:
        fields = split(text)
        if "event_type" in fields:
            raise FormatError(f"{_EXPECTED}; this is an event of Google's Interactions, another interface")
        head = next((name for name in _HEADS if name in fields), "")
        if not head and self._draft is None and fields:  # some streams begin with an empty object
            raise FormatError(f"{_EXPECTED}, not {sorted(fields)[:8]}")
        return head, fields

    def _take(self, kind: str, fields: dict[str, JsonText], text: JsonText) -> list[ev.Body] | None:
        if not kind:
            return None if fields else []
        if "error" in fields:
            self._end = StreamEnd("failed", error=fields["error"])
            return []
        ref = maybe_text(fields, "responseId")
        candidates = [split(item) for item in split_array(fields.get("candidates", "[]"))]
        first = next((item for item in candidates if decode(item.get("index", "null")) in (None, 0)), {})
        sources = split_array(split(first.get("content", "{}")).get("parts", "[]"))
        parts = [split(source) for source in sources]
        cited = split_array(split(first.get("groundingMetadata", "{}")).get("groundingChunks", "[]"))
        end = _end_of(fields, first)
        if [part.keys() for part in parts] != [{"text"}] or not parts[0]["text"].startswith('"'):
            trial = _Draft(self._run_id, "", 0, ref)
            for part, source in zip(parts, sources, strict=True):
                trial.take_part(part, source)
        bodies, draft = self._draft_of(ref, has_content=bool(parts) or "promptFeedback" in fields)
        used = draft.measure(fields.get("usageMetadata", "null"))  # the last that may raise
        for part, source in zip(parts, sources, strict=True):
            bodies += draft.take_part(part, source)
        bodies += draft.note_news({name: value for name, value in fields.items() if name not in _OF_RESPONSE})
        bodies += draft.note_news({name: value for name, value in first.items() if name not in _OF_CANDIDATE})
        bodies += draft.ground(cited) + used
        if any(item is not first for item in candidates):
            bodies += draft.note_news({"other_candidates": str(len(candidates) - bool(first))})
            bodies.append(ev.RawEvent(PROVIDER, raw(text)))
        return bodies + self._finish(draft, *end)

    def _close(self) -> list[ev.Body]:
        return self._end_of(self._draft)

    def _draft_of(self, ref: str | None, *, has_content: bool) -> tuple[list[ev.Body], _Draft]:
        """The response this chunk belongs to; content behind a `finishReason` needs another message."""
        old = self._draft
        if old is not None and ref in (None, old.ref) and not (old.is_finished and has_content):
            return [], old
        bodies, draft = self._begin_next(old, _Draft, ref)
        self._draft = draft
        return bodies, draft

    def _finish(self, draft: _Draft, reason: str | None, refusal: str | None) -> list[ev.Body]:
        if reason is None or draft.is_finished:
            return []
        bodies = [] if refusal is None else draft.refuse(Block("refusal", text=refusal))
        self._conclude(StreamEnd("completed", finish_reason=reason))
        return [*bodies, *draft.seal_all(), *draft.finish("complete")]


def _end_of(fields: dict[str, JsonText], candidate: dict[str, JsonText]) -> tuple[str | None, str | None]:
    """Why a response ends, None where it goes on, and what is said of a refusal. Raises `InvalidJson`, `FormatError`."""
    feedback = split(fields.get("promptFeedback", "{}"))
    blocked = _reason(feedback, "blockReason", _BLOCKED)
    reason = _reason(candidate, "finishReason", _FINISHED) or blocked
    if reason is None or (reason not in _REFUSED and blocked is None):
        return reason, None
    why = candidate.get("finishMessage") or feedback.get("blockReasonMessage") or '""'
    return reason, need_text({"finishMessage": why}, "finishMessage")


def _reason(fields: dict[str, JsonText], name: str, names: tuple[str, ...]) -> str | None:
    """A reason by its name; some libraries write its number. None where that says nothing."""
    value = decode(fields.get(name, "null"))
    if isinstance(value, int) and not isinstance(value, bool):
        return names[value] if 0 < value < len(names) else str(value) if value else None
    return maybe_text(fields, name)


class _Call(OpenBlock):
    """A call whose arguments come in pieces."""

    def __init__(self, signature: str | None, kept: JsonText | None) -> None:
        super().__init__("tool_call")
        self.arguments = Arguments()
        self.signature, self.kept = signature, kept


class _Draft(ResponseDraft[OpenBlock]):
    """A response made of parts: text goes on, and so does the newest call if its arguments do."""

    def __init__(self, run_id: str, message_id: str, step: int, ref: str | None) -> None:
        super().__init__(run_id, message_id, step, ref)
        self._call: _Call | None = None
        self._calls = 0
        self._cited: set[JsonText] = set()

    def take_part(self, part: dict[str, JsonText], source: JsonText) -> list[ev.Body]:
        signature = maybe_text(part, "thoughtSignature")
        if "functionCall" in part and part.keys() <= _CALL:
            return self.hush() + self._take_call(need_object(part, "functionCall"), signature, source)
        if "text" in part and part.keys() <= _TEXT:
            kind: BlockKind = "reasoning" if decode(part.get("thought", "null")) is True else "text"
            text = maybe_text(part, "text") if signature is None else need_text(part, "text")
            return self._end_call() + self._take_text(kind, text or "", signature, source)
        before = self._end_call()
        return before + self.hush() + self._take_other(part, signature, source)

    def ground(self, chunks: list[JsonText]) -> list[ev.Body]:
        """The sources of an answer, at its text; where they apply stays in the message's metadata."""
        if self.last_text is None:
            return []
        news = [chunk for chunk in chunks if chunk not in self._cited]
        self._cited.update(news)
        return [body for chunk in news for body in self.cite(self.last_text, f'{{"kind":"grounding","source":{chunk}}}')]

    def measure(self, usage: JsonText) -> list[ev.Body]:
        """Each chunk tells totals; thoughts and prompts of tools stand beside them, what is cached lies inside.

        The count of the prompt is an estimate at first, which the last chunk corrects.
        """
        said = {name: text for name, text in split(usage).items() if text != "null"} if usage != "null" else {}
        if not said:
            return []
        totals = self.add_up(said, corrects=("promptTokenCount",))
        body = ev.RunUsage(
            run_id="",
            request_id="",
            input=sum_of(totals, "promptTokenCount", "toolUsePromptTokenCount"),
            output=sum_of(totals, "candidatesTokenCount", "thoughtsTokenCount"),
            cached=sum_of(totals, "cachedContentTokenCount"),
            reasoning=sum_of(totals, "thoughtsTokenCount"),
            raw=raw(join_fields(totals)),
        )
        return self.use(body, corrects=("input",), totals=totals)

    def refuse(self, block: Block) -> list[ev.Body]:
        """What goes on is whole before it."""
        return [*self.hush(), *self._end_call(), *super().refuse(block)]

    def _take_text(self, kind: BlockKind, text: str, signature: str | None, source: JsonText) -> list[ev.Body]:
        if signature is not None:
            return self.hush() + self.put(Block(kind, text=text, signature=signature, opaque=opaque(PROVIDER, source)))
        return self.say(kind, None, text) if text else []

    def _take_call(self, call: dict[str, JsonText], signature: str | None, source: JsonText) -> list[ev.Body]:
        bodies: list[ev.Body] = []
        going_on = decode(call.get("willContinue", "null")) is True
        partials = read_partials(split_array(call.get("partialArgs", "[]")))
        if "name" not in call and self._call is None:  # the end of a call that has ended, or nothing we know
            return self._take_other({"functionCall": "null"}, signature, source) if call else []
        if "name" in call or self._call is None:
            bodies += self._end_call()
            # Without an id of its own a call is paired by its order; the id must be the same when it is read again.
            self._calls += 1
            ref = maybe_text(call, "id") or f"{self.message_id}.call{self._calls}"
            name = maybe_text(call, "name")
            kept = opaque(PROVIDER, source) if signature is not None else None
            if "partialArgs" not in call and not going_on:
                given = call.get("args", "{}")
                whole = Block(
                    "tool_call", name=name, tool_call_id=ref, signature=signature, opaque=kept, input_text=given, parse="ok"
                )
                return bodies + self.put(whole)
            self._call = _Call(signature, kept)
            bodies += self.begin("call", self._call, name, ref)
        if "partialArgs" in call:
            self._call.arguments.take(partials)
            bodies += self.grow(self._call, call["partialArgs"], "partialArgs")
        return bodies if going_on else bodies + self._end_call()

    def _take_other(self, part: dict[str, JsonText], signature: str | None, source: JsonText) -> list[ev.Body]:
        others = [name for name in part if name != "thoughtSignature"]
        name = next((name for name in others if name in _KINDS), others[0] if others else "part")
        fields = need_object(part, name) if name in _KINDS else {}
        kind = _KINDS.get(name, "provider")
        given = {
            ours: theirs for ours, theirs in (("data", "data"), ("url", "fileUri")) if theirs in fields and kind == "media"
        }
        is_said = kind == "media" and signature is None and fields.keys() <= {"mimeType", "data", "fileUri"}
        return self.put(
            Block(
                kind,
                name=maybe_text(fields, "toolType" if "toolType" in fields else "name"),
                tool_call_id=maybe_text(fields, "id"),
                media_type=maybe_text(fields, "mimeType"),
                provider_ref=name,
                fields={ours: need_text(fields, theirs) for ours, theirs in given.items()},
                signature=signature,
                opaque=None if is_said and len(part) == 1 else opaque(PROVIDER, source),
            )
        )

    def seal_all(self) -> list[ev.Body]:
        """Text that goes on, and a call whose arguments do."""
        return self.hush() + self._end_call()

    def _end_call(self) -> list[ev.Body]:
        if self._call is None:
            return []
        self._call.whole, self._call = self._call.arguments.text() or "", None
        return self.seal("call")
