"""Chat Completions streams, and the dialects of it: text, reasoning in each of its fields, tool calls, refusals, usage.

Chunks become events of a conversation, one by one; memory holds what is open, not what has passed. A whole response is
taken as one chunk. Of several choices the first is the message, the others are kept as they came. Padding is dropped.
Source: the public API reference of *Chat Completions*; field names as in `facts/formats.md` §4 of the design, those of
the dialects as they were recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from projector import events as ev
from projector.formats.chat.parts import (
    DETAILS,
    PLAIN_REASONING,
    PROVIDER,
    check_delta,
    detail_block,
    grow_detail,
    keep,
    part_block,
)
from projector.formats.chat.usage import read_usage
from projector.formats.format import FormatError, StreamEnd
from projector.formats.shared.fields import is_whole, items_of, says_nothing, text_of_field
from projector.formats.shared.payloads import opaque
from projector.json_text import InvalidJson, JsonText, decode, dump, join_fields, raw, split
from projector.message import Block

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DONE: Final = "[DONE]"
_OF_CHUNK: Final = {"id", "object", "choices", "usage", "error", "obfuscation", "type"}
_OF_CHOICE: Final = {"index", "delta", "message", "finish_reason", "logprobs", "text", "usage"}
_OF_DELTA: Final = {
    "role", "content", *PLAIN_REASONING, DETAILS, "tool_calls", "function_call", "refusal", "audio", "annotations", "images",
    "index",
}  # fmt: skip
_OF_CALL: Final = {"index", "id", "type", "function", "custom"}
_ONCE: Final = ("created",)
"""Fields that some change with each chunk; the first value counts."""


class ChatStream:
    """Turns the chunks of one or more streamed responses of a run into events of the conversation.

    `mint()` gives the id of the next message. What this version does not know is kept as `raw`, or with the message.
    """

    def __init__(self, run_id: str, mint: Callable[[], str]) -> None:
        self._run_id = run_id
        self._mint = mint
        self._response: _Response | None = None  # the newest one, finished or not
        self._steps = 0
        self._end = StreamEnd("incomplete")

    def feed(self, chunk: bytes | str | dict[str, Any]) -> list[ev.Body]:
        """The events that one chunk becomes: its JSON text (the `data` of an SSE event), or the parsed form.

        Raises `FormatError` for what is no chunk.
        """
        text = chunk if isinstance(chunk, str) else dump(chunk) if isinstance(chunk, dict) else _decode_utf8(chunk)
        if text.strip() == DONE:
            return self._finish(StreamEnd("completed"))
        try:
            fields = split(text)
        except InvalidJson as error:
            raise FormatError('a JSON object with "choices" was expected, as in {"choices": [{"delta": …}]}') from error
        is_error = not says_nothing(fields.get("error", "null")) or fields.get("object") == '"error"'
        if "choices" not in fields and not is_error and "usage" not in fields:
            if self._response is None:
                raise FormatError('a Chat Completions chunk has "choices" or an "error"')
            return [ev.RawEvent(PROVIDER, raw(text))]
        try:
            bodies = self._take(fields, text)
        except (InvalidJson, KeyError, TypeError, ValueError, AttributeError) as error:
            raise FormatError(f"the chunk lacks what it needs ({type(error).__name__}: {error})") from error
        if is_error:
            self._end = StreamEnd("failed", error=text if says_nothing(fields.get("error", "null")) else fields["error"])
        return bodies

    def end(self) -> StreamEnd:
        """How the run would end here: `incomplete` in the middle of a response, `failed` after an error."""
        return self._end

    def _take(self, fields: Mapping[str, JsonText], text: JsonText) -> list[ev.Body]:
        choices = [split(choice) for choice in items_of(fields.get("choices", "[]"), "choices")]
        first = next((choice for choice in choices if int(decode(choice.get("index", "0")) or 0) == 0), None)
        ref = text_of_field(fields, "id") or None
        usage = read_usage(fields, first)
        delta = {} if first is None else _delta_of(first)
        check_delta(delta)  # before anything is changed
        bodies: list[ev.Body] = []
        if first is not None and self._needs_new(ref, delta):
            bodies += self._start(ref)
        response = self._response
        if response is None:
            return [*bodies, *([ev.RawEvent(PROVIDER, raw(text))] if "error" not in fields else [])]
        kept: dict[str, JsonText] = {name: value for name, value in fields.items() if name not in _OF_CHUNK}
        is_unsaid = len(choices) > (first is not None)
        if first is not None:
            kept |= {name: value for name, value in first.items() if name not in _OF_CHOICE}
            kept |= {name: value for name, value in delta.items() if name not in _OF_DELTA}
            kept["finish_reason"] = first.get("finish_reason", "null")
            is_unsaid = is_unsaid or not says_nothing(first.get("logprobs", "null"))
            said = response.say(delta)
            if said is None:
                is_unsaid = True
            bodies += said or []
        bodies += response.annotate(kept)
        if first is not None and not says_nothing(first.get("finish_reason", "null")):
            reason = text_of_field(first, "finish_reason")
            bodies += self._finish(StreamEnd("failed" if reason == "error" else "completed", finish_reason=reason))
        bodies += response.use(usage)
        if is_unsaid:
            bodies.append(ev.RawEvent(PROVIDER, raw(text)))
        return bodies

    def _needs_new(self, ref: str | None, delta: Mapping[str, JsonText]) -> bool:
        """A chunk of another completion begins the next response; more of a finished one does not."""
        if self._response is None:
            return True
        if ref is None or ref == self._response.ref:
            return False
        return not self._response.is_finished or _has_content(delta)

    def _start(self, ref: str | None) -> list[ev.Body]:
        bodies: list[ev.Body] = []
        if self._response is not None and not self._response.is_finished:  # a response spliced into another one
            bodies += self._close(self._response, "partial")
        self._steps += 1
        self._response = _Response(self._run_id, self._mint(), ref, self._steps)
        if self._end.outcome != "failed":
            self._end = StreamEnd("incomplete")
        return [
            *bodies,
            ev.RunStep(self._run_id, self._steps, "started"),
            ev.MessageStarted(self._run_id, self._response.message_id, "assistant", provider_ref=ref),
        ]

    def _finish(self, end: StreamEnd) -> list[ev.Body]:
        if self._end.outcome == "failed" or self._response is None or self._response.is_finished:
            return []  # an error in the stream is not undone by what follows
        self._end = end
        if end.outcome == "failed":
            return []
        return [*self._response.seal_all(), *self._close(self._response, "complete")]

    def _close(self, response: _Response, status: Any) -> list[ev.Body]:
        response.is_finished = True
        return [ev.MessageFinished(response.message_id, status), ev.RunStep(self._run_id, response.step, "finished")]


class _Response:
    """One response that is being streamed."""

    def __init__(self, run_id: str, message_id: str, ref: str | None, step: int) -> None:
        self.run_id, self.message_id, self.ref, self.step = run_id, message_id, ref, step
        self.is_finished = False
        self._blocks = 0
        self._open: Block | None = None  # text, reasoning or a refusal that still grows
        self._text: int | None = None  # the block that citations belong to
        self._calls: dict[object, _Call] = {}
        self._details: dict[object, tuple[int, dict[str, JsonText]]] = {}
        self._audio: tuple[int, dict[str, JsonText]] | None = None
        self._noted: dict[str, JsonText] = {}
        self._used: ev.RunUsage | None = None

    def annotate(self, fields: Mapping[str, JsonText]) -> list[ev.Body]:
        """What is new about the response as a whole."""
        said = {name: text for name, text in fields.items() if not says_nothing(text) and self._noted.get(name) != text}
        said = {name: text for name, text in said.items() if name not in _ONCE or name not in self._noted}
        self._noted |= said
        return [ev.MessageAnnotated(self.message_id, raw(join_fields(said)))] if said else []

    def use(self, usage: ev.RunUsage | None) -> list[ev.Body]:
        """Usage is a total, however often it comes."""
        if usage is None or usage == self._used:
            return []
        self._used = usage
        return [replace(usage, run_id=self.run_id, request_id=self.ref or self.message_id)]

    def say(self, delta: Mapping[str, JsonText]) -> list[ev.Body] | None:
        """What a delta adds; None if it adds to a response that is finished."""
        if self.is_finished:
            return None if _has_content(delta) else []
        bodies = self._reason(delta)
        content = delta.get("content", "null")
        if content.lstrip().startswith("["):
            for part in items_of(content, "content"):
                bodies += self._put(part_block(part))
        else:
            bodies += self._grow(Block("text", text=decode(content) or ""))
        for image in _items(delta, "images"):
            bodies += self._put(part_block(image))
        for citation in _items(delta, "annotations"):
            bodies += self._cite(citation)
        bodies += self._grow(Block("refusal", text=decode(delta.get("refusal", "null")) or ""))
        for call in _items(delta, "tool_calls"):
            bodies += self._call(split(call))
        if not says_nothing(delta.get("function_call", "null")):
            bodies += self._call({"index": '"function_call"', "function": delta["function_call"]})
        return bodies + self._listen(delta.get("audio", "null"))

    def seal_all(self) -> list[ev.Body]:
        """The response is whole, and so are its blocks."""
        bodies = self._seal_open()
        for number, fields in self._details.values():
            block = detail_block(fields)
            bodies.append(ev.BlockSealed(self.message_id, number, block.signature, raw(block.opaque)))
        for call in self._calls.values():
            bodies += self._start_call(call, is_whole=True)
            bodies.append(call.seal(self.message_id))
        if self._audio is not None:
            number, fields = self._audio
            bodies.append(ev.BlockSealed(self.message_id, number, opaque=raw(opaque(PROVIDER, join_fields(fields)))))
        return bodies

    def _reason(self, delta: Mapping[str, JsonText]) -> list[ev.Body]:
        details = [split(detail) for detail in _items(delta, DETAILS)]
        bodies: list[ev.Body] = []
        has_text = False
        for detail in details:
            block = detail_block(detail)
            has_text = has_text or bool(block.text)
            key = (block.kind, detail.get("index", detail.get("id", "0")))
            if key not in self._details:
                bodies += self._seal_open()
                self._details[key] = (self._blocks, {})
                bodies += self._begin(block)
            number, known = self._details[key]
            grow_detail(known, {name: text for name, text in detail.items() if name not in ("text", "summary")})
            if block.text:
                bodies.append(ev.BlockDelta(self.message_id, number, block.text))
        for name in PLAIN_REASONING:  # the same text once more, where there are details
            said = decode(delta.get(name, "null"))
            if isinstance(said, str) and said:
                return bodies if has_text else bodies + self._grow(Block("reasoning", text=said, provider_ref=name))
        return bodies

    def _put(self, block: Block) -> list[ev.Body]:
        if block.kind in ("text", "reasoning", "refusal"):
            return self._grow(block)
        number = self._blocks
        sealed = ev.BlockSealed(self.message_id, number, opaque=raw(block.opaque))
        return [*self._seal_open(), *self._begin(block), sealed]

    def _grow(self, block: Block) -> list[ev.Body]:
        """Text goes on where the same was said last, else a block of its own begins."""
        if not block.text:
            return []
        bodies: list[ev.Body] = []
        at = self._open
        if at is None or (at.kind, at.provider_ref) != (block.kind, block.provider_ref):
            bodies += self._seal_open()
            self._open = replace(block, number=self._blocks, text="")
            bodies += self._begin(block)
        number = self._blocks - 1 if self._open is None else self._open.number
        if block.kind == "text":
            self._text = number
        return [*bodies, ev.BlockDelta(self.message_id, number, block.text)]

    def _begin(self, block: Block) -> list[ev.Body]:
        kind: Any = block.kind
        started = ev.BlockStarted(
            self.message_id, self._blocks, kind, block.name, block.tool_call_id, block.media_type, block.provider_ref
        )
        self._blocks += 1
        return [started]

    def _seal_open(self) -> list[ev.Body]:
        block, self._open = self._open, None
        return [] if block is None else [ev.BlockSealed(self.message_id, block.number, opaque=raw(block.opaque))]

    def _cite(self, citation: JsonText) -> list[ev.Body]:
        bodies: list[ev.Body] = []
        if self._text is None:
            bodies = [*self._seal_open(), *self._begin(Block("text"))]
            self._text = self._blocks - 1
            self._open = Block("text", number=self._text)
        kind = split(citation).get("type", "null")
        return [*bodies, ev.BlockAnnotated(self.message_id, self._text, raw(f'{{"kind":{kind},"source":{citation}}}'))]

    def _call(self, fields: Mapping[str, JsonText]) -> list[ev.Body]:
        """Fragments of a call join by index; without one, by id, else they belong to the newest call."""
        call = self._find_call(fields)
        call.ref = call.ref or decode(fields.get("id", "null")) or None
        inner = split(next((text for name in ("function", "custom") if (text := fields.get(name, "null")) != "null"), "{}"))
        call.name = call.name or decode(inner.get("name", "null")) or ""
        call.rest |= {name: text for name, text in fields.items() if name not in _OF_CALL}
        if "custom" in fields:
            call.rest["type"] = '"custom"'
        given = inner.get("arguments", inner.get("input", "null"))
        text = given if given.lstrip().startswith("{") else decode(given) or ""
        call.pieces.append(text)
        started = self._start_call(call, is_whole=False)
        if call.number is None:
            return started  # it waits for its name
        missed = "".join(call.pieces) if started else text
        return [*started, *([ev.BlockDelta(self.message_id, call.number, missed)] if missed else [])]

    def _find_call(self, fields: Mapping[str, JsonText]) -> _Call:
        ref = decode(fields.get("id", "null")) or None
        index = fields.get("index")
        key: object = ref if index is None or index == "null" else index
        if key is None:
            key = next(reversed(self._calls), None)
        known = self._calls.get(key)
        if known is not None and ref is not None and known.ref not in (None, ref):
            key = (key, ref)  # whole calls that all have the index 0
        return self._calls.setdefault(key, _Call())

    def _start_call(self, call: _Call, *, is_whole: bool) -> list[ev.Body]:
        if call.number is not None or not (call.name or is_whole):
            return []
        sealed = self._seal_open()
        call.number = self._blocks
        ref = call.ref or f"{self.message_id}.{call.number}"
        return [*sealed, *self._begin(Block("tool_call", name=call.name, tool_call_id=ref))]

    def _listen(self, text: JsonText) -> list[ev.Body]:
        """Sound comes in pieces of base64 with what is said in it."""
        if says_nothing(text):
            return []
        fields = split(text)
        bodies: list[ev.Body] = []
        if self._audio is None:
            bodies = [*self._seal_open(), *self._begin(Block("media", media_type="audio", provider_ref="audio"))]
            self._audio = (self._blocks - 1, {})
        number, known = self._audio
        known |= {name: value for name, value in fields.items() if name not in ("data", "transcript")}
        for name in ("data", "transcript"):
            said = decode(fields.get(name, "null"))
            bodies += [ev.BlockDelta(self.message_id, number, said, name)] if said else []
        return bodies


class _Call:
    """A tool call whose arguments still come."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.ref: str | None = None
        self.name = ""
        self.pieces: list[str] = []
        self.rest: dict[str, JsonText] = {}

    def seal(self, message_id: str) -> ev.BlockSealed:
        text = "".join(self.pieces)
        is_custom = self.rest.get("type") == '"custom"'
        given = dump({"input": text}) if is_custom else ""
        return ev.BlockSealed(
            message_id,
            self.number or 0,
            opaque=raw(keep(self.rest)),
            input=raw(given),
            parse="ok" if is_custom or is_whole(text) else "bad",
        )


def _delta_of(choice: Mapping[str, JsonText]) -> dict[str, JsonText]:
    """What a choice adds; a whole response has a message, the older API a text."""
    for name in ("delta", "message"):
        if not says_nothing(choice.get(name, "null")):
            return split(choice[name])
    return {"content": choice["text"]} if "text" in choice else {}


def _has_content(delta: Mapping[str, JsonText]) -> bool:
    return any(not says_nothing(text) for name, text in delta.items() if name in _OF_DELTA - {"role", "index"})


def _items(fields: Mapping[str, JsonText], name: str) -> list[JsonText]:
    text = fields.get(name, "null")
    return [] if says_nothing(text) else items_of(text, name)


def _decode_utf8(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise FormatError(f"it is no UTF-8 text ({error.reason} at byte {error.start})") from error
