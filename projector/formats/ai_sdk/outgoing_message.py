"""A UIMessage while it goes out as chunks: its steps, the parts that are open, the calls that have no result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from projector import events as ev
from projector.formats.ai_sdk.parts import DYNAMIC, STEP, TOOL
from projector.formats.ai_sdk.stream_chunks import (
    RESET,
    Chunks,
    asked,
    is_chunk,
    is_tool,
    output,
    text_end,
    tool_input,
    tool_start,
)
from projector.formats.ai_sdk.writer import write
from projector.formats.shared.call_refs import CallRefs
from projector.formats.shared.live import SAID, GrowingBlock, one_block, one_result
from projector.json_text import dump
from projector.message import Block

if TYPE_CHECKING:
    from collections.abc import Iterator

_CALLS: Final = ("tool_call", "server_tool_call")
_NO_TRUTH: Final = ("synthetic", "interrupted")


class OutgoingMessage:
    """Gives the chunks for what the messages of one run say."""

    def __init__(self) -> None:
        self._messages: dict[str, _Source] = {}
        self._blocks: dict[tuple[str, int], GrowingBlock] = {}
        self._calls: dict[str, _Call] = {}
        self._refs = CallRefs()
        self._parts = 0
        self._in_step = False
        self._steps_since = 0
        """Steps of the UIMessage since a step of the run began."""
        self._is_mixed = False
        """Whether that step has added to an earlier one of the UIMessage."""

    def begin_step_of_run(self) -> None:
        """What was said before is no part of the step that begins."""
        self._steps_since, self._is_mixed = 0, False

    def begin(self, message_id: str, run_id: str, expected: dict[str, Any] | None) -> None:
        """One more message of the run; with `expected` the UIMessage that it becomes is known."""
        parts = iter(expected["parts"]) if expected else None
        self._messages.setdefault(message_id, _Source(message_id, run_id, parts))

    def take(self, body: Any) -> Chunks:
        """The chunks for one event of its messages."""
        chunks = self._take(body)
        self._is_mixed = self._is_mixed or (bool(chunks) and not self._steps_since)
        return chunks

    def _take(self, body: Any) -> Chunks:
        if isinstance(body, ev.ToolResult):
            return self._answer(body)
        if isinstance(body, ev.ToolApproval):
            return self._ask(body)
        source = self._messages.get(body.message_id)
        if source is None:
            return []
        if isinstance(body, ev.BlockStarted):
            return self._start(source, body)
        return self._leave(source) if isinstance(body, ev.MessageFinished) else self._change(source, body)

    def reset(self) -> tuple[Chunks, bool]:
        """What the newest step of the run has said is taken back; False where a client can't be told all of it.

        A client takes back the newest step of its UIMessage, which is one message.
        """
        if not self._in_step or not self._steps_since:
            return [], not self._is_mixed
        self._blocks = {}
        for call in self._calls.values():
            if call.in_step:
                self._refs.forget(call.message_id)
        self._calls = {ref: call for ref, call in self._calls.items() if not call.in_step}
        for source in self._messages.values():
            source.seen = set()
        is_told, self._steps_since, self._is_mixed = self._steps_since == 1 and not self._is_mixed, 1, False
        return [{"type": RESET}], is_told

    def finish(self) -> Chunks:
        """All is said, but what is open stays so."""
        return self._end_step()

    def _start(self, source: _Source, body: ev.BlockStarted) -> Chunks:
        if body.block in source.seen:
            return []
        source.seen.add(body.block)
        block = self._blocks[body.message_id, body.block] = GrowingBlock(body)
        is_result = body.kind == "server_tool_result" and body.tool_call_id in self._calls
        chunks: Chunks = []
        while not is_result and (known := source.next()) is not None:
            if known["type"] == STEP:
                chunks += self._begin_step()
            else:
                block.known = known
                break
        if body.kind in SAID:
            kind = "reasoning" if body.kind == "reasoning" else "text"
            chunks += self._enter(source)
            own = f"{body.message_id}/{body.block}" if kind == "reasoning" else f"{kind}-{self._parts}"
            block.ref = (block.known or {}).get("id", own if block.known is None else f"{kind}-{self._parts}")
            chunks.append({"type": f"{kind}-start", "id": block.ref})
        elif body.kind in _CALLS:
            chunks += self._enter(source)
            block.ref = body.tool_call_id or f"call_{body.message_id}_{body.block}"
            while block.ref in self._calls and block.known is None:
                block.ref += "~"
            if body.tool_call_id is not None:
                self._refs.begin(body.tool_call_id, body.message_id, block.ref)
            part = block.known or _begun(block)
            self._calls[block.ref] = _Call(block, part)
            chunks.append(tool_start(part))
        else:
            return chunks
        self._parts += 1
        return chunks

    def _change(self, source: _Source, body: ev.BlockDelta | ev.BlockAnnotated | ev.BlockSealed) -> Chunks:
        block = self._blocks.get((body.message_id, body.block))
        if block is None:
            return []
        if isinstance(body, ev.BlockDelta):
            return self._said(block, block.grow(body))
        if isinstance(body, ev.BlockAnnotated):
            block.cite(body)
            return []
        del self._blocks[body.message_id, body.block]
        return [*self._said(block, block.rest()), *self._seal(source, block, body)]

    def _said(self, block: GrowingBlock, text: str) -> Chunks:
        if not text or not block.ref:
            return []
        if block.kind in _CALLS:
            return [{"type": "tool-input-delta", "toolCallId": block.ref, "inputTextDelta": text}]
        kind = "reasoning" if block.kind == "reasoning" else "text"
        return [{"type": f"{kind}-delta", "id": block.ref, "delta": text}]

    def _seal(self, source: _Source, block: GrowingBlock, body: ev.BlockSealed) -> Chunks:
        whole = block.sealed(body)
        if block.kind == "server_tool_result":
            return self._answer_by_provider(source, whole)
        if block.kind in _CALLS:
            call = self._calls[block.ref]
            if body.tool_call_id is not None:
                self._refs.begin(body.tool_call_id, body.message_id, block.ref)
            call.block = replace(whole, tool_call_id=block.ref, approval=call.block.approval)
            call.part = block.known or _written(source, call.block)
            is_waiting = block.known is None and "input" not in call.part
            call.is_broken = is_waiting
            return [] if is_waiting else [tool_input(call.part)]
        part = block.known or _written(source, whole)
        if not part:
            return []
        if block.ref:
            return [text_end(part, block.ref)]
        chunks = [] if block.known is not None else self._enter(source)
        chunks += self._whole(part)
        self._parts += 1
        return chunks

    def _whole(self, part: dict[str, Any]) -> Chunks:
        """A part that comes whole; reasoning that nobody may read has no text."""
        if part["type"] == "reasoning":
            ref = part.get("id", f"reasoning-{self._parts}")
            return [{"type": "reasoning-start", "id": ref}, text_end(part, ref)]
        return [part] if is_chunk(part) else []

    def _answer(self, body: ev.ToolResult) -> Chunks:
        body = replace(body, tool_call_id=self._refs.answer(body.tool_call_id))
        call = self._calls.get(body.tool_call_id)
        if call is None or (call.status not in (None, *_NO_TRUTH)):
            return []
        call.status = body.status
        self._is_mixed = self._is_mixed or not call.in_step
        part = call.part
        if not call.block_is_known:
            path = [one_block(body.run_id, f"{body.message_id}/", replace(call.block, sealed=True)), one_result(body)]
            part = write(path).payload[0]["parts"][-1]
        chunks = self._told(call, part)
        if call.is_broken:
            call.is_broken = False
            chunks.append(tool_input(part))
            if part["state"] == "output-error":
                return chunks
        said = output(part)
        return [*chunks, said] if said is not None else chunks

    def _answer_by_provider(self, source: _Source, result: Block) -> Chunks:
        ref = self._refs.answer(result.tool_call_id or "")
        call, result = self._calls.get(ref), replace(result, tool_call_id=ref)
        if call is None:
            return []
        part = call.part
        if not call.block_is_known:
            message = replace(one_block(source.run_id, source.id, call.block), blocks=(call.block, result))
            part = next(part for part in write([message]).payload[0]["parts"] if is_tool(part))
        said = output(part)
        return [] if said is None else [said | {"providerExecuted": True}]

    def _ask(self, body: ev.ToolApproval) -> Chunks:
        body = replace(body, tool_call_id=self._refs.find(body.tool_call_id))
        call = self._calls.get(body.tool_call_id)
        if call is None:
            return []
        if call.block_is_known:
            return asked(call.part)
        call.block = replace(call.block, approval=dump({"approval_id": body.approval_id, "approved": body.approved}))
        given = {} if body.approved is None else {"approved": body.approved}
        return self._told(call, {"toolCallId": body.tool_call_id, "approval": {"id": body.approval_id} | given})

    def _told(self, call: _Call, part: dict[str, Any]) -> Chunks:
        """What of an approval has not gone out yet."""
        if call.block_is_known:
            return []
        chunks = [chunk for chunk in asked(part) if (chunk["type"], chunk["approvalId"]) not in call.told]
        call.told |= {(chunk["type"], chunk["approvalId"]) for chunk in chunks}
        return chunks

    def _enter(self, source: _Source) -> Chunks:
        """A message is a step, unless parts of another one are open: the end of a step would end them."""
        if source.has_step or source.is_known:
            return []
        source.has_step = True
        others = any(block.ref and block.head.message_id != source.id for block in self._blocks.values())
        return [] if others and self._in_step else self._begin_step()

    def _begin_step(self) -> Chunks:
        chunks = self._end_step()
        self._in_step = True
        self._steps_since += 1
        self._parts += 1
        return [*chunks, {"type": "start-step"}]

    def _end_step(self) -> Chunks:
        chunks: Chunks = []
        for call in self._calls.values():
            if call.is_broken:
                chunks.append(tool_input(call.part))
            call.is_broken = call.in_step = False
        chunks += [{"type": "finish-step"}] if self._in_step else []
        self._in_step = False
        return chunks

    def _leave(self, source: _Source) -> Chunks:
        del self._messages[source.id]
        self._blocks = {place: block for place, block in self._blocks.items() if place[0] != source.id}
        return []


class _Source:
    """A message of the run, and the parts it becomes where they are known."""

    def __init__(self, message_id: str, run_id: str, parts: Iterator[dict[str, Any]] | None) -> None:
        self.id, self.run_id, self._parts = message_id, run_id, parts
        self.is_known = parts is not None
        self.has_step = False
        self.seen: set[int] = set()

    def next(self) -> dict[str, Any] | None:
        """The part that comes, where it is known."""
        return None if self._parts is None else next(self._parts, None)


class _Call:
    """A call of the run: its block and its part, as far as they are known. `told`: what has gone out of its approval."""

    def __init__(self, block: GrowingBlock, part: dict[str, Any]) -> None:
        head = block.head
        self.block = Block(head.kind, name=head.name, tool_call_id=block.ref, provider_ref=head.provider_ref, parse="ok")
        self.block_is_known = block.known is not None
        self.message_id = head.message_id
        self.part = part
        self.is_broken = False
        self.in_step = True
        self.status: str | None = None
        self.told: set[tuple[str, str]] = set()


def _begun(block: GrowingBlock) -> dict[str, Any]:
    """The part of a call that begins."""
    dynamic = block.head.provider_ref == DYNAMIC
    named = {"type": DYNAMIC, "toolName": block.name} if dynamic else {"type": f"{TOOL}{block.name}"}
    by_provider = {"providerExecuted": True} if block.kind == "server_tool_call" else {}
    return named | {"toolCallId": block.ref, "state": "input-streaming"} | by_provider


def _written(source: _Source, block: Block) -> dict[str, Any]:
    """The part that a whole block becomes; empty where the AI SDK has no form for it."""
    written = write([one_block(source.run_id, source.id, block)]).payload
    part: dict[str, Any] = written[0]["parts"][-1] if written else {}
    return part
