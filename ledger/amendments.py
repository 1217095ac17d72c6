"""What is noted of a conversation beside its runs: other branches, metadata, redactions, titles, media."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledger.checks import check_blocks, check_labels, check_patch
from ledger.errors import UnknownMessage
from ledger.kinds import check_conversation_id
from ledger.tables.media import put_media
from projector import events as ev
from projector.context.retention import POLICY
from projector.json_text import dump, join_fields, raw
from projector.validation import validate
from stream.checks import check_flag, check_kind, check_name, check_text
from stream.limits import check_events, check_id, check_position

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ledger.engine import Engine
    from projector import Block
    from stream import AppendResult, NewEvent


async def record(
    engine: Engine, conversation: str, events: Sequence[NewEvent], *, expected_seq: int | None, append_id: str | None = None
) -> AppendResult:
    """See `Ledger.record`."""
    check_conversation_id(conversation)
    check_events(events)
    if expected_seq is not None:
        check_position("expected_seq", expected_seq)
    validate(events)
    while True:
        result = await engine.store.append(conversation, events, expected_seq=expected_seq, append_id=append_id)
        if not events or await engine.stays(conversation, result.last_seq):
            return result


async def select(engine: Engine, conversation: str, message_id: str) -> None:
    """See `Ledger.select`."""
    await _amend(engine, conversation, message_id, ev.BranchSelected(message_id))


async def annotate(engine: Engine, conversation: str, message_id: str, patch: Mapping[str, Any]) -> None:
    """See `Ledger.annotate`."""
    body = ev.MessageAnnotated(message_id, raw(join_fields(check_patch("patch", patch))))
    await _amend(engine, conversation, message_id, body, is_open_enough=True)


async def redact(engine: Engine, conversation: str, message_id: str, blocks: Sequence[Block], *, reason: str | None) -> None:
    """See `Ledger.redact`."""
    text = check_blocks("blocks", blocks)
    if reason is not None:
        check_text("reason", reason)
    await _require_message(engine, conversation, message_id, is_open_enough=True)
    message = await engine.tables.message(conversation, message_id)
    if message is not None and POLICY in message.metadata_text:
        await annotate(engine, conversation, message_id, {POLICY: None})
    await _amend(engine, conversation, message_id, ev.MessageRedacted(message_id, raw(text), reason), is_open_enough=True)


async def describe(
    engine: Engine,
    conversation: str,
    *,
    title: str | None,
    metadata: Mapping[str, Any] | None,
    labels: Sequence[str] | None,
    archived: bool | None,
) -> None:
    """See `Ledger.describe`."""
    check_conversation_id(conversation)
    if title is not None:
        check_text("title", title)
    fields = {} if metadata is None else check_patch("metadata", metadata)
    if labels is not None:
        fields["labels"] = dump(check_labels("labels", labels))
    if archived is not None:
        check_flag("archived", archived)
    stays = False
    while not stays and (title is not None or fields):
        is_new = (await engine.store.bounds(conversation)).head == 0
        body = ev.ConversationCreated if is_new else ev.ConversationUpdated
        stays = await engine.note(conversation, body(title, raw(join_fields(fields) if fields else None)))
    while archived is not None and not await engine.note(conversation, ev.ConversationArchived(archived)):
        pass


async def add_media(engine: Engine, conversation: str, data: bytes, media_type: str) -> str:
    """See `Ledger.add_media`."""
    check_conversation_id(conversation)
    check_kind("data", data, bytes, "bytes")
    check_name("media_type", media_type)
    while True:
        media_id = await put_media(engine.tables, conversation, data, media_type)
        stays = await engine.note(conversation, ev.MediaAdded(media_id, media_type, len(data)))
        if stays and media_id in await engine.tables.media_of(conversation):  # or they were erased between the two
            return media_id


async def _amend(engine: Engine, conversation: str, message_id: str, body: ev.Body, *, is_open_enough: bool = False) -> None:
    """Where an erasure takes it away, the message is gone, and the caller told."""
    while True:
        await _require_message(engine, conversation, message_id, is_open_enough=is_open_enough)
        if await engine.note(conversation, body):
            return


async def _require_message(engine: Engine, conversation: str, message_id: str, *, is_open_enough: bool = False) -> None:
    check_id("message_id", message_id)
    state = (await engine.require(conversation)).state
    if is_open_enough and any(run.find(message_id) for run in state.open.values()):
        return
    if await engine.tables.message(conversation, message_id, on_path=not is_open_enough) is None:
        raise UnknownMessage(conversation, message_id)
