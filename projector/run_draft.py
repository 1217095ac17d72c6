"""Runs that are under way: how each event changes one, as values that are never changed in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from projector.events import MessageAnnotated, MessageRedacted, MessageStatus, Role
from projector.json_text import InvalidJson, JsonText, dump, split, text_of
from projector.message import CALLS, Block, Unknown, read_blocks
from projector.persistent import GrowingList, GrowingTable, GrowingText

if TYPE_CHECKING:
    from collections.abc import Collection

    from projector import events


class Anomaly(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An event that could not be applied and changed nothing, or one that says something else than those before it."""

    seq: int
    why: str
    is_applied: bool = False
    """Whether it counts all the same."""


class Refused(Exception):
    """Why an event can't be applied; it never leaves the fold, which makes an `Anomaly` of it."""


class Usage(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Tokens of one request, as totals; `raw` is what the provider said."""

    input: int | None = None
    output: int | None = None
    cached: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    raw: JsonText | None = None


class BlockDraft(msgspec.Struct, frozen=True, gc=False):
    """A block that is not sealed. `seq` is where it began."""

    seq: int
    head: Block
    text: GrowingText
    fields: dict[str, GrowingText] = {}


class MessageDraft(msgspec.Struct, frozen=True, gc=False):
    """A message of a run that is open. What is sealed is kept apart from what still grows."""

    id: str
    role: Role
    seq: int
    created_at: int
    name: str | None = None
    provider_ref: str | None = None
    status: MessageStatus | None = None
    live: dict[int, BlockDraft] = {}
    sealed: GrowingTable[int, tuple[int, Block]] = GrowingTable()
    metadata: dict[str, JsonText] = {}
    unknown: GrowingList[Unknown] = GrowingList()

    def heads(self) -> list[Block]:
        """The blocks of this message, those that still grow without their text."""
        return [block for _, (_, block) in self.sealed.items()] + [block.head for block in self.live.values()]


class RunDraft(msgspec.Struct, frozen=True, gc=False):
    """A run without an end. `seq` is that of its first event, `step` the current one and where it began.

    `prompts` are the seqs at which its steps began, `interrupts` what a person is asked while it is paused.
    """

    run_id: str
    parent_message_id: str | None
    trigger: str
    seq: int
    started_at: int
    model: str | None = None
    provider: str | None = None
    step: tuple[int, int] | None = None
    is_step_over: bool = False
    steps: int = 0
    prompts: tuple[int, ...] = ()
    cancel_requested: bool = False
    paused: bool = False
    interrupts: JsonText | None = None
    usage: dict[str, Usage] = {}
    live: dict[str, MessageDraft] = {}
    done: GrowingTable[str, MessageDraft] = GrowingTable()

    def find(self, message_id: str) -> MessageDraft | None:
        """A message of this run, finished or not."""
        return self.live.get(message_id) or self.done.get(message_id)

    def find_call(self, tool_call_id: str) -> MessageDraft | None:
        """The newest message of this run that makes this tool call."""
        drafts = (*self.live.values(), *(draft for _, draft in self.done.items()))
        calling = [draft for draft in drafts if any(is_call(block, tool_call_id) for block in draft.heads())]
        return max(calling, key=lambda draft: draft.seq, default=None)

    @property
    def is_streaming(self) -> bool:
        """Whether anything came after `run.started`."""
        return bool(self.live or self.done or self.steps or self.usage or self.cancel_requested or self.paused)

    def without(self, message_ids: Collection[str]) -> RunDraft:
        """The run without some of its messages."""
        live = {message_id: draft for message_id, draft in self.live.items() if message_id not in message_ids}
        return replace(self, live=live, done=self.done.without(message_ids)) if message_ids else self


def start_message(body: events.MessageStarted, seq: int, at: int) -> MessageDraft:
    """A message begins; its id is checked by the caller."""
    created_at = at if body.created_at is None else body.created_at
    return MessageDraft(body.message_id, body.role, seq, created_at, body.name, body.provider_ref)


def add_result(body: events.ToolResult, seq: int, at: int) -> MessageDraft:
    """A tool's result: a whole message in one event."""
    result = Block(
        kind="tool_result", sealed=True, tool_call_id=body.tool_call_id, status=body.status, parts=text_of(body.parts)
    )
    created_at = at if body.created_at is None else body.created_at
    return MessageDraft(body.message_id, "tool", seq, created_at, status="complete", sealed=GrowingTable([(0, (seq, result))]))


def start_block(draft: MessageDraft, body: events.BlockStarted, seq: int) -> MessageDraft:
    """A block begins in a message that is not finished."""
    _require_unfinished(draft)
    if body.block in draft.live or draft.sealed.get(body.block) is not None:
        raise Refused(f"block {body.block} of {body.message_id} began before")
    head = Block(
        kind=body.kind,
        number=body.block,
        name=body.name,
        tool_call_id=body.tool_call_id,
        media_type=body.media_type,
        provider_ref=body.provider_ref,
    )
    return replace(draft, live=draft.live | {body.block: BlockDraft(seq, head, GrowingText())})


def grow_block(draft: MessageDraft, body: events.BlockDelta) -> MessageDraft:
    """Text comes behind the text of an unsealed block."""
    _require_unfinished(draft)
    block = _live_block(draft, body.block)
    if body.field is None:
        grown = replace(block, text=block.text.add(body.text))
    else:
        grown = replace(block, fields=block.fields | {body.field: block.fields.get(body.field, GrowingText()).add(body.text)})
    return replace(draft, live=draft.live | {body.block: grown})


def seal_block(draft: MessageDraft, body: events.BlockSealed) -> MessageDraft:
    """A block is whole. Its end counts where it says something else than what was streamed."""
    known = draft.sealed.get(body.block)
    if known is not None and body.text is not None:
        if known[0] == draft.seq:  # no block began there: it stands in the place of what was redacted
            raise Refused(f"block {body.block} of {body.message_id} was redacted")
        return replace(draft, sealed=draft.sealed.replace(body.block, (known[0], _as_ended(known[1], body))))
    _require_unfinished(draft)
    block = _live_block(draft, body.block)
    live = {number: other for number, other in draft.live.items() if number != body.block}
    sealed = _as_ended(freeze_block(block), body)
    return replace(draft, live=live, sealed=draft.sealed.add(body.block, (block.seq, sealed)))


def differs(draft: MessageDraft, body: events.BlockSealed) -> bool:
    """Whether the end of a block says another text than what was streamed of it."""
    if body.text is None:
        return False
    live, known = draft.live.get(body.block), draft.sealed.get(body.block)
    return body.text != (str(live.text) if live is not None else known[1].text if known is not None else body.text)


def _as_ended(block: Block, body: events.BlockSealed) -> Block:
    opaque = text_of(body.opaque)
    return replace(
        block,
        text=block.text if body.text is None else body.text,
        name=block.name if body.name is None else body.name,
        tool_call_id=block.tool_call_id if body.tool_call_id is None else body.tool_call_id,
        sealed=True,
        signature=block.signature if body.signature is None else body.signature,
        opaque=block.opaque if opaque is None else opaque,
        input_text=text_of(body.input),
        parse=body.parse,
    )


def amend(draft: MessageDraft, body: events.MessageAnnotated | events.MessageRedacted | events.BlockAnnotated) -> MessageDraft:
    """Metadata is merged, a redaction replaces the blocks, a citation comes to a block, sealed or not."""
    if isinstance(body, MessageAnnotated):
        return replace(draft, metadata=draft.metadata | read_patch(body))
    if isinstance(body, MessageRedacted):
        blocks = redacted_blocks(body)
        return replace(draft, live={}, sealed=GrowingTable((block.number, (draft.seq, block)) for block in blocks))
    live = draft.live.get(body.block)
    if live is not None:
        return replace(draft, live=draft.live | {body.block: replace(live, head=cite_block(live.head, body))})
    placed = draft.sealed.get(body.block)
    if placed is None:
        raise Refused(f"block {body.block} of {body.message_id} is unknown")
    return replace(draft, sealed=draft.sealed.replace(body.block, (placed[0], cite_block(placed[1], body))))


def approve(draft: MessageDraft, body: events.ToolApproval) -> MessageDraft:
    """A human was asked about a tool call of this message, or has answered."""
    live = {number: replace(block, head=approve_block(block.head, body)) for number, block in draft.live.items()}
    sealed = draft.sealed
    for number, (seq, block) in draft.sealed.items():
        if is_call(block, body.tool_call_id):
            sealed = sealed.replace(number, (seq, approve_block(block, body)))
    return replace(draft, live=live, sealed=sealed)


def approve_block(block: Block, body: events.ToolApproval) -> Block:
    """The block with what is known of the approval, if it is the call in question."""
    if not is_call(block, body.tool_call_id):
        return block
    return replace(block, approval=dump({"approval_id": body.approval_id, "approved": body.approved}))


def is_call(block: Block, tool_call_id: str) -> bool:
    """Whether a block is this tool call."""
    return block.kind in CALLS and block.tool_call_id == tool_call_id


def cite_block(block: Block, body: events.BlockAnnotated) -> Block:
    """The block with one more citation."""
    return replace(block, citations=(*block.citations, text_of(body.citation) or "null"))


def finish_message(draft: MessageDraft, body: events.MessageFinished) -> MessageDraft:
    """No block comes after it."""
    _require_unfinished(draft)
    return replace(draft, status=body.status)


def take_step(run: RunDraft, body: events.RunStep, seq: int) -> RunDraft:
    """A step begins, ends, or is taken back with all that it brought."""
    if body.phase == "started":
        return replace(run, step=(body.n, seq), is_step_over=False, steps=run.steps + 1, prompts=(*run.prompts, seq))
    if run.step is None or run.step[0] != body.n:
        raise Refused(f"step {body.n} of {body.run_id} is not the current one")
    if body.phase == "finished":
        return replace(run, is_step_over=True)
    return _reset(run, since=run.step[1])


def read_usage(body: events.RunUsage) -> Usage:
    """Usage as it is kept with a run."""
    return Usage(body.input, body.output, body.cached, body.cache_write, body.reasoning, text_of(body.raw))


def read_patch(body: events.MessageAnnotated) -> dict[str, JsonText]:
    """The fields of an annotation; raises `Refused` unless they are an object."""
    try:
        return split(text_of(body.patch) or "")
    except InvalidJson as error:
        raise Refused(f"the patch is no JSON object: {error}") from error


def redacted_blocks(body: events.MessageRedacted) -> list[Block]:
    """What stands in the place of what was redacted."""
    try:
        blocks = read_blocks(text_of(body.blocks) or "")
    except InvalidJson as error:
        raise Refused(f"the blocks of the redaction are wrong: {error}") from error
    return [replace(block, sealed=True, number=number) for number, block in enumerate(blocks)]


def freeze_block(block: BlockDraft) -> Block:
    """The block with its text put together."""
    fields = {name: str(text) for name, text in block.fields.items()}
    return replace(block.head, text=str(block.text), fields=fields)


def note(draft: MessageDraft, seq: int, kind: str, unknown: dict[str, JsonText]) -> MessageDraft:
    """Unknown fields stay with the message."""
    return replace(draft, unknown=draft.unknown.add(Unknown(seq, kind, unknown))) if unknown else draft


def put(run: RunDraft, draft: MessageDraft) -> RunDraft:
    """The run with a newer form of one of its messages."""
    if draft.id not in run.live and run.done.get(draft.id) is not None:
        return replace(run, done=run.done.replace(draft.id, draft))
    if draft.status is None:
        return replace(run, live=run.live | {draft.id: draft})
    live = {message_id: other for message_id, other in run.live.items() if message_id != draft.id}
    return replace(run, live=live, done=run.done.add(draft.id, draft))


def _reset(run: RunDraft, since: int) -> RunDraft:
    """Without the blocks since then, and the messages that ended since; one that began and is open goes on under its id."""
    kept = {}
    for message_id, draft in run.live.items():
        live = {number: block for number, block in draft.live.items() if block.seq < since}
        late = [number for number, (seq, _) in draft.sealed.items() if seq > since]
        kept[message_id] = replace(draft, live=live, sealed=draft.sealed.without(late))
    gone = [message_id for message_id, draft in run.done.items() if draft.seq > since]
    return replace(run, live=kept, done=run.done.without(gone))


def _require_unfinished(draft: MessageDraft) -> None:
    if draft.status is not None:
        raise Refused(f"message {draft.id} is finished")


def _live_block(draft: MessageDraft, number: int) -> BlockDraft:
    block = draft.live.get(number)
    if block is None:
        raise Refused(f"block {number} of {draft.id} is {'sealed' if draft.sealed.get(number) else 'unknown'}")
    return block
