"""Plays a recording as a live run."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads it at run time
from typing import TYPE_CHECKING, Annotated

import anyio
import typer

from ledger.admin.options import AsJson, ProblemsFound, with_ledger
from ledger.admin.output import counted, print_json, print_line
from ledger.admin.shapes import of_run
from ledger.errors import UnknownRun
from ledger.kinds import check_conversation_id
from ledger.transfer.formats import AUTO
from ledger.transfer.sources import look_through
from projector.formats import STREAMS

if TYPE_CHECKING:
    from ledger.ledger import Ledger
    from ledger.records import RunInfo
    from ledger.transfer.adapted import Recording


def play(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A recorded stream: server-sent events, or one event a line; gzipped or not.")],
    conversation: Annotated[str, typer.Option(help="The conversation to play it into.", metavar="CONVERSATION")],
    format_name: Annotated[
        str,
        typer.Option(
            "--format", help=f"Its format: {', '.join(STREAMS)}.", metavar="FORMAT", autocompletion=lambda: list(STREAMS)
        ),
    ] = AUTO,
    rate: Annotated[float | None, typer.Option(help="Chunks a second; as fast as possible without.", min=0.001)] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Play a recorded stream as a live run, and commit it."""
    check_conversation_id(conversation)
    recording = look_through(file, format_name)

    async def job(ledger: Ledger) -> None:
        run = await play_recording(ledger, recording, conversation, rate=rate, as_json=as_json)
        if not as_json:
            messages = counted(run.messages, "message")
            print_line(f"run {run.run_id}: {run.outcome}, {messages}, events {run.seq} to {run.end_seq}")
        if run.outcome != "completed":
            raise ProblemsFound

    with_ledger(context, job, create=True)


async def play_recording(
    ledger: Ledger, recording: Recording, conversation: str, *, rate: float | None, as_json: bool
) -> RunInfo:
    """Feeds every chunk of the recording to a run and ends it as its stream says; a torn one ends `incomplete`.

    With `as_json` a line tells the run, one what was acknowledged each time that moves, and one how it ended.
    """
    async with ledger.run(conversation, format=recording.format) as run:
        told = run.acknowledged_seq
        if as_json:
            print_json({"run_id": run.run_id, "acknowledged_seq": told})
        for chunk in recording.chunks():
            await run.feed(chunk)
            if rate is not None:
                await anyio.sleep(1 / rate)
            if as_json and run.acknowledged_seq > told:
                told = run.acknowledged_seq
                print_json({"acknowledged_seq": told})
        if recording.is_torn:
            await run.finish("incomplete")
    info = await ledger.tables.run(conversation, run.run_id)
    if info is None:
        raise UnknownRun(run.run_id)
    if as_json:
        print_json(of_run(info))
    return info
