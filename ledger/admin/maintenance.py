"""The commands that look after a database as a whole: check it, count it, copy it, make it small."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import msgspec
import typer

from ledger.admin.output import make_console, make_table, print_json
from ledger.admin.shell import AsJson, Found, with_ledger
from ledger.backup import file_of
from ledger.backup import restore as restore_ledger
from ledger.errors import UnknownConversation
from ledger.verification import verify as verify_ledger
from stream.limits import check_id
from stream.sqlite.statistics import stream_statistics
from stream.sqlite.vacuum import vacuum as vacuum_store

if TYPE_CHECKING:
    from ledger.ledger import Ledger

Only = Annotated[str | None, typer.Argument(help="Only this conversation.", metavar="[CONVERSATION]")]


def verify(context: typer.Context, conversation: Only = None, *, as_json: AsJson = False) -> None:
    """Check the file, and log, snapshots and transcript against each other."""
    if conversation is not None:
        check_id("conversation id", conversation)

    async def job(ledger: Ledger) -> None:
        if conversation is not None:
            await _require(ledger, conversation)
        found = [finding async for finding in verify_ledger(ledger, conversation)]
        if as_json:
            print_json([finding._asdict() for finding in found])
        elif found:
            rows = [("note" if f.is_note else "wrong", f.conversation, f.kind, f.what, f.mend) for f in found]
            make_console().print(make_table("Findings", ("", "conversation", "kind", "what", "mended by"), rows))
        else:
            make_console().print("everything is as it should be")
        if any(not finding.is_note for finding in found):
            raise Found

    with_ledger(context, job)


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
            counted = await stream_statistics(file_of(ledger).database, conversation)
            if counted is None:
                raise UnknownConversation(conversation)
        record = msgspec.to_builtins(counted)
        if as_json:
            print_json(record)
            return
        rows = [(name.replace("_", " "), _shown(name, value)) for name, value in record.items()]
        make_console().print(make_table("Statistics", ("what", "how much"), rows))

    with_ledger(context, job)


def backup(
    context: typer.Context,
    target: Annotated[str, typer.Argument(help="The file to make; it must not exist.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Copy the database to a new file, while it is in use."""

    async def job(ledger: Ledger) -> None:
        size_bytes = await ledger.backup(target)
        if as_json:
            print_json({"backup": target, "bytes": size_bytes, "incarnation": ledger.store.incarnation})
            return
        make_console().print(f"{target}: {size_bytes:,} bytes, read back", markup=False, soft_wrap=True)

    with_ledger(context, job)


def restore(
    context: typer.Context,
    backup: Annotated[str, typer.Argument(help="A file that `tailfold backup` made; it stays as it is.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Make the database of --data, which must not exist, out of a backup."""
    incarnation = anyio.run(restore_ledger, backup, context.obj.data)
    if as_json:
        print_json({"data": context.obj.data, "incarnation": incarnation})
        return
    make_console().print(
        f"{context.obj.data}: restored from {backup}; a new life, {incarnation}: clients begin again from a snapshot",
        markup=False,
        soft_wrap=True,
    )


def vacuum(context: typer.Context, *, as_json: AsJson = False) -> None:
    """Sweep what is truncated and give its room back to the disk."""

    async def job(ledger: Ledger) -> None:
        done = await vacuum_store(file_of(ledger))
        if as_json:
            print_json(done._asdict())
            return
        make_console().print(f"{done.before_bytes:,} bytes before, {done.after_bytes:,} after")

    with_ledger(context, job)


async def _require(ledger: Ledger, conversation: str) -> None:
    if not (await ledger.store.bounds(conversation)).head:
        raise UnknownConversation(conversation)


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "not counted: use --exact" if name in ("rows", "payload_bytes") else "none"
    if name.endswith("_at"):
        return datetime.fromtimestamp(value / 1000, UTC).isoformat(" ", "milliseconds")
    if isinstance(value, dict):
        return ", ".join(f"{part} {version}" for part, version in value.items())
    return f"{value:,}" if isinstance(value, int) else str(value)
