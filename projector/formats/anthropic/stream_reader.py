"""Anthropic Messages streams: text, thinking with signatures, tools, server tools, citations, usage, errors.

Events of the stream become events of a conversation, one by one; memory holds what is open, not what has passed.
Source: the public documentation of *Streaming Messages*.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from projector import events as ev
from projector.formats.format import FormatError, StreamEnd
from projector.formats.shared.aws_frames import exception_of
from projector.formats.shared.fields import reason_of, says_nothing
from projector.formats.shared.payloads import opaque
from projector.formats.shared.response import CALLS, OpenBlock, ResponseDraft
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
from projector.json_text import InvalidJson, JsonText, decode, join_fields, raw, split, split_array
from projector.message import Block

if TYPE_CHECKING:
    from collections.abc import Callable

    Draft = ResponseDraft["_Block"]

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
_BEGINS_LATE: Final[dict[str, tuple[str, None, str, dict[str, JsonText], str]]] = {
    "text_delta": ("text", None, "text", {}, ""),
    "thinking_delta": ("reasoning", None, "thinking", {}, ""),
}  # of a call nobody knows then which tool it calls
_DELTA_TEXT: Final = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
_HANDLED: Final = ("id", "type", "role", "content", "usage")


class AnthropicStream(StreamReader[dict[str, JsonText]]):
    """Turns the events of one or more streamed responses of a run into events of the conversation.

    `mint()` gives the id of the next message. Pings are dropped; what this version does not know is kept as `raw`.
    """

    PROVIDER = _PROVIDER
    EXPECTED = 'a JSON object with a "type" was expected, as in {"type": "message_start", …}'
    CALLED = "the {!r} event"

    def __init__(self, run_id: str, mint: Callable[[], str]) -> None:
        super().__init__(run_id, mint)
        self._draft: Draft | None = None

    def end(self) -> StreamEnd:
        """How the run would end here: `incomplete` in the middle of a response, `failed` after an error."""
        return StreamEnd("incomplete") if self._draft is not None and self._end.outcome != "failed" else self._end

    def _read(self, text: JsonText) -> tuple[str, dict[str, JsonText]]:
        fields = split(text)
        if "type" not in fields and (told := exception_of(fields)) is not None:
            return "error", {"error": told}
        if "type" not in fields:
            raise InvalidJson("it has no type")
        kind = decode(fields["type"])
        if isinstance(kind, dict | list):
            raise FormatError("its type is no text")
        if self._draft is None and self._steps == 0 and kind not in ("message_start", "ping", "error", *_INSIDE):
            raise FormatError(f'an Anthropic stream begins with "message_start", not with {kind!r}')
        return kind, fields

    def _take(self, kind: Any, fields: dict[str, JsonText], text: JsonText) -> list[ev.Body] | None:
        if kind == "ping":
            return []
        if kind == "error":
            self._end = StreamEnd("failed", error=fields.get("error"))
            return []
        if kind == "message_start":
            begins = self._draft is None  # some servers say nothing in it; in the middle it would end a response
            return self._start(maybe_object(fields, "message") if begins else need_object(fields, "message"))
        step = _INSIDE.get(kind)
        if step is None or (self._draft is None and self._steps > 0):
            return None
        begun = [] if self._draft is not None else self._start({})  # its beginning was missed
        said = step(self, cast("Draft", self._draft), fields)
        return [*begun, ev.RawEvent(_PROVIDER, raw(text))] if said is None else [*begun, *said]

    def _close(self) -> list[ev.Body]:
        return [] if self._draft is None else [*self._draft.seal_all(), *self.stop(self._draft, {})]

    def _start(self, message: dict[str, JsonText]) -> list[ev.Body]:
        old, ref = self._draft, maybe_text(message, "id")
        if old is not None and old.ref == ref and not old.blocks:  # the same start once more
            return []
        role = maybe_text(message, "role") or "assistant"
        draft: Draft = ResponseDraft(self._run_id, self._mint(), self._steps + 1, ref)
        bodies = draft.start(role)
        bodies += draft.note({name: text for name, text in message.items() if name not in _HANDLED})
        bodies += _use(draft, message.get("usage", "null"))
        for index, block in enumerate(split_array(message.get("content", "[]"))):  # a response that comes whole
            bodies += _start_block(draft, index, block) + draft.seal(index)
        bodies = bodies if old is None else old.finish("partial") + bodies  # a response spliced into another one
        self._draft, self._steps, self._end = draft, self._steps + 1, StreamEnd("incomplete")
        return bodies

    def change(self, draft: Draft, fields: dict[str, JsonText]) -> list[ev.Body]:
        """`message_delta`: why it stops, and usage."""
        delta = maybe_object(fields, "delta")
        reason = reason_of(delta.get("stop_reason", "null"))
        why = maybe_text(maybe_object(delta, "stop_details"), "explanation") or "" if reason == "refusal" else ""
        used = _use(draft, fields.get("usage", "null"))
        if reason is not None:
            self._conclude(StreamEnd("completed", finish_reason=reason))
        rest = {name: text for name, text in fields.items() if name not in ("type", "delta", "usage")}
        refused = draft.refuse(Block("refusal", text=why)) if reason == "refusal" else []
        return [*draft.note(delta | rest), *refused, *used]

    def stop(self, draft: Draft, fields: dict[str, JsonText]) -> list[ev.Body]:  # noqa: ARG002 - one shape
        """`message_stop`: the response is whole."""
        self._draft = None
        if self._end.outcome == "incomplete":  # a response without message_delta
            self._end = StreamEnd("completed")
        return draft.finish("complete")

    def start_block(self, draft: Draft, fields: dict[str, JsonText]) -> list[ev.Body]:
        """`content_block_start`."""
        return _start_block(draft, need_whole(fields, "index"), need(fields, "content_block"))

    def grow_block(self, draft: Draft, fields: dict[str, JsonText]) -> list[ev.Body] | None:
        """`content_block_delta`."""
        index, delta = need_whole(fields, "index"), need_object(fields, "delta")
        kind = need_text(delta, "type")
        text = need_text(delta, _DELTA_TEXT[kind]) if kind in _DELTA_TEXT else ""
        signature = need_text(delta, "signature") if kind == "signature_delta" else None
        source = need_object(delta, "citation") if kind == "citations_delta" else {}
        content = maybe_text(delta, "content") if kind == "compaction_delta" else None
        block, begun = draft.open.get(index), list[ev.Body]()
        if block is None:
            if index < draft.blocks or kind not in _BEGINS_LATE:
                return None
            block = _Block(*_BEGINS_LATE[kind])  # its beginning was missed
            begun = draft.begin(index, block)
        if kind in _DELTA_TEXT:
            return begun + draft.grow(block, text)
        if kind == "signature_delta":
            block.sign(signature)
            return begun
        if kind == "citations_delta":
            return draft.cite(block.number, f'{{"kind":{source.get("type", "null")},"source":{delta["citation"]}}}')
        if kind == "compaction_delta":
            block.fields |= {name: text for name, text in delta.items() if name != "type"}
            block.changed = True
            return begun + draft.grow(block, content or "")
        return None

    def stop_block(self, draft: Draft, fields: dict[str, JsonText]) -> list[ev.Body] | None:
        """`content_block_stop`; some clients write the whole block into it."""
        index = need_whole(fields, "index")
        block, whole = draft.open.get(index), maybe_object(fields, "content_block")
        said: list[ev.Body] = []
        if block is not None and whole:
            said = draft.complete(block, maybe_text(whole, _TEXT_OF.get(block.theirs, "")) or "")
            block.whole = whole.get("input", "") if block.kind in CALLS else ""
        return said + draft.seal(index) or None


_INSIDE: Final[dict[str, Callable[[AnthropicStream, Draft, dict[str, JsonText]], list[ev.Body] | None]]] = {
    "message_delta": AnthropicStream.change,
    "message_stop": AnthropicStream.stop,
    "content_block_start": AnthropicStream.start_block,
    "content_block_delta": AnthropicStream.grow_block,
    "content_block_stop": AnthropicStream.stop_block,
}


class _Block(OpenBlock):
    """A block with what its start said of it."""

    def __init__(self, kind: str, ref: str | None, theirs: str, fields: dict[str, JsonText], source: JsonText) -> None:
        super().__init__(kind, ref)
        self.theirs, self.fields, self.source = theirs, fields, source
        self.sign(maybe_text(fields, "signature"))
        self.given = fields.get("input", "")
        self.changed = False

    def opaque(self) -> JsonText | None:
        """What our fields do not say goes back to its maker as it came."""
        if self.fields.keys() <= _SAID_BY_US.get(self.theirs, set()):
            return None
        if self.theirs == "text" and decode(self.fields.get("citations", "null")) in (None, []) and len(self.fields) == 3:
            return None  # citations follow as deltas
        return opaque(_PROVIDER, join_fields(self.fields) if self.changed else self.source)


def _start_block(draft: Draft, index: int, source: JsonText) -> list[ev.Body]:
    fields = split(source)
    theirs = need_text(fields, "type")
    kind = _KINDS.get(theirs, "server_tool_result" if "tool_use_id" in fields else "provider")
    call = "id" if theirs in _KINDS else "tool_use_id"
    ref = None if kind in ("text", "reasoning") or call in fields else theirs
    block = _Block(kind, ref, theirs, fields, source)
    name, call_id, text = (maybe_text(fields, name) for name in ("name", call, _TEXT_OF.get(theirs, "")))
    return draft.begin(index, block, name, call_id) + draft.grow(block, text or "")


def _use(draft: Draft, text: JsonText) -> list[ev.Body]:
    """Usage is cumulative, and a later event may leave fields out; cached tokens stand beside the input."""
    if text == "null":
        return []
    said = split(text)
    is_sum = not says_nothing(said.get("iterations", "null"))  # its own last word: what other iterations used is left out
    usage = draft.add_up(said, corrects=said.keys() if is_sum else ())
    fresh, cached = maybe_whole(usage, "input_tokens"), maybe_whole(usage, "cache_read_input_tokens")
    written = maybe_whole(usage, "cache_creation_input_tokens")
    return draft.use(
        ev.RunUsage(
            run_id="",
            request_id="",
            input=None if fresh is None else fresh + (cached or 0) + (written or 0),
            output=maybe_whole(usage, "output_tokens"),
            cached=cached,
            cache_write=written,
            reasoning=maybe_whole(maybe_object(usage, "output_tokens_details"), "thinking_tokens"),
            raw=raw(join_fields(usage)),
        ),
        corrects=("input", "output", "cached", "cache_write") if is_sum else (),
        totals=usage,
    )
