"""The commands that look after a database as a whole: count it, copy it, make it small."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import msgspec
import typer

from ledger.admin.long_work import stoppable
from ledger.admin.options import AsJson, refuse_to_write, with_ledger
from ledger.admin.output import make_table, print_json, print_line, print_view, progress
from ledger.errors import UnknownConversation
from ledger.upkeep.backup import file_of
from ledger.upkeep.backup import restore as restore_ledger
from stream.limits import check_id
from stream.sqlite.statistics import stream_statistics
from stream.sqlite.vacuum import vacuum as vacuum_store

if TYPE_CHECKING:
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
        if conversation is None:
            counted: msgspec.Struct | None = await ledger.statistics(exact=exact)
        else:
            counted = await stream_statistics(file_of(ledger.engine).database, conversation)
            if counted is None:
                raise UnknownConversation(conversation)
        record = msgspec.to_builtins(counted)
        if as_json:
            print_json(record)
            return
        rows = [(name.replace("_", " "), _shown(name, value)) for name, value in record.items()]
        print_view(make_table("Statistics", ("what", "how much"), rows))

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
        raise ValueError(f"{context.obj.log}: the log has a file of its own: name the copy of it with --log-target")

    async def job(ledger: Ledger) -> None:
        with progress(f"copying to {target}"):
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
    with stoppable(lambda: f"there is no {data}: run it again"), progress(f"restoring {data}"):
        incarnation = anyio.run(partial(restore_ledger, backup, data, log_backup=log_backup, log=log))
    if as_json:
        print_json({"data": data, "incarnation": incarnation})
        return
    print_line(f"{data}: restored from {backup}; a new life, {incarnation}: clients begin again from a snapshot")


def vacuum(context: typer.Context, *, as_json: AsJson = False) -> None:
    """Sweep what is truncated and give its room back to the disk."""

    async def job(ledger: Ledger) -> None:
        with progress("sweeping and packing"):
            done = await vacuum_store(file_of(ledger.engine))
        if as_json:
            print_json(done._asdict())
            return
        print_line(f"{done.before_bytes:,} bytes before, {done.after_bytes:,} after")

    with stoppable(lambda: "the file holds what it held; run it again to make it smaller"):
        with_ledger(context, job)


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "not counted: use --exact" if name in ("rows", "payload_bytes") else "none"
    if name.endswith("_at"):
        return datetime.fromtimestamp(value / 1000, UTC).isoformat(" ", "milliseconds")
    if isinstance(value, dict):
        return ", ".join(f"{part} {version}" for part, version in value.items())
    return f"{value:,}" if isinstance(value, int) else str(value)
