"""The command `export`: conversations as Tailfold JSONL, or as a provider or program takes them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from ledger.admin.export_format import Chosen, choose_format
from ledger.admin.failures import Failed, as_failed, end, export_each
from ledger.admin.options import All, AsJson, OneOrAll, ProblemsFound, check_one_or_all, named_path, require, with_ledger
from ledger.admin.output import counted, print_json, print_line, print_warning, progress
from ledger.admin.rendering import render
from ledger.errors import UnknownMedia
from ledger.kinds import is_reserved
from ledger.tables.holds import hold
from ledger.transfer.formats import MESSAGES, TAILFOLD
from ledger.transfer.jsonl import event_line, header_line, media_line
from ledger.transfer.sinks import open_sink
from projector.events import MediaAdded, read_body
from projector.formats import STREAM_WRITERS, WRITERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ledger.ledger import Ledger
    from stream import Event

Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", help="The file to make; gzipped where its name ends in .gz.", parser=named_path, metavar="PATH"
    ),
]
_FORMATS: Final = (TAILFOLD, MESSAGES, *WRITERS, *STREAM_WRITERS)
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        help=f"The format: {', '.join(_FORMATS)}. Without it {TAILFOLD}, and {MESSAGES} where a part of a log is gone.",
        metavar="FORMAT",
        autocompletion=lambda: list(_FORMATS),
    ),
]
_PAGE_EVENTS: Final = 1000
_ONLY_OWNER: Final = 0o600  # what was said is nobody else's


class Exported(msgspec.Struct, frozen=True):
    """Events `floor + 1` to `head` of a conversation; `missing_media` were added once and are no longer there."""

    conversation: str
    floor: int
    origin: int
    head: int
    events: int
    media: int
    missing_media: list[str]
    is_whole: bool


def export(
    context: typer.Context,
    conversation: OneOrAll = None,
    is_all: All = False,  # noqa: FBT002 - a flag
    output: Output = None,
    format_name: Format = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Write the events of conversations as JSON lines, from which `import` makes the same log again.

    Where `compact` has let a part of the log go, it is written what the ledger keeps, as tailfold-messages, and standard error
    says so; `import` takes that in, too. In another format it is the active path that is written, such as its provider takes
    it, and what was lost or mended is told on standard error.
    """
    check_one_or_all(conversation, is_all=is_all)
    if format_name not in (None, *_FORMATS):
        raise ValueError(f"{format_name!r} is no format to export to: use one of {', '.join(_FORMATS)}")

    async def job(ledger: Ledger) -> None:
        chosen = Chosen(format_name) if format_name is not None else await choose_format(ledger, conversation)
        if chosen.name == TAILFOLD:
            await _export(ledger, conversation, output, as_json=as_json)
        else:
            await render(ledger, conversation, chosen.name, output, as_json=as_json)
        if chosen.is_short:
            raise ProblemsFound

    with_ledger(context, job, only_looks=True)


async def _export(ledger: Ledger, conversation: str | None, output: Path | None, *, as_json: bool) -> None:
    failed: list[Failed] = []

    async def one(name: str, write: Callable[[str], Any]) -> Exported:
        return await _export_one(ledger, name, write, is_shown=output is not None)

    if conversation is not None:
        await require(ledger, conversation)
    with open_sink(output) as write:
        if conversation is not None:
            done = [await one(conversation, write)]
        else:
            there = [info.stream_id async for info in ledger.store.streams()]
            names = [name for name in there if not is_reserved(name)]  # are no conversations, and no import takes them
            done = await export_each(names, write, one, failed)
    if output is not None and as_json:
        told = [msgspec.to_builtins(exported) for exported in done]
        print_json({"output": str(output), "conversations": told} | as_failed(failed))
    elif output is not None:
        events = sum(exported.events for exported in done)
        print_line(f"{output}: {counted(events, 'event')} of {counted(len(done), 'conversation')}")
    faults = [fault for exported in done for fault in _faults(exported)]
    for fault in faults if output is None or not as_json else ():
        print_warning(fault) if output is None else print_line(fault)
    end(failed)
    if faults:
        raise ProblemsFound


async def _export_one(ledger: Ledger, conversation: str, write: Callable[[str], Any], *, is_shown: bool) -> Exported:
    media: dict[str, bool] = {}
    async with hold(ledger.tables, conversation, 0):  # or a compaction could overtake it
        bounds = await ledger.store.bounds(conversation)
        write(header_line(conversation, bounds))
        seq = bounds.floor
        with progress(f"exporting {conversation}", bounds.head - bounds.floor, is_shown=is_shown) as advance:
            while seq < bounds.head:
                events = await ledger.store.read(conversation, after=seq, limit=min(_PAGE_EVENTS, bounds.head - seq))
                for event in events:
                    if event.type == MediaAdded.TYPE:
                        await _export_media(ledger, event, write, media)
                    write(event_line(event))
                seq += len(events)
                advance(len(events))
    missing = [media_id for media_id, is_there in media.items() if not is_there]
    is_whole = bounds.floor == bounds.origin and not missing
    numbers = (bounds.floor, bounds.origin, bounds.head, bounds.head - bounds.floor)
    return Exported(conversation, *numbers, len(media) - len(missing), missing, is_whole)


async def _export_media(ledger: Ledger, event: Event, write: Callable[[str], Any], known: dict[str, bool]) -> None:
    """Once for each content, ahead of the first event that speaks of it."""
    try:
        body = read_body(event.type, event.data)
    except ValueError:
        return
    if isinstance(body, MediaAdded) and body.media_id not in known:
        try:
            write(media_line(await ledger.media(body.media_id)))
            known[body.media_id] = True
        except UnknownMedia:
            known[body.media_id] = False


def _faults(exported: Exported) -> Iterator[str]:
    of = f"conversation {exported.conversation!r}"
    if exported.floor > exported.origin:
        held = f"{exported.floor + 1} to {exported.head}" if exported.events else "none"
        yield (
            f"{of}: events {exported.origin + 1} to {exported.floor} are gone from its log, the export holds {held}: "
            f"--format {MESSAGES} writes what the ledger keeps of them"
        )
    for media_id in exported.missing_media:
        yield f"{of}: media {media_id} is not in the database, the export holds only its name"
