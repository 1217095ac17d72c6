"""The commands that look after a database as a whole: count it, copy it, make it small."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from ledger.admin.erased import erased, print_erased
from ledger.admin.json_shapes import of_erased, with_iso
from ledger.admin.long_work import stoppable
from ledger.admin.loop import run_in_loop
from ledger.admin.options import AsJson, refuse_to_write, with_ledger
from ledger.admin.output import moment, print_json, print_line, progress
from ledger.admin.tables import print_pairs
from ledger.errors import LedgerError, UnknownConversation
from ledger.tables.counts import count
from ledger.upkeep.backup import file_of
from ledger.upkeep.backup import restore as restore_ledger
from ledger.upkeep.statistics import stream_statistics
from stream import StreamError
from stream.limits import check_id
from stream.sqlite.vacuum import vacuum as vacuum_store
from stream.urls import shown_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.ledger import Ledger

Only = Annotated[str | None, typer.Argument(help="Only this conversation.", metavar="[CONVERSATION]")]


def stats(
    context: typer.Context,
    conversation: Only = None,
    exact: Annotated[bool, typer.Option("--exact", help="Look at every row, to count them and their bytes.")] = False,  # noqa: FBT002 - a flag
    *,
    as_json: AsJson = False,
) -> None:
    """Count what the database holds, or one conversation of it."""
    if conversation is not None:
        check_id("conversation id", conversation)

    async def job(ledger: Ledger) -> None:
        with suppress(LedgerError, StreamError):  # what is there is counted all the same; verify tells
            await (ledger.catch_up_all() if conversation is None else ledger.catch_up(conversation))
        counts: dict[str, Any] = msgspec.to_builtins(await count(ledger.tables, conversation))
        if conversation is None:
            record = msgspec.to_builtins(await ledger.statistics(exact=exact))
        else:
            counted = await stream_statistics(ledger.engine, conversation)
            if counted is None:
                raise UnknownConversation(conversation)
            record = {"conversation": conversation} | msgspec.to_builtins(counted)
            del record["stream_id"]
            counts = {name: counts[name] for name in counts if name not in ("conversations", "archived", "erased")}
            counts["erased"] = of_erased(await erased(ledger, conversation))
        if as_json:
            print_json(counts | with_iso(record, "first_at", "last_at"))
            return
        await print_erased(ledger, conversation)
        print_pairs("What there is" if conversation is None else f"What there is of {conversation}", _told(counts))
        print_line("")
        where = "in the file" if ledger.tables.database.dialect == "sqlite" else "on the server"
        print_pairs(
            f"How it lies {where}",
            [(name.replace("_", " "), _shown(name, value)) for name, value in record.items()],
        )

    with_ledger(context, job, only_looks=True)


def backup(
    context: typer.Context,
    target: Annotated[str, typer.Argument(help="The file to make; it must not exist.")],
    log_target: Annotated[str | None, typer.Option(help="The copy of a log that lies elsewhere.", metavar="FILE")] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Copy the database to a new file, while it is in use."""
    if context.obj.log is not None and log_target is None:
        raise ValueError(f"{shown_url(context.obj.log)}: the log has a file of its own: name the copy of it with --log-target")

    async def job(ledger: Ledger) -> None:
        with progress(f"copying to {shown_url(target)}"):
            size_bytes = await ledger.backup(target, log_target=log_target)
        if as_json:
            print_json({"backup": target, "bytes": size_bytes, "incarnation": ledger.store.incarnation})
            return
        print_line(f"{target}: {size_bytes:,} bytes, read back")

    with stoppable(lambda: f"no copy was made, there is no {target}; the database is as it was: run it again for a copy"):
        with_ledger(context, job, only_looks=True)


def restore(
    context: typer.Context,
    backup: Annotated[str, typer.Argument(help="A file that `tailfold backup` made; it stays as it is.")],
    log_backup: Annotated[
        str | None, typer.Option(help="The copy of its log, to be restored at --log.", metavar="FILE")
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Make the database of --data, which must not exist, out of a backup."""
    refuse_to_write(context)
    data, log = context.obj.data, context.obj.log
    if (log is None) != (log_backup is None):
        raise ValueError("a log in a file of its own is restored from --log-backup to the place of --log: name both, or none")
    with stoppable(lambda: f"there is no {shown_url(data)}: run it again"), progress(f"restoring {shown_url(data)}"):
        incarnation = run_in_loop(partial(restore_ledger, backup, data, log_backup=log_backup, log=log))
    if as_json:
        print_json({"data": data, "incarnation": incarnation})
        return
    print_line(f"{data}: restored from {backup}; a new life, {incarnation}: clients begin again from a snapshot")


def vacuum(context: typer.Context, *, as_json: AsJson = False) -> None:
    """Sweep what is truncated and give its room back to the disk."""

    async def job(ledger: Ledger) -> None:
        with progress("sweeping and packing"):
            done = await vacuum_store(file_of(ledger.engine, "vacuumdb"))
        if as_json:
            print_json(done._asdict())
            return
        print_line(f"{done.before_bytes:,} bytes before, {done.after_bytes:,} after")

    with stoppable(lambda: "the file holds what it held; run it again to make it smaller"):
        with_ledger(context, job)


def _told(counts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """In words, what belongs together in one line."""
    if "conversations" in counts:
        rest = [f"{counts[name]:,} {name}" for name in ("archived", "erased") if counts[name]]
        yield "conversations", _with(counts["conversations"], *rest)
    yield "messages", _with(counts["messages"])
    yield "runs", _with(counts["runs"], *([f"{counts['open_runs']:,} open"] if counts["open_runs"] else []))
    yield "media", _with(counts["media"], *([f"{counts['media_bytes']:,} bytes"] if counts["media"] else []))
    for name, part in (("input", "cached"), ("output", "reasoning")):
        rest = [f"{counts[f'{part}_tokens']:,} of them {part}"] if counts[f"{part}_tokens"] else []
        yield f"{name} tokens", _with(counts[f"{name}_tokens"], *rest)


def _with(number: int, *rest: str) -> str:
    return f"{number:,}" + (f" ({', '.join(rest)})" if rest else "")


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "not counted: use --exact" if name in ("rows", "payload_bytes") else "none"
    if name.endswith("_at"):
        return f"{moment(value)} UTC"
    if isinstance(value, dict):
        return ", ".join(f"{part} {version}" for part, version in value.items())
    return f"{value:,}" if isinstance(value, int) else str(value)
