"""Anthropic Messages streams: text, thinking with signatures, tools, server tools, citations, usage, errors.

Events of the stream become events of a conversation, one by one; memory holds what is open, not what has passed.
Source: the public documentation of *Streaming Messages*; field names as in `facts/formats.md` §5 of the design.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from projector import events as ev
from projector.formats.format import FormatError, StreamEnd
from projector.json_text import InvalidJson, JsonText, decode, dump, is_json, join_fields, raw, split, split_array

if TYPE_CHECKING:
    from collections.abc import Callable

_PROVIDER: Final = "anthropic"
_KINDS: Final = {
    "text": "text",
    "thinking": "reasoning",
    "redacted_thinking": "redacted_reasoning",
    "tool_use": "tool_call",
    "server_tool_use": "server_tool_call",
    "mcp_tool_use": "server_tool_call",
    "compaction": "compaction",
}
_TEXT_OF: Final = {"text": "text", "thinking": "thinking", "compaction": "content"}  # where a block has its text
_SAID_BY_US: Final = {  # fields of a block that our own fields express in full
    "text": {"type", "text"},
    "thinking": {"type", "thinking", "signature"},
    "tool_use": {"type", "id", "name", "input"},
    "server_tool_use": {"type", "id", "name", "input"},
}
_DELTA_TEXT: Final = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
_HANDLED: Final = ("id", "type", "role", "content", "usage")


class AnthropicStream:
    """Turns the events of one or more streamed responses of a run into events of the conversation.

    `mint()` gives the id of the next message. Pings are dropped; what this version does not know is kept as `raw`.
    """

    def __init__(self, run_id: str, mint: Callable[[], str]) -> None:
        self._run_id = run_id
        self._mint = mint
        self._response: _Response | None = None
        self._steps = 0
        self._end = StreamEnd("incomplete")

    def feed(self, chunk: bytes | str | dict[str, Any]) -> list[ev.Body]:
        """The events that one stream event becomes: its JSON text (the `data` of an SSE event), or the parsed form.

        Raises `FormatError` for what is no Anthropic stream event.
        """
        text = dump(chunk) if isinstance(chunk, dict) else chunk
        try:
            fields = split(text)
            kind = decode(fields["type"])
        except (InvalidJson, KeyError) as error:
            raise FormatError('a JSON object with a "type" was expected, as in {"type": "message_start", …}') from error
        if self._response is None and self._steps == 0 and kind not in ("message_start", "ping", "error"):
            raise FormatError(f'an Anthropic stream begins with "message_start", not with {kind!r}')
        try:
            bodies = self._handle(kind, fields)
        except (InvalidJson, KeyError, TypeError, ValueError, AttributeError) as error:
            raise FormatError(f"the {kind!r} event lacks what it needs ({type(error).__name__}: {error})") from error
        if bodies is None:
            return [ev.RawEvent(_PROVIDER, raw(text if isinstance(text, str) else text.decode()))]
        return bodies

    def end(self) -> StreamEnd:
        """How the run would end here: `incomplete` in the middle of a response, `failed` after an error."""
        return StreamEnd("incomplete") if self._response is not None and self._end.outcome != "failed" else self._end

    def _handle(self, kind: str, fields: dict[str, JsonText]) -> list[ev.Body] | None:
        if kind == "ping":
            return []
        if kind == "error":
            self._end = StreamEnd("failed", error=fields.get("error"))
            return []
        if kind == "message_start":
            return self._start(split(fields["message"]))
        if self._response is None or kind not in _INSIDE:
            return None
        return _INSIDE[kind](self, self._response, fields)

    def _start(self, message: dict[str, JsonText]) -> list[ev.Body]:
        bodies: list[ev.Body] = []
        ref = decode(message.get("id", "null"))
        if self._response is not None:
            if self._response.ref == ref and not self._response.blocks:  # the same start once more
                return []
            bodies += self._close_response(self._response, "partial")  # a response spliced into another one
        role = decode(message["role"])
        response = _Response(self._run_id, self._mint(), ref, self._steps + 1)
        bodies += [
            ev.RunStep(self._run_id, response.step, "started"),
            ev.MessageStarted(self._run_id, response.message_id, role, provider_ref=ref),
        ]
        bodies += response.annotate({name: text for name, text in message.items() if name not in _HANDLED})
        bodies += response.use(message.get("usage", "null"))
        for index, block in enumerate(split_array(message.get("content", "[]"))):  # a response that comes whole
            bodies += response.start_block(index, block) + (response.stop_block(index) or [])
        self._response, self._steps, self._end = response, response.step, StreamEnd("incomplete")
        return bodies

    def change(self, response: _Response, fields: dict[str, JsonText]) -> list[ev.Body]:
        """`message_delta`: why it stops, and usage."""
        delta = split(fields["delta"])
        reason = decode(delta.get("stop_reason", "null"))
        if self._end.outcome != "failed":  # an error in the stream is not undone by what follows
            self._end = StreamEnd("completed", finish_reason=reason)
        rest = {name: text for name, text in fields.items() if name not in ("type", "delta", "usage")}
        bodies = response.annotate(delta | rest)
        if reason == "refusal":
            bodies += response.refuse(decode(delta.get("stop_details", "null")))
        return bodies + response.use(fields.get("usage", "null"))

    def stop(self, response: _Response, fields: dict[str, JsonText]) -> list[ev.Body]:  # noqa: ARG002 - one shape
        """`message_stop`: the response is whole."""
        self._response = None
        if self._end.outcome == "incomplete":  # a response without message_delta
            self._end = StreamEnd("completed")
        return self._close_response(response, "complete")

    def _close_response(self, response: _Response, status: Any) -> list[ev.Body]:
        return [ev.MessageFinished(response.message_id, status), ev.RunStep(self._run_id, response.step, "finished")]


_INSIDE: Final[dict[str, Callable[[AnthropicStream, _Response, dict[str, JsonText]], list[ev.Body] | None]]] = {
    "message_delta": AnthropicStream.change,
    "message_stop": AnthropicStream.stop,
    "content_block_start": lambda _, response, fields: response.start_block(int(fields["index"]), fields["content_block"]),
    "content_block_delta": lambda _, response, fields: response.grow_block(int(fields["index"]), split(fields["delta"])),
    "content_block_stop": lambda _, response, fields: response.stop_block(int(fields["index"])),
}


class _Response:
    """One response that is being streamed."""

    def __init__(self, run_id: str, message_id: str, ref: str | None, step: int) -> None:
        self.run_id, self.message_id, self.ref, self.step = run_id, message_id, ref, step
        self.blocks = 0
        self._open: dict[int, _Block] = {}  # by the provider's index
        self._usage: dict[str, JsonText] = {}

    def annotate(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        said = [f"{dump(name)}:{text}" for name, text in fields.items() if text.strip() != "null"]
        return [ev.MessageAnnotated(self.message_id, raw("{" + ",".join(said) + "}"))] if said else []

    def use(self, usage: JsonText) -> list[ev.Body]:
        """Usage is cumulative, and a later event may leave fields out; cached tokens stand beside the input."""
        if usage == "null":
            return []
        self._usage |= split(usage)
        cached, written = self._count("cache_read_input_tokens"), self._count("cache_creation_input_tokens")
        fresh = self._count("input_tokens")
        details = decode(self._usage.get("output_tokens_details", "null")) or {}
        body = ev.RunUsage(
            run_id=self.run_id,
            request_id=self.ref or self.message_id,
            input=None if fresh is None else fresh + (cached or 0) + (written or 0),
            output=self._count("output_tokens"),
            cached=cached,
            cache_write=written,
            reasoning=details.get("thinking_tokens"),
            raw=raw(join_fields(self._usage)),
        )
        return [body]

    def refuse(self, details: dict[str, Any] | None) -> list[ev.Body]:
        """A refusal has no block of its own in the stream; without one an empty message would vanish."""
        number = self.blocks
        self.blocks += 1
        text = (details or {}).get("explanation") or ""
        said: list[ev.Body] = [ev.BlockDelta(self.message_id, number, text)] if text else []
        return [ev.BlockStarted(self.message_id, number, "refusal"), *said, ev.BlockSealed(self.message_id, number)]

    def start_block(self, index: int, text: JsonText) -> list[ev.Body]:
        number, fields = self.blocks, split(text)
        self.blocks += 1
        kind = decode(fields["type"])
        block = self._open[index] = _Block(number, kind, fields, text)
        call = fields.get("id") if kind in _KINDS else fields.get("tool_use_id")
        started = ev.BlockStarted(
            message_id=self.message_id,
            block=number,
            kind=block.our_kind,
            name=decode(fields.get("name", "null")) if "name" in fields else None,
            tool_call_id=decode(call) if call else None,
            provider_ref=None if block.our_kind in ("text", "reasoning") or call else kind,
        )
        first = decode(fields.get(_TEXT_OF.get(kind, ""), "null")) or ""
        return [started, *self._delta(block, first)]

    def grow_block(self, index: int, delta: dict[str, JsonText]) -> list[ev.Body] | None:
        block = self._open.get(index)
        if block is None:
            return None
        kind = decode(delta["type"])
        if kind in _DELTA_TEXT:
            return self._delta(block, decode(delta[_DELTA_TEXT[kind]]))
        if kind == "signature_delta":
            block.signature += decode(delta["signature"])
            return []
        if kind == "citations_delta":
            source = split(delta["citation"])
            citation = f'{{"kind":{source.get("type", "null")},"source":{delta["citation"]}}}'
            return [ev.BlockAnnotated(self.message_id, block.number, raw(citation))]
        if kind == "compaction_delta":
            block.fields |= {name: text for name, text in delta.items() if name != "type"}
            block.changed = True
            return self._delta(block, decode(delta.get("content", "null")) or "")
        return None

    def stop_block(self, index: int) -> list[ev.Body] | None:
        block = self._open.pop(index, None)
        if block is None:
            return None
        return [block.seal(self.message_id)]

    def _delta(self, block: _Block, text: str) -> list[ev.Body]:
        if block.our_kind in ("tool_call", "server_tool_call"):
            block.arguments.append(text)
        return [ev.BlockDelta(self.message_id, block.number, text)] if text else []

    def _count(self, name: str) -> int | None:
        count: int | None = decode(self._usage.get(name, "null"))
        return count


class _Block:
    def __init__(self, number: int, kind: str, fields: dict[str, JsonText], text: JsonText) -> None:
        self.number, self.kind, self.fields = number, kind, fields
        self.our_kind: Any = _KINDS.get(kind, "server_tool_result" if "tool_use_id" in fields else "provider")
        self.signature: str = decode(fields.get("signature", "null")) or ""
        self.arguments: list[str] = []
        self.changed = False
        self._text = text

    def seal(self, message_id: str) -> ev.BlockSealed:
        argument_text = "".join(self.arguments)
        is_call = self.our_kind in ("tool_call", "server_tool_call")
        given = "" if argument_text else self.fields.get("input", "")
        return ev.BlockSealed(
            message_id,
            self.number,
            signature=self.signature or None,
            opaque=raw(self._opaque()),
            input=raw(given if is_call else ""),
            parse=("ok" if is_json(argument_text or given) else "bad") if is_call else None,
        )

    def _opaque(self) -> JsonText:
        """What our fields do not say goes back to its maker as it came."""
        if self.fields.keys() <= _SAID_BY_US.get(self.kind, set()):
            return ""
        if self.kind == "text" and decode(self.fields.get("citations", "null")) in (None, []) and len(self.fields) == 3:
            return ""  # citations follow as deltas
        payload = self._text
        if self.changed:
            payload = join_fields(self.fields)
        return f'{{"provider":"{_PROVIDER}","payload":{payload}}}'
