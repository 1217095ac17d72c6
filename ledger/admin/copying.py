"""The command that copies a database to another engine, or to another place."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Annotated

import typer

from ledger import open_ledger
from ledger.admin.long_work import LongWork, stoppable
from ledger.admin.loop import run_in_loop
from ledger.admin.options import AsJson, refuse_to_write
from ledger.admin.output import print_json, print_line
from ledger.transfer.copies import copy_ledger
from stream.opening import MEMORY
from stream.urls import is_server, shown_url


def copy(
    context: typer.Context,
    source: Annotated[str, typer.Argument(help="What is copied, a path or a URL; it is only read.", metavar="FROM")],
    target: Annotated[str, typer.Argument(help="Where it goes, a path or a URL; made if it is not there.", metavar="TO")],
    from_log: Annotated[
        str | None, typer.Option(help="The log of FROM, where it lies elsewhere.", metavar="PATH_OR_URL")
    ] = None,
    to_log: Annotated[str | None, typer.Option(help="Where the log goes, if not to TO.", metavar="PATH_OR_URL")] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Copy a database to another engine: log, snapshots, transcripts and media, with all numbers and times.

    What is there is passed over: after a stop the same command goes on. Every stream is read back and compared. Stop who
    writes to FROM first; who only reads may go on. Clients of TO begin again from a snapshot: it is another life of the log.
    """
    refuse_to_write(context)
    sources = [place.get_parameter_source("log") for place in (context, context.parent) if place is not None]
    if any(source is not None and source.name == "COMMANDLINE" for source in sources):
        raise ValueError("--log is of --data: say --from-log for the log of FROM, --to-log for that of TO")
    if MEMORY in (source, target, from_log, to_log):
        raise ValueError("memory: is gone when this ends: name a path or a URL")
    if (source, from_log) == (target, to_log):
        raise ValueError("FROM and TO are the same place: name another one")
    work = LongWork()

    async def job() -> None:
        async with AsyncExitStack() as stack:
            is_file = not any(is_server(place) for place in (source, from_log or ""))
            theirs = await stack.enter_async_context(open_ledger(source, log=from_log, create=False, read_only=is_file))
            ours = await stack.enter_async_context(open_ledger(target, log=to_log))
            done = [one async for one in copy_ledger(theirs.engine, ours.engine, work)]
            new = sum(one.is_new for one in done)
        if as_json:
            print_json([one._asdict() for one in done])
            return
        print_line(f"{len(done):,} streams are in {shown_url(target)}, {new:,} of them new: each was read back and is the same")

    with stoppable(lambda: f"{work.so_far} streams are there; the same command goes on"):
        run_in_loop(job)
