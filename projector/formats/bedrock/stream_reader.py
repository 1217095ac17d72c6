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
from projector.formats.shared.payloads import opaque
from projector.json_text import InvalidJson, JsonText, decode, dump, is_json, raw, split, split_array

if TYPE_CHECKING:
    from collections.abc import Callable

PROVIDER: Final = "bedrock"
_EXPECTED: Final = 'an event of ConverseStream was expected, as in {"messageStart": …} or in a binary frame'
_PADDING: Final = "p"
_SIGNED: Final = '{"reasoningContent":{}}'  # our fields say text and signature; this says whose they are
_CALL: Final = {"toolUseId", "name", "input", "type"}


class BedrockStream:
    """Turns the events of one or more streamed responses of a run into events of the conversation.

    `mint()` gives the id of the next message. Bytes may be the response's own, cut anywhere: then frames are checked
    against their checksums. A response of Converse that came whole is one chunk.
    """

    def __init__(self, run_id: str, mint: Callable[[], str]) -> None:
        self._run_id = run_id
        self._mint = mint
        self._frames: FrameReader | None = None
        self._broken: FormatError | None = None
        self._response: _Response | None = None
        self._steps = 0
        self._end = StreamEnd("incomplete")

    def feed(self, chunk: bytes | str | dict[str, Any]) -> list[ev.Body]:
        """The events that a chunk becomes: bytes of the response, JSON text, or the parsed form.

        Raises `FormatError` for what is no event of ConverseStream, and for a frame whose checksum is wrong.
        """
        if isinstance(chunk, bytes) and (self._frames is not None or not chunk.lstrip().startswith(b"{")):
            return self._feed_frames(chunk)
        try:
            text = dump(_with_text(chunk)) if isinstance(chunk, dict) else chunk
            return self._feed(text if isinstance(text, str) else text.decode())
        except (InvalidJson, UnicodeDecodeError) as error:
            raise FormatError(f"{_EXPECTED} ({error})") from error

    def _feed_frames(self, chunk: bytes) -> list[ev.Body]:
        """What is whole ahead of a broken frame is kept; nothing can be found behind it."""
        self._frames = self._frames or FrameReader()
        bodies: list[ev.Body] = []
        try:
            if self._broken is not None:
                raise self._broken
            for payload in self._frames.feed(chunk):
                bodies += self._feed(payload.data)
        except FormatError as error:
            self._broken = error
            if not bodies:
                raise
        finally:
            self._broken = self._broken or self._frames.broken
            if self._broken is not None:
                self._end = StreamEnd("failed", error=dump({"type": "FormatError", "message": str(self._broken)}))
        return bodies

    def end(self) -> StreamEnd:
        """How the run would end here: `incomplete` without `messageStop`, `failed` after an exception."""
        return self._end

    def _feed(self, text: JsonText) -> list[ev.Body]:
        try:
            fields = split(text)
        except InvalidJson as error:
            raise FormatError(f"{_EXPECTED} ({error})") from error
        try:
            if "output" in fields:
                return [body for event in _events_of(fields) for body in self._take(*event) or []]
            name = next((name for name in fields if name in _TAKES or _is_exception(name)), None)
            if name is None and self._response is None:
                raise FormatError(f"{_EXPECTED}, not {sorted(fields)[:8]}")
            bodies = None if name is None else self._take(name, fields[name])
        except (InvalidJson, KeyError, TypeError, ValueError, AttributeError) as error:
            raise FormatError(f"the event lacks what it needs ({type(error).__name__}: {error})") from error
        return [ev.RawEvent(PROVIDER, raw(text))] if bodies is None else bodies

    def _take(self, name: str, body: JsonText) -> list[ev.Body] | None:
        if _is_exception(name):
            message = decode(split(body).get("message", "null"))
            self._end = StreamEnd("failed", error=dump({"type": name, "message": message}))
            return []
        return _TAKES[name](self, split(body))

    def start(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        """`messageStart`: a response begins."""
        old = self._response
        bodies = [] if old is None or old.is_finished else old.finish("partial")
        self._steps += 1
        self._response = _Response(self._run_id, self._mint(), self._steps)
        self._end = StreamEnd("incomplete") if self._end.outcome != "failed" else self._end
        return [*bodies, *self._response.start(decode(fields.get("role", '"assistant"')))]

    def start_block(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        """`contentBlockStart`: a tool."""
        bodies, response = self._open()
        return bodies + response.start_block(int(fields["contentBlockIndex"]), split(fields["start"]))

    def grow_block(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        """`contentBlockDelta`."""
        bodies, response = self._open()
        return bodies + response.grow_block(int(fields["contentBlockIndex"]), split(fields["delta"]))

    def stop_block(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        """`contentBlockStop`."""
        bodies, response = self._open()
        return bodies + response.seal(int(fields["contentBlockIndex"]))

    def stop(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        """`messageStop`: the response is whole."""
        bodies, response = self._open()
        reason = decode(fields["stopReason"])
        if self._end.outcome != "failed":
            self._end = StreamEnd("completed", finish_reason=reason)
        rest = {name: text for name, text in fields.items() if name not in ("stopReason", _PADDING)}
        refused = response.refuse() if reason in ("guardrail_intervened", "content_filtered") else []
        return [*bodies, *response.annotate(rest), *refused, *response.finish("complete")]

    def measure(self, fields: dict[str, JsonText]) -> list[ev.Body] | None:
        """`metadata`: usage, before or behind the stop."""
        if self._response is None:
            return None
        rest = {name: text for name, text in fields.items() if name not in ("usage", _PADDING)}
        return self._response.annotate(rest) + self._response.use(fields.get("usage", "null"))

    def _open(self) -> tuple[list[ev.Body], _Response]:
        """The response that is open; some streams are recorded without their `messageStart`."""
        if self._response is not None and not self._response.is_finished:
            return [], self._response
        bodies = self.start({})
        assert self._response is not None
        return bodies, self._response


_TAKES: Final[dict[str, Callable[[BedrockStream, dict[str, JsonText]], list[ev.Body] | None]]] = {
    "messageStart": BedrockStream.start,
    "contentBlockStart": BedrockStream.start_block,
    "contentBlockDelta": BedrockStream.grow_block,
    "contentBlockStop": BedrockStream.stop_block,
    "messageStop": BedrockStream.stop,
    "metadata": BedrockStream.measure,
}


class _Response:
    """One response that is being streamed."""

    def __init__(self, run_id: str, message_id: str, step: int) -> None:
        self.run_id, self.message_id, self.step = run_id, message_id, step
        self.is_finished = False
        self._blocks = 0
        self._open: dict[int, _Block] = {}  # by the provider's index

    def start(self, role: Any) -> list[ev.Body]:
        return [ev.RunStep(self.run_id, self.step, "started"), ev.MessageStarted(self.run_id, self.message_id, role)]

    def finish(self, status: Any) -> list[ev.Body]:
        sealed = [body for index in list(self._open) for body in self.seal(index)] if status == "complete" else []
        self.is_finished = True
        return [*sealed, ev.MessageFinished(self.message_id, status), ev.RunStep(self.run_id, self.step, "finished")]

    def start_block(self, index: int, start: dict[str, JsonText]) -> list[ev.Body]:
        name = next(iter(start), "")
        fields = split(start[name])
        call = decode(fields.get("toolUseId", "null"))
        if name == "toolUse":
            is_ours = decode(fields.get("type", "null")) != "server_tool_use"
            kind = "tool_call" if is_ours else "server_tool_call"
        else:
            kind = "server_tool_result" if name == "toolResult" else "provider"
        block, started = self._begin(index, kind, decode(fields.get("name", "null")), call, None if call else name)
        block.given = fields.get("input", "{}")
        if kind != "tool_call" or fields.keys() - _CALL:
            block.kept.append("{" + f"{dump(name)}:{start[name]}" + "}")
        return started

    def grow_block(self, index: int, delta: dict[str, JsonText]) -> list[ev.Body]:
        name = next(iter(delta), "")
        if name == "text":
            block, started = self._block(index, "text")
            return started + self._delta(block, decode(delta[name]))
        if name == "reasoningContent":
            return self._think(index, split(delta[name]), delta[name])
        if name == "citation":
            block, started = self._block(index, "text")
            cited = f'{{"kind":"citation","source":{delta[name]}}}'
            return [*started, ev.BlockAnnotated(self.message_id, block.number, raw(cited))]
        block, started = self._block(index, "tool_call" if name == "toolUse" else "provider")
        if name == "toolUse":
            return started + self._delta(block, decode(split(delta[name]).get("input", '""')))
        block.kept.append("{" + f"{dump(name)}:{delta[name]}" + "}")
        return started

    def seal(self, index: int) -> list[ev.Body]:
        block = self._open.pop(index, None)
        return [] if block is None else [block.seal(self.message_id)]

    def refuse(self) -> list[ev.Body]:
        """A refusal has no block of its own; without one an empty message would vanish."""
        if self._blocks:
            return []
        _, started = self._begin(-1, "refusal")
        return started + self.seal(-1)

    def annotate(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        said = [f"{dump(name)}:{text}" for name, text in fields.items() if text != "null"]
        return [ev.MessageAnnotated(self.message_id, raw("{" + ",".join(said) + "}"))] if said else []

    def use(self, usage: JsonText) -> list[ev.Body]:
        """What was cached stands beside the input."""
        if usage == "null":
            return []
        said = split(usage)
        fresh, output, cached, written = (
            decode(said.get(name, "null"))
            for name in ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")
        )
        total = None if fresh is None else fresh + (cached or 0) + (written or 0)
        return [ev.RunUsage(self.run_id, self.message_id, total, output, cached, written, None, raw(usage))]

    def _think(self, index: int, fields: dict[str, JsonText], source: JsonText) -> list[ev.Body]:
        if "redactedContent" in fields:
            block, started = self._block(index, "redacted_reasoning")
            block.kept.append(f'{{"reasoningContent":{source}}}')
            return started
        block, started = self._block(index, "reasoning")
        block.signature += decode(fields.get("signature", "null")) or ""
        return started + self._delta(block, decode(fields.get("text", "null")) or "")

    def _block(self, index: int, kind: str) -> tuple[_Block, list[ev.Body]]:
        found = self._open.get(index)
        return (found, []) if found is not None else self._begin(index, kind)

    def _begin(
        self, index: int, kind: Any, name: str | None = None, call: str | None = None, ref: str | None = None
    ) -> tuple[_Block, list[ev.Body]]:
        sealed = self.seal(index)
        block = self._open[index] = _Block(self._blocks, kind)
        self._blocks += 1
        return block, [*sealed, ev.BlockStarted(self.message_id, block.number, kind, name, call, None, ref)]

    def _delta(self, block: _Block, text: Any) -> list[ev.Body]:
        if not isinstance(text, str):
            raise TypeError(f"text was expected, not {text!r}")
        if block.is_call:
            block.arguments.append(text)
        return [ev.BlockDelta(self.message_id, block.number, text)] if text else []


class _Block:
    def __init__(self, number: int, kind: str) -> None:
        self.number, self.kind = number, kind
        self.is_call = kind in ("tool_call", "server_tool_call")
        self.signature = ""
        self.arguments: list[str] = []
        self.given: JsonText = "{}"
        self.kept: list[JsonText] = []  # what our fields do not say

    def seal(self, message_id: str) -> ev.BlockSealed:
        text = "".join(self.arguments)
        given = self.given if self.is_call and not text else ""
        parse: Any = ("ok" if is_json(text or given) else "bad") if self.is_call else None
        return ev.BlockSealed(message_id, self.number, self.signature or None, raw(self._opaque()), raw(given), parse)

    def _opaque(self) -> JsonText:
        if not self.kept:
            return opaque(PROVIDER, _SIGNED) if self.signature else ""
        return opaque(PROVIDER, self.kept[0] if len(self.kept) == 1 else "[" + ",".join(self.kept) + "]")


def _is_exception(name: str) -> bool:
    return name.endswith("Exception")


def _events_of(fields: dict[str, JsonText]) -> list[tuple[str, JsonText]]:
    """A response that came whole, as the events of its stream."""
    message = split(split(fields["output"])["message"])
    events: list[tuple[str, JsonText]] = [("messageStart", f'{{"role":{message.get("role", dump("assistant"))}}}')]
    for index, item in enumerate(split_array(message.get("content", "[]"))):
        block = split(item)
        name = next((name for name in block if name != "type"), "")
        started = name not in ("text", "reasoningContent")
        inner = split(block[name]) if name == "reasoningContent" else {}
        value = inner.get("reasoningText", block[name])
        what = f'"start":{item}' if started else f'"delta":{{{dump(name)}:{value}}}'
        kind = "contentBlockStart" if started else "contentBlockDelta"
        events += [(kind, f'{{"contentBlockIndex":{index},{what}}}'), ("contentBlockStop", f'{{"contentBlockIndex":{index}}}')]
    rest = ",".join(f"{dump(name)}:{text}" for name, text in fields.items() if name not in ("output", "stopReason"))
    return [*events, ("messageStop", f'{{"stopReason":{fields["stopReason"]}}}'), ("metadata", "{" + rest + "}")]


def _with_text(value: Any) -> Any:
    """Bytes, which a client library makes of some fields, as the base64 text they were."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: _with_text(item) for name, item in value.items()}
    return [_with_text(item) for item in value] if isinstance(value, list) else value
