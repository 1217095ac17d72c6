"""What the writers of live streams have in common: the body of an event, a block while it grows, how a run ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from projector import events as ev
from projector.formats.format import StreamEnd
from projector.formats.outgoing.unicode import REPLACEMENT, mend_text
from projector.json_text import InvalidJson, JsonText, decode, plain, raw, split, text_of
from projector.message import Block, Message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from projector.run_draft import MessageDraft, RunDraft
    from stream import Event, NewEvent

SAID: Final = ("text", "refusal", "reasoning")
_RECOVERED: Final = {"commit": "incomplete", "fail": "failed", "cancel": "cancelled"}


class Custom(NamedTuple):
    """What a program tells those who follow: an event of the type `custom`."""

    name: str
    value: Any


class GrowingBlock:
    """A block between its start and its seal; of text that has gone out only whether there was any.

    `ref` is what the format calls it. What goes out is well-formed: a lone surrogate becomes U+FFFD, and the first
    half of a pair waits for the second.
    """

    def __init__(self, body: ev.BlockStarted, ref: str = "") -> None:
        self.head, self.ref, self.kind = body, ref, body.kind
        self.name = mend_text(body.name or "", refuse_nul=False)[0]
        self.known: Any = None
        """What the format makes of the whole block, if that is known beforehand."""
        self.citations: list[JsonText] = []
        self.has_text = False
        self._half = ""
        self._text: list[str] = []
        self._fields: dict[str, list[str]] = {}

    def grow(self, body: ev.BlockDelta) -> str:
        """Takes a delta in; what of it goes out now."""
        if body.field is not None:
            self._fields.setdefault(body.field, []).append(body.text)
            return ""
        self.has_text = self.has_text or bool(body.text)
        if self.kind not in SAID:
            self._text.append(body.text)
        text = self._half + body.text
        waits = "\ud800" <= text[-1:] <= "\udbff"
        self._half, text = (text[-1], text[:-1]) if waits else ("", text)
        return mend_text(text, refuse_nul=False)[0]

    def cite(self, body: ev.BlockAnnotated) -> None:
        """Takes a citation in."""
        self.citations.append(text_of(body.citation) or "null")

    def rest(self) -> str:
        """What was waiting for its second half, which does not come."""
        rest, self._half = self._half and REPLACEMENT, ""
        return rest

    def sealed(self, body: ev.BlockSealed) -> Block:
        """The whole block; for text only what stands beside it."""
        head = self.head
        text = "x" if self.kind in SAID and self.has_text else "".join(self._text) if body.text is None else body.text
        return Block(
            kind=head.kind, number=head.block, text=text, sealed=True, name=body.name or head.name,
            tool_call_id=body.tool_call_id or head.tool_call_id,
            media_type=head.media_type, provider_ref=head.provider_ref, signature=body.signature,
            fields={name: "".join(pieces) for name, pieces in self._fields.items()}, opaque=text_of(body.opaque),
            input_text=text_of(body.input), parse=body.parse, citations=tuple(self.citations),
        )  # fmt: skip


def body_of(event: ev.Body | Event | NewEvent) -> ev.Body | Custom | None:
    """The body of an event of the log; None for a type that nobody knows and for what can't be read."""
    if isinstance(event, ev.Body):
        return event
    try:
        if event.type == "custom":
            fields = split(event.data)
            return Custom(str(decode(fields["name"])), plain(fields["value"]))
        return ev.read_body(event.type, event.data)
    except (InvalidJson, KeyError):
        return None


def end_of(body: ev.RunFinished | ev.RunRecovered) -> StreamEnd:
    """How a run ended; the error as text that can be shown."""
    if isinstance(body, ev.RunRecovered):
        return StreamEnd(_RECOVERED[body.action], error="the run was given up")
    return StreamEnd(body.outcome, body.finish_reason, _shown(text_of(body.error)))


def one_block(run_id: str, message_id: str, block: Block) -> Message:
    """A message of the assistant that is this block, for the writer of whole messages."""
    return Message(message_id, None, run_id, "assistant", "complete", (block,), 0, 0)


def one_result(body: ev.ToolResult) -> Message:
    """A tool's result as a message."""
    block = Block("tool_result", sealed=True, tool_call_id=body.tool_call_id, status=body.status, parts=text_of(body.parts))
    return Message(body.message_id, None, body.run_id, "tool", "complete", (block,), 0, 0)


def bodies_so_far(run: RunDraft) -> Iterator[ev.Body]:
    """The events that lead to a run as it stands, each block's text in one; those of its messages in their order.

    Of its steps only the newest, and a pause where it is paused.
    """
    yield ev.RunStarted(run.run_id, run.parent_message_id, run.trigger, run.run_id, run.model, run.provider, run.started_at)
    step = run.step
    for draft in drafts_in_order(run):
        if step is not None and draft.seq > step[1]:
            yield ev.RunStep(run.run_id, step[0], "started")
            step = None
        yield from _of_message(run, draft)
    if step is not None:
        yield ev.RunStep(run.run_id, step[0], "started")
    if run.step is not None and run.is_step_over:  # it may be taken back all the same
        yield ev.RunStep(run.run_id, run.step[0], "finished")
    for request_id, used in run.usage.items():
        yield ev.RunUsage(run.run_id, request_id, used.input, used.output, used.cached, used.cache_write, used.reasoning)
    if run.paused:
        yield ev.RunPaused(run.run_id, raw(run.interrupts))


def drafts_in_order(run: RunDraft) -> list[MessageDraft]:
    """The messages of a run in the order in which they began."""
    return sorted([*run.live.values(), *(draft for _, draft in run.done.items())], key=lambda draft: draft.seq)


def _of_message(run: RunDraft, draft: MessageDraft) -> Iterator[ev.Body]:
    sealed = {number: block for number, (_, block) in draft.sealed.items()}
    results = [block for block in sealed.values() if block.kind == "tool_result"]
    if draft.role == "tool" and results:
        result, *_ = results
        status: Any = result.status
        parts = raw(result.parts or "[]")
        yield ev.ToolResult(run.run_id, draft.id, result.tool_call_id or "", status, parts)
        return
    role: Any = draft.role
    yield ev.MessageStarted(run.run_id, draft.id, role, draft.name, draft.provider_ref, draft.created_at)
    growing = {number: (block.head, str(block.text), block.fields) for number, block in draft.live.items()}
    whole = {number: (block, block.text, block.fields) for number, block in sealed.items()}
    for number, (block, text, fields) in sorted((growing | whole).items()):
        kind: Any = block.kind
        yield ev.BlockStarted(draft.id, number, kind, block.name, block.tool_call_id, block.media_type, block.provider_ref)
        if text:
            yield ev.BlockDelta(draft.id, number, text)
        for name, piece in fields.items():
            yield ev.BlockDelta(draft.id, number, str(piece), name)
        for citation in block.citations:
            yield ev.BlockAnnotated(draft.id, number, raw(citation))
        if number in sealed:
            parse: Any = block.parse
            yield ev.BlockSealed(draft.id, number, block.signature, raw(block.opaque), raw(block.input_text), parse)
        if block.approval is not None and block.tool_call_id is not None:
            asked = decode(block.approval)
            yield ev.ToolApproval(block.tool_call_id, str(asked.get("approval_id", "")), asked.get("approved"))
    if draft.status is not None:
        status = draft.status
        yield ev.MessageFinished(draft.id, status)


def _shown(error: JsonText | None) -> str | None:
    given = plain(error) if error else None
    said = given.get("message") if isinstance(given, dict) else given
    return said if isinstance(said, str) else error
