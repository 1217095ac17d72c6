"""A path as a provider or another program takes it, with its media, and with what was lost or mended on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from ledger.errors import LedgerDamaged, UnknownMedia
from ledger.tables.media import get_media
from ledger.transcript import read_transcript
from projector import Message
from projector.formats import STREAM_WRITERS, WRITERS, Export, write_stream
from projector.formats.outgoing.metadata import leftovers
from projector.formats.registry import NAMED
from projector.formats.shared.history import Loss
from projector.formats.shared.media_refs import attach, names_of
from stream.checks import check_kind, check_list, shown
from stream.limits import check_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ledger.engine import Engine


async def export(
    engine: Engine,
    conversation: str,
    format_name: str,
    *,
    selections: Mapping[str, str] | None,
    messages: Sequence[Message] | None,
) -> Export:
    """See `Ledger.export`."""
    check_id("conversation id", conversation)
    if format_name not in (formats := (*WRITERS, *STREAM_WRITERS)):
        raise ValueError(f"format {shown(format_name)} is no format to export to: use one of {', '.join(formats)}")
    for number, message in enumerate(check_list("messages", messages, "Messages") if messages is not None else ()):
        check_kind(f"messages[{number}]", message, Message, "a Message")
    path = await read_transcript(engine, conversation, selections=selections) if messages is None else messages
    whole, missing = await with_media(engine, conversation, path)
    written = WRITERS[format_name](whole) if format_name in WRITERS else write_stream(whole, format_name)
    name = format_name.removesuffix("-stream")
    return replace(written, losses=(*missing, *written.losses, *leftovers(whole, NAMED[name])))


class Whole(NamedTuple):
    """Messages with the bytes of their media, and which are not there."""

    messages: list[Message]
    missing: list[Loss]


async def with_media(engine: Engine, conversation: str, messages: Sequence[Message]) -> Whole:
    """Puts the bytes of media in from the store."""
    named = names_of(messages)
    found: dict[str, bytes] = {}
    missing: list[Loss] = []
    own = set(await engine.tables.media_of(conversation)) if named else ()  # who writes another's name gets nothing of it
    for media_id in named:
        try:
            if media_id not in own:
                raise UnknownMedia(media_id)
            found[media_id] = (await get_media(engine.tables, media_id)).data
        except (UnknownMedia, LedgerDamaged) as error:
            missing.append(Loss(str(error)))
    return Whole([attach(message, found.get) for message in messages], missing)
