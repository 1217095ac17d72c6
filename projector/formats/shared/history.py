"""Histories that are taken in: messages as a format has them, and the runs of events they become.

A reader of a format makes `HistoryMessage`s; everything else is done here, alike for all. Ids are derived from the source and
the position in it, so the same input gives the same events.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import msgspec
from msgspec.structs import replace

from projector import events as ev
from projector.json_text import JsonText, decode, dump, join_fields, raw
from projector.message import Block
from projector.run_draft import Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

BEFORE: Final = -1
"""A draft's parent: the draft before it."""
_ID_BYTES: Final = 12


class Loss(msgspec.Struct, frozen=True):
    """Something that a format can't express, or that was left out: what, and where."""

    what: str
    message_id: str | None = None
    block: int | None = None


class HistoryMessage(msgspec.Struct, frozen=True):
    """A message of a history. `parent` is the place of another draft in it, None for a root.

    Times in ms. `metadata` maps names to JSON text. `ends_run` closes the run behind it (an error, an abort);
    `usage` is that of the request which gave this message.
    """

    role: ev.Role
    blocks: tuple[Block, ...]
    parent: int | None = BEFORE
    status: ev.MessageStatus = "complete"
    name: str | None = None
    provider_ref: str | None = None
    created_at: int | None = None
    metadata: dict[str, JsonText] = {}
    usage: Usage | None = None
    model: str | None = None
    provider: str | None = None
    ends_run: ev.Outcome | None = None
    finish_reason: str | None = None
    error: JsonText | None = None


class History(msgspec.Struct, frozen=True):
    """A conversation of a file: `name` is its id there, if it has one."""

    drafts: tuple[HistoryMessage, ...]
    name: str | None = None
    title: str | None = None
    metadata: dict[str, JsonText] = {}
    losses: tuple[Loss, ...] = ()


class ImportedRun(msgspec.Struct, frozen=True):
    """A run as its events. Message ids are those of its messages in order."""

    run_id: str
    bodies: tuple[ev.Body, ...]
    message_ids: tuple[str, ...]


def runs_of(history: History, source: str) -> Iterator[ImportedRun]:
    """The runs of a history, in its order: one begins with each user's message, and where the line breaks.

    `source` names where the history comes from: the same one gives the same ids.
    """
    ids: list[str] = []
    for first, drafts in split_runs(hang(history.drafts)):
        run_id = run_id_of(source, first)
        parent = drafts[0].parent
        at = (ids[-1] if ids else None) if parent == BEFORE else None if parent is None else ids[parent]
        made = run_of(run_id, at, drafts)
        ids += made.message_ids
        yield made


def run_id_of(source: str, first: int | str) -> str:
    """The id of a run that begins at a place of a source."""
    return hashlib.sha256(f"{source}\0{first}".encode("utf-8", "surrogatepass")).hexdigest()[: 2 * _ID_BYTES]


def run_of(run_id: str, parent: str | None, drafts: Sequence[HistoryMessage]) -> ImportedRun:
    """One run of these messages, each behind the one before it, the first behind `parent`."""
    own = tuple(f"{run_id}.{number}" for number in range(1, len(drafts) + 1))
    return ImportedRun(run_id, tuple(_bodies(run_id, parent, drafts, own)), own)


def hang(drafts: Sequence[HistoryMessage]) -> tuple[HistoryMessage, ...]:
    """The drafts, none of them behind a message that its run will not leave.

    A message without content is left out when its run ends, and so is an unfinished one of a failed run; what follows
    such a message in another run hangs behind the one before it.
    """
    stands: list[int | None] = []
    hung: list[HistoryMessage] = []
    for at, draft in enumerate(drafts):
        parent = (at - 1 if at else None) if draft.parent == BEFORE else draft.parent
        standing = None if parent is None else stands[parent]
        stands.append(standing if is_left_out(draft) else at)
        hung.append(draft if standing == parent else replace(draft, parent=standing))
    return tuple(hung)


def is_left_out(draft: HistoryMessage) -> bool:
    """Whether the end of its run leaves nothing of a message."""
    return (draft.status == "partial" and draft.ends_run == "failed") or is_empty(draft)


def is_empty(draft: HistoryMessage) -> bool:
    """Whether a message says nothing."""
    empty = ("text", "reasoning")
    return all(block.kind in empty and not (block.text or block.fields or block.signature) for block in draft.blocks)


def split_runs(drafts: Sequence[HistoryMessage]) -> Iterator[tuple[int, Sequence[HistoryMessage]]]:
    """The drafts of each run, and the place of its first."""
    first = 0
    for at in range(1, len(drafts) + 1):
        if at == len(drafts) or _begins_run(drafts, at):
            yield first, drafts[first:at]
            first = at


def _begins_run(drafts: Sequence[HistoryMessage], at: int) -> bool:
    draft, before = drafts[at], drafts[at - 1]
    if before.ends_run is not None or draft.parent not in (BEFORE, at - 1):
        return True
    return draft.role == "user" and before.role not in ("user", "system", "developer")


def _bodies(run_id: str, parent: str | None, drafts: Sequence[HistoryMessage], ids: Sequence[str]) -> Iterator[ev.Body]:
    model = next((draft.model for draft in drafts if draft.model), None)
    provider = next((draft.provider for draft in drafts if draft.provider), None)
    yield ev.RunStarted(run_id, parent, "submit", run_id, model, provider, drafts[0].created_at)
    prompts = 0
    for draft, message_id in zip(drafts, ids, strict=True):
        if draft.role == "assistant":  # what a model said is the answer to a prompt
            prompts += 1
            yield ev.RunStep(run_id, prompts, "started")
        yield from message_bodies(run_id, message_id, draft)
        if draft.role == "assistant":
            yield ev.RunStep(run_id, prompts, "finished")
    last = drafts[-1]
    yield ev.RunFinished(run_id, last.ends_run or "completed", last.finish_reason, raw(last.error))


def message_bodies(
    run_id: str, message_id: str, draft: HistoryMessage, numbers: Sequence[int] | None = None
) -> Iterator[ev.Body]:
    """The events of one message; `numbers` are those that its blocks had, else they are numbered anew."""
    results = [block for block in draft.blocks if block.kind == "tool_result"]
    if draft.role == "tool" and len(results) == len(draft.blocks) == 1:
        [result] = results
        status, parts = cast("ev.ToolStatus", result.status or "ok"), raw(result.parts or "[]")
        yield ev.ToolResult(run_id, message_id, result.tool_call_id or "", status, parts, draft.created_at)
    else:
        started = ev.MessageStarted(run_id, message_id, draft.role, draft.name, draft.provider_ref, draft.created_at)
        yield started
        for number, block in zip(numbers or range(len(draft.blocks)), draft.blocks, strict=True):
            yield from _block_bodies(message_id, number, block)
        if draft.status == "complete":
            yield ev.MessageFinished(message_id, "complete")
    if draft.metadata:
        yield ev.MessageAnnotated(message_id, raw(join_fields(draft.metadata)))
    if draft.usage is not None:
        yield usage_body(run_id, draft.provider_ref or message_id, draft.usage)


def usage_body(run_id: str, request_id: str, used: Usage) -> ev.RunUsage:
    """The event that tells what a request used."""
    numbers = used.input, used.output, used.cached, used.cache_write, used.reasoning
    return ev.RunUsage(run_id, request_id, *numbers, raw(used.raw))


def _block_bodies(message_id: str, number: int, block: Block) -> Iterator[ev.Body]:
    kind = cast("ev.Kind", block.kind)
    yield ev.BlockStarted(message_id, number, kind, block.name, block.tool_call_id, block.media_type, block.provider_ref)
    if block.text:
        yield ev.BlockDelta(message_id, number, block.text)
    for name, text in block.fields.items():
        yield ev.BlockDelta(message_id, number, text, name)
    for citation in block.citations:
        yield ev.BlockAnnotated(message_id, number, raw(citation))
    if block.sealed:
        parse = cast('Literal["ok", "bad"] | None', block.parse)
        yield ev.BlockSealed(message_id, number, block.signature, raw(block.opaque), raw(block.input_text), parse)
    if block.approval is not None and block.tool_call_id is not None:
        asked: dict[str, Any] = decode(block.approval)
        yield ev.ToolApproval(block.tool_call_id, str(asked.get("approval_id", "")), asked.get("approved"))


def text_block(text: str) -> Block:
    """A whole block of text."""
    return Block("text", text=text, sealed=True)


def call_block(name: str, tool_call_id: str | None, arguments: str, *, is_json: bool) -> Block:
    """A whole tool call; `arguments` are its text, as the provider or program wrote it."""
    return Block(
        "tool_call", text=arguments, sealed=True, name=name, tool_call_id=tool_call_id, parse="ok" if is_json else "bad"
    )


def result_draft(tool_call_id: str, parts: JsonText, *, status: str = "ok", created_at: int | None = None) -> HistoryMessage:
    """A tool's result as a message of its own; `parts` is a JSON array as text."""
    block = Block("tool_result", sealed=True, tool_call_id=tool_call_id, status=status, parts=parts)
    return HistoryMessage("tool", (block,), created_at=created_at)


def text_parts(text: str) -> JsonText:
    """Text as the parts of a tool's result."""
    return dump([{"kind": "text", "text": text}])


def count_messages(histories: Iterable[History]) -> int:
    """How many messages there are."""
    return sum(len(history.drafts) for history in histories)
