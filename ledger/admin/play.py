"""Plays a recording as a live run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from ledger.admin.output import print_json
from ledger.admin.shapes import of_run
from ledger.errors import UnknownRun

if TYPE_CHECKING:
    from ledger.ledger import Ledger
    from ledger.records import RunInfo
    from ledger.transfer.adapted import Recording


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
