"""Plays a recording as a live run, which can be stopped as any other: by `cancel`, by Ctrl-C, and by SIGTERM."""

from __future__ import annotations

import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from ledger.admin.output import print_json
from ledger.errors import UnknownRun
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
        print_json(msgspec.to_builtins(info))
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
