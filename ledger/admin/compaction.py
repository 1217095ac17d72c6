"""The commands that let the log go and keep what stands in for it: `compact`, `snapshot`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ledger.admin.long_work import LongWork, stoppable
from ledger.admin.options import All, AsJson, Conversation, OneOrAll, ProblemsFound, check_one_or_all, require, with_ledger
from ledger.admin.output import counted, is_terminal, print_json, print_line
from ledger.admin.tables import Rows, print_rows
from ledger.errors import LedgerError, NoConversation
from projector import open_runs
from projector.compaction import UNKEPT
from stream import StreamError
from stream.limits import MAX_INTEGER, check_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from ledger.ledger import Ledger
    from projector import Compaction

_NUMBERS: Final = ("floor_before", "floor", "head", "binds", "unkept")
_DropUnkept = Annotated[bool, typer.Option("--drop-unkept", help="Let go, too, what nothing but the log keeps, and count it.")]


def compact(
    context: typer.Context,
    conversation: OneOrAll = None,
    is_all: All = False,  # noqa: FBT002 - a flag
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,  # noqa: FBT002 - a flag
    replay_window: Annotated[int, typer.Option(help="Keep the last N events for clients.", min=0)] = 0,
    drop_unkept: _DropUnkept = False,  # noqa: FBT002 - a flag
    *,
    as_json: AsJson = False,
) -> None:
    """Let the log go as far as the ledger holds it; the transcript stays, and so do events of types that nobody else knows."""
    check_one_or_all(conversation, is_all=is_all)
    work = LongWork()

    async def compact_it(ledger: Ledger, name: str) -> Compaction:
        return await ledger.compact(name, replay_window=replay_window, drop_unkept=drop_unkept, dry_run=dry_run)

    async def compact_one(ledger: Ledger) -> None:
        assert conversation is not None
        done = await compact_it(ledger, conversation)
        if as_json:
            print_json({"conversation": conversation, "dry_run": dry_run} | done._asdict())
            return
        print_line(_told(done, dry_run=dry_run))

    async def compact_all(ledger: Ledger) -> None:
        names = [info.stream_id async for info in ledger.store.streams()]
        records: list[dict[str, Any]] = []
        # what is told of each is how far it has come, where that goes to the same terminal
        with work("compacting", len(names), is_shown=as_json or not is_terminal()) as advance:
            for name in names:
                record, told = await _try(compact_it(ledger, name), dry_run=dry_run)
                records.append({"conversation": name} | record)
                if not as_json:
                    print_line(f"{name}: {told}")
                advance(1)
        if as_json:
            print_json(records)
        else:
            print_line(_summary(records, dry_run=dry_run))
        if any(record["error"] is not None for record in records):
            raise ProblemsFound

    with stoppable(lambda: _where_it_stands(conversation, work, dry_run=dry_run)):
        with_ledger(context, compact_all if is_all else compact_one, only_looks=dry_run)


def snapshot(
    context: typer.Context,
    conversation: Conversation,
    save: Annotated[bool, typer.Option("--save", help="Save one of the open runs, and read it back.")] = False,  # noqa: FBT002 - a flag
    delete: Annotated[
        str | None, typer.Option(help="Drop all of a projector that is no longer used.", metavar="PROJECTOR")
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """List the snapshots of a conversation: what stands in for the part of the log that is gone."""
    if delete is not None:
        check_id("projector name", delete)
    if delete == open_runs.name:
        raise ValueError(f"{delete!r} is in use: only a projector that is no longer used is dropped")

    async def job(ledger: Ledger) -> None:
        await require(ledger, conversation)
        snapshots = ledger.store.snapshots
        if delete is not None:
            there = {info.projector for info in await snapshots.list(conversation)}
            if delete not in there:
                named = ", ".join(sorted(there)) or "none at all"
                raise ValueError(f"conversation {conversation!r} has no snapshot of {delete!r}: it has {named}")
            await snapshots.delete(conversation, delete)
        if save:
            await ledger.compact(conversation, replay_window=MAX_INTEGER)  # no event goes, snapshots are saved and read back
        found = await snapshots.list(conversation)
        bounds = await ledger.store.bounds(conversation)
        if as_json:
            numbers = {"conversation": conversation, "floor": bounds.floor, "origin": bounds.origin, "head": bounds.head}
            listed = [{"projector": info.projector, "last_seq": info.last_seq, "readable": info.readable} for info in found]
            print_json(numbers | {"snapshots": listed})
        else:
            rows = [(info.projector, info.last_seq, "yes" if info.readable else "no") for info in found]
            print_rows(Rows("", ("projector", "after event", "readable"), rows), without="there are no snapshots")
            held = "no event" if bounds.floor == bounds.head else f"events {bounds.floor + 1} to {bounds.head}"
            print_line(f"the log holds {held}")
        if not all(info.readable for info in found):
            raise ProblemsFound

    with_ledger(context, job, only_looks=not save and delete is None)


def _where_it_stands(conversation: str | None, work: LongWork, *, dry_run: bool) -> str:
    if dry_run:
        return "nothing was changed"
    done = (
        f"{work.so_far} conversations were compacted" if conversation is None else f"{conversation} is as it was, or compacted"
    )
    return f"{done}, each whole or not at all; the same command goes on with the rest"


async def _try(compacting: Awaitable[Compaction], *, dry_run: bool) -> tuple[dict[str, Any], str]:
    """What came of one among all, as JSON and in words; one that can't be compacted does not bar the others."""
    record = {"dry_run": dry_run} | dict.fromkeys((*_NUMBERS, "passed_over", "error"))
    try:
        done = await compacting
    except NoConversation as error:
        return record | {"passed_over": error.why}, f"passed over: it is no conversation, {error.why}"
    except (StreamError, LedgerError) as error:
        return record | {"error": str(error)}, str(error)
    return record | done._asdict(), _told(done, dry_run=dry_run)


def _summary(records: Sequence[Mapping[str, Any]], *, dry_run: bool) -> str:
    """Of all of them."""
    done = [record for record in records if record["floor"] is not None]
    events = sum(record["floor"] - record["floor_before"] for record in done)
    failed = sum(record["error"] is not None for record in records)
    told = f"{len(done):,} conversations: {events:,} events {'would go' if dry_run else 'went'}"
    return told + (f"; {failed:,} could not be compacted" if failed else "")


def _told(done: Compaction, *, dry_run: bool) -> str:
    verb = "would go" if dry_run else "went"
    why = f", bound by {done.binds}" if done.binds else ""
    if done.binds == UNKEPT:
        why += f": nothing else keeps event {done.floor + 1} (`tailfold events` shows it, --drop-unkept lets it go)"
    went = f"{counted(done.floor - done.floor_before, 'event')} {verb}"
    if done.unkept:
        went += f", {done.unkept} of which nothing else keeps"
    if done.floor < done.head:
        return f"{went}: the log keeps {done.floor + 1} to {done.head}{why}"
    return f"{went}: the log keeps none, its numbers go on at {done.head + 1}"
