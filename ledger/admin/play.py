"""Plays a recording as a live run, which can be stopped as any other: by `cancel`, by Ctrl-C, and by SIGTERM."""

from __future__ import annotations

import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - typer reads it at run time
from typing import TYPE_CHECKING, Annotated

import anyio
import typer
from anyio.lowlevel import checkpoint

from ledger.admin.json_shapes import of_run
from ledger.admin.long_work import stoppable
from ledger.admin.options import AsJson, ProblemsFound, named_path, with_ledger
from ledger.admin.output import counted, print_json, print_line
from ledger.errors import UnknownRun
from ledger.kinds import check_conversation_id
from ledger.transfer.formats import AUTO
from ledger.transfer.sources import look_through
from projector.formats import STREAMS
from stream import StreamError

if TYPE_CHECKING:
    from ledger.ledger import Ledger
    from ledger.records import RunInfo
    from ledger.runs.run import Run
    from ledger.transfer.adapted import Recording


@dataclass
class Playing:
    """How far it has come: the run that was begun, and what has stopped it."""

    run_id: str | None = None
    stopped_by: str | None = None

    def __str__(self) -> str:
        if self.run_id is None:
            return "no run was begun"
        return f"run {self.run_id} is cancelled, what it had said is kept (`tailfold show`)"


def play(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(
            help="A recorded stream: server-sent events, or one event a line; gzipped or not.",
            parser=named_path,
            metavar="FILE",
        ),
    ],
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
    """Play a recorded stream as a live run, and commit it. `cancel`, Ctrl-C and SIGTERM stop it, and what was said is kept."""
    check_conversation_id(conversation)
    recording = look_through(file, format_name)

    playing = Playing()

    async def job(ledger: Ledger) -> None:
        run = await play_recording(ledger, recording, conversation, rate=rate, as_json=as_json, playing=playing)
        if not as_json:
            messages = counted(run.messages, "message")
            print_line(f"run {run.run_id}: {run.outcome}, {messages}, events {run.seq} to {run.end_seq}")
        if run.outcome != "completed" and playing.stopped_by != "SIGTERM":
            raise ProblemsFound

    with stoppable(lambda: str(playing)):
        with_ledger(context, job, create=True)
    if playing.stopped_by == "SIGTERM":
        raise SystemExit(128 + signal.SIGTERM)


async def play_recording(
    ledger: Ledger,
    recording: Recording,
    conversation: str,
    *,
    rate: float | None,
    as_json: bool,
    playing: Playing | None = None,
) -> RunInfo:
    """Feeds every chunk of the recording to a run and ends it as its stream says; a torn one ends `incomplete`.

    A run that is asked to stop ends `cancelled`, and so does one whose process is: what it has said is kept. `playing`
    is told how it goes. With `as_json` a line tells the run, one what was acknowledged each time that moves, and one how it
    ended.
    """
    playing = playing or Playing()
    async with ledger.run(conversation, format=recording.format) as run:
        playing.run_id = run.run_id
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:

            async def stop_when_asked() -> None:
                with suppress(StreamError):  # who feeds it hears of it, too
                    await run.wait_for_cancel_request()
                    playing.stopped_by = "cancel"
                    tasks.cancel_scope.cancel()

            async def stop_when_terminated() -> None:
                with suppress(NotImplementedError), anyio.open_signal_receiver(signal.SIGTERM) as signals:
                    async for _ in signals:
                        playing.stopped_by = "SIGTERM"
                        tasks.cancel_scope.cancel()

            tasks.start_soon(stop_when_asked)
            tasks.start_soon(stop_when_terminated)
            try:
                await _feed(run, recording, rate=rate, as_json=as_json)
            except Exception as error:  # noqa: BLE001 - raised below: as it is, and not in a group of errors
                failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
        if playing.stopped_by is not None:
            await run.finish("cancelled")
        elif recording.is_torn:
            await run.finish("incomplete")
    info = await ledger.tables.run(conversation, run.run_id)
    if info is None:
        raise UnknownRun(run.run_id)
    if as_json:
        print_json(of_run(info))
    return info


async def _feed(run: Run, recording: Recording, *, rate: float | None, as_json: bool) -> None:
    told = run.acknowledged_seq
    if as_json:
        print_json({"run_id": run.run_id, "acknowledged_seq": told})
    for chunk in recording.chunks():
        await checkpoint()  # whoever wants to stop it has his turn
        await run.feed(chunk)
        if rate is not None:
            await anyio.sleep(1 / rate)
        if as_json and run.acknowledged_seq > told:
            told = run.acknowledged_seq
            print_json({"acknowledged_seq": told})
