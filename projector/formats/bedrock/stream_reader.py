"""Amazon Bedrock `ConverseStream`: binary frames or their JSON, text, reasoning, tool calls, citations, usage.

A block begins with its first delta: only tools have a start event, and some recordings leave the stop events out.
Source: the *Amazon Bedrock API Reference*, ConverseStream.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

from projector import events as ev
from projector.formats.format import FormatError, StreamEnd
from projector.formats.shared.aws_frames import FrameReader
from projector.formats.shared.fields import reason_of
from projector.formats.shared.payloads import opaque
from projector.formats.shared.response import OpenBlock, ResponseDraft
from projector.formats.shared.stream import (
    StreamReader,
    maybe_object,
    maybe_text,
    maybe_whole,
    need,
    need_object,
    need_text,
    need_whole,
)
from projector.json_text import InvalidJson, JsonText, decode, dump, join_fields, raw, split, split_array
from projector.message import Block

if TYPE_CHECKING:
    from collections.abc import Callable

    Draft = ResponseDraft["_Block"]

PROVIDER: Final = "bedrock"
_EXPECTED: Final = 'an event of ConverseStream was expected, as in {"messageStart": …} or in a binary frame'
_PADDING: Final = "p"
_SIGNED: Final = '{"reasoningContent":{}}'  # our fields say text and signature; this says whose they are
_REFUSED: Final = ("guardrail_intervened", "content_filtered")
_KINDS: Final = {"text": "text", "citation": "text", "toolUse": "tool_call", "reasoningContent": "reasoning"}
_COUNTS: Final = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")
_OF_ERROR: Final = {"message", "Message", "__type", "type", "code"}
_CALL: Final = {"toolUseId", "name", "input", "type"}


class BedrockStream(StreamReader[dict[str, JsonText]]):
    """Turns the events of one or more streamed responses of a run into events of the conversation.

    `mint()` gives the id of the next message. Bytes may be the response's own, cut anywhere: then frames are checked
    against their checksums. A response of Converse that came whole is one chunk.
    """

    PROVIDER = PROVIDER
    EXPECTED = _EXPECTED
    CALLED = "the event"

    def __init__(self, run_id: str, mint: Callable[[], str]) -> None:
        super().__init__(run_id, mint)
        self._frames: FrameReader | None = None
        self._broken: FormatError | None = None
        self._draft: Draft | None = None

    def feed(self, chunk: bytes | str | dict[str, Any]) -> list[ev.Body]:
        """The events that a chunk becomes: bytes of the response, JSON text, or the parsed form.

        Raises `FormatError` for what is no event of ConverseStream, and for a frame whose checksum is wrong.
        """
        if isinstance(chunk, bytes) and (self._frames is not None or not chunk.lstrip().startswith(b"{")):
            return self._feed_frames(chunk)
        return super().feed(_with_text(chunk) if isinstance(chunk, dict) else chunk)

    def _feed_frames(self, chunk: bytes) -> list[ev.Body]:
        """What is whole ahead of a broken frame is kept; nothing can be found behind it."""
        self._frames = self._frames or FrameReader()
        bodies: list[ev.Body] = []
        try:
            if self._broken is not None:
                raise self._broken
            for payload in self._frames.feed(chunk):
                bodies += super().feed(payload.data)
        except FormatError as error:
            self._broken = error
            if not bodies:
                raise
        finally:
            self._broken = self._broken or self._frames.broken
            if self._broken is not None:
                self._end = StreamEnd("failed", error=dump({"type": "FormatError", "message": str(self._broken)}))
        return bodies

    def _refusal(self, error: InvalidJson) -> FormatError:
        return FormatError(f"{_EXPECTED} ({error})")

    def _read(self, text: JsonText) -> tuple[str, dict[str, JsonText]]:
        fields = split(text)
        if "output" in fields:
            return "output", fields
        if (
            self._draft is None
            and fields.keys() <= _OF_ERROR
            and any(_is_text(fields, name) for name in ("message", "Message"))
        ):
            return "error", fields
        name = next((name for name in fields if name in _TAKES or _is_exception(name)), "")
        if not name and self._draft is None:
            raise FormatError(f"{_EXPECTED}, not {sorted(fields)[:8]}")
        return name, fields

    def _take(self, kind: str, fields: dict[str, JsonText], text: JsonText) -> list[ev.Body] | None:
        if kind == "error":  # what is answered instead of a response
            self._end = StreamEnd("failed", error=text)
            return []
        if kind == "output":
            return [body for event in _events_of(fields) for body in self._take_one(*event) or []]
        return self._take_one(kind, fields[kind]) if kind else None

    def _take_one(self, name: str, body: JsonText) -> list[ev.Body] | None:
        if _is_exception(name):
            message = decode(split(body).get("message", "null"))
            self._end = StreamEnd("failed", error=dump({"type": name, "message": message}))
            return []
        return _TAKES[name](self, split(body) if body.strip() != "null" else {})

    def start(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        """`messageStart`: a response begins."""
        return self._start(fields)[0]

    def start_block(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        """`contentBlockStart`: a tool; text begins with its first delta."""
        index, start = need_whole(fields, "contentBlockIndex"), maybe_object(fields, "start")
        name = next(iter(start), "")
        said = need_object(start, name) if start else {}
        call, called = maybe_text(said, "toolUseId"), maybe_text(said, "name")
        is_of_server = decode(said.get("type", "null")) == "server_tool_use"
        bodies, draft = self._open()
        if not start:
            return bodies
        if name == "toolUse":
            kind = "server_tool_call" if is_of_server else "tool_call"
        else:
            kind = "server_tool_result" if name == "toolResult" else "provider"
        block = _Block(kind, None if call else name)
        block.given = said.get("input", "{}")
        if kind != "tool_call" or said.keys() - _CALL:
            block.parts.append(f"{{{dump(name)}:{start[name]}}}")
        return [*bodies, *draft.seal(index), *draft.begin(index, block, called, call)]

    def grow_block(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        """`contentBlockDelta`."""
        index, delta = need_whole(fields, "contentBlockIndex"), need_object(fields, "delta")
        name = next(iter(delta), "")
        source = need(delta, name)
        thought = need_object(delta, name) if name == "reasoningContent" else {}
        signature, text = maybe_text(thought, "signature"), maybe_text(thought, "text") or ""
        if name == "text":
            text = need_text(delta, name)
        elif name == "toolUse":
            piece = need_object(delta, name)
            text = need_text(piece, "input") if "input" in piece else ""
        bodies, draft = self._open()
        kind = "redacted_reasoning" if "redactedContent" in thought else _KINDS.get(name, "provider")
        block = draft.open.get(index)
        if block is None:
            block = _Block(kind)
            bodies += draft.begin(index, block)
        if name in ("text", "toolUse"):
            return bodies + draft.grow(block, text)
        if name == "citation":
            return bodies + draft.cite(block.number, f'{{"kind":"citation","source":{source}}}')
        if kind == "reasoning":
            block.sign(signature)
            return bodies + draft.grow(block, text)
        block.parts.append(f"{{{dump(name)}:{source}}}")
        return bodies

    def stop_block(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        """`contentBlockStop`."""
        index = need_whole(fields, "contentBlockIndex")
        bodies, draft = self._open()
        return bodies + draft.seal(index)

    def stop(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        """`messageStop`: the response is whole."""
        reason = reason_of(fields.get("stopReason", "null"))
        bodies, draft = self._open()
        self._conclude(StreamEnd("completed", finish_reason=reason))
        rest = {name: text for name, text in fields.items() if name not in ("stopReason", _PADDING)}
        bodies += draft.note(rest)
        if reason in _REFUSED and not draft.blocks:
            bodies += draft.refuse(Block("refusal"))
        return [*bodies, *draft.seal_all(), *draft.finish("complete")]

    def measure(self, fields: dict[str, JsonText]) -> list[ev.Body] | None:
        """`metadata`: usage, before or behind the stop."""
        draft = self._draft
        if draft is None:
            return None
        rest = {name: text for name, text in fields.items() if name not in ("usage", _PADDING)}
        return draft.note(rest) + _use(draft, fields.get("usage", "null"))

    def _close(self) -> list[ev.Body]:
        return self._end_of(self._draft)

    def _start(self, fields: dict[str, JsonText]) -> tuple[list[ev.Body], Draft]:
        bodies, draft = self._begin_next(self._draft, ResponseDraft, None, maybe_text(fields, "role") or "assistant")
        self._draft = draft
        return bodies, draft

    def _open(self) -> tuple[list[ev.Body], Draft]:
        """The response that is open; some streams are recorded without their `messageStart`."""
        if self._draft is not None and not self._draft.is_finished:
            return [], self._draft
        return self._start({})


_TAKES: Final[dict[str, Callable[[BedrockStream, dict[str, JsonText]], list[ev.Body] | None]]] = {
    "messageStart": BedrockStream.start,
    "contentBlockStart": BedrockStream.start_block,
    "contentBlockDelta": BedrockStream.grow_block,
    "contentBlockStop": BedrockStream.stop_block,
    "messageStop": BedrockStream.stop,
    "metadata": BedrockStream.measure,
}


class _Block(OpenBlock):
    """A block with what our fields do not say of it."""

    def __init__(self, kind: str, ref: str | None = None) -> None:
        super().__init__(kind, ref)
        self.given = "{}"
        self.parts: list[JsonText] = []

    def opaque(self) -> JsonText | None:
        """What was kept; of a signature, whose it is."""
        if not self.parts:
            return opaque(PROVIDER, _SIGNED) if self.signature else None
        return opaque(PROVIDER, self.parts[0] if len(self.parts) == 1 else "[" + ",".join(self.parts) + "]")


def _use(draft: Draft, text: JsonText) -> list[ev.Body]:
    """What was cached stands beside the input."""
    if text == "null":
        return []
    fresh, output, cached, written = (maybe_whole(usage, name) for usage in (split(text),) for name in _COUNTS)
    total = None if fresh is None else fresh + (cached or 0) + (written or 0)
    return draft.use(ev.RunUsage("", "", total, output, cached, written, None, raw(text)))


def _is_text(fields: dict[str, JsonText], name: str) -> bool:
    return fields.get(name, "").startswith('"')


def _is_exception(name: str) -> bool:
    return name.endswith(("Exception", "Error"))


def _events_of(fields: dict[str, JsonText]) -> list[tuple[str, JsonText]]:
    """A response that came whole, as the events of its stream."""
    message = need_object(need_object(fields, "output"), "message")
    events: list[tuple[str, JsonText]] = [("messageStart", f'{{"role":{message.get("role", dump("assistant"))}}}')]
    for index, item in enumerate(split_array(message.get("content", "[]"))):
        block = split(item)
        name = next((name for name in block if name != "type"), "")
        if name in ("citationsContent", "guardContent"):
            events += _said_inside(name, need_object(block, name), index)
            continue
        started = name not in ("text", "reasoningContent")
        value = need(block, name)
        value = need_object(block, name).get("reasoningText", value) if name == "reasoningContent" else value
        what = f'"start":{item}' if started else f'"delta":{{{dump(name)}:{value}}}'
        kind = "contentBlockStart" if started else "contentBlockDelta"
        events += [(kind, f'{{"contentBlockIndex":{index},{what}}}'), ("contentBlockStop", f'{{"contentBlockIndex":{index}}}')]
    rest = ",".join(f"{dump(name)}:{text}" for name, text in fields.items() if name not in ("output", "stopReason"))
    return [*events, ("messageStop", f'{{"stopReason":{need(fields, "stopReason")}}}'), ("metadata", "{" + rest + "}")]


def _said_inside(name: str, fields: dict[str, JsonText], index: int) -> list[tuple[str, JsonText]]:
    """Text that was cited, with its citations, or that a guardrail looked at, as it is streamed."""
    if name == "guardContent":
        deltas = [f'{{"text":{need(need_object(fields, "text"), "text")}}}'] if "text" in fields else []
    else:
        said = [split(part) for part in split_array(fields.get("content", "[]"))]
        deltas = [f'{{"text":{part["text"]}}}' for part in said if "text" in part]
        deltas += [f'{{"citation":{citation}}}' for citation in split_array(fields.get("citations", "[]"))]
    given = [("contentBlockDelta", f'{{"contentBlockIndex":{index},"delta":{delta}}}') for delta in deltas]
    if not given:
        rest = f"{{{dump(name)}:{join_fields(fields)}}}"
        given = [("contentBlockStart", f'{{"contentBlockIndex":{index},"start":{rest}}}')]
    return [*given, ("contentBlockStop", f'{{"contentBlockIndex":{index}}}')]


def _with_text(value: Any) -> Any:
    """Bytes, which a client library makes of some fields, as the base64 text they were."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: _with_text(item) for name, item in value.items()}
    return [_with_text(item) for item in value] if isinstance(value, list) else value
