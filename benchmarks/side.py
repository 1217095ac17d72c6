"""One task of one checkout, in a process of its own: what `benchmarks.against` compares. It uses public names only.

`python -P side.py TASK FOLDER ARGUMENT SLEEP_MS`, with `PYTHONPATH` set to the checkout. The last line that it prints is
JSON: CPU seconds of this process, wall seconds, and how often a function was handed to a thread of SQLite.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import json
import logging
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aiosqlite
import structlog

from ledger import open_ledger
from stream import NewEvent, open_store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

_CONVERSATIONS: Final = 50
_RUNS: Final = 100  # of two messages in each conversation: 10,000
_WRITERS: Final = 100
_CALLS: Final = 100
_DELTAS_PER_S: Final = 50
_PACED_S: Final = 5.0
_MESSAGES: Final = 400  # of the run that is committed
_TEXT: Final = "it goes on and on, from here to there and back again, as long as somebody listens to what is said "


class Door:
    """Counts what is handed to the threads of SQLite, and lets each of it take longer."""

    def __init__(self, sleep_ms: float) -> None:
        self.trips = 0
        self.is_measured = False
        execute: Callable[..., Awaitable[Any]] = aiosqlite.Connection._execute  # noqa: SLF001 - its one door

        async def counted(connection: Any, function: Callable[..., Any], *words: Any, **options: Any) -> Any:
            if not self.is_measured:
                return await execute(connection, function, *words, **options)
            self.trips += 1
            if not sleep_ms:
                return await execute(connection, function, *words, **options)

            def slowly() -> Any:
                time.sleep(sleep_ms / 1000)
                return function(*words, **options)

            return await execute(connection, slowly)

        aiosqlite.Connection._execute = counted  # type: ignore[assignment, method-assign] # noqa: SLF001 - as above

    @contextlib.contextmanager
    def measure(self) -> Iterator[dict[str, float]]:
        """Fills what it gives when the block is left."""
        told: dict[str, float] = {}
        self.trips, self.is_measured = 0, True
        cpu, wall = time.process_time(), time.perf_counter()
        yield told
        told |= {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall, "trips": self.trips}
        self.is_measured = False


def new(event_type: str, **body: Any) -> NewEvent:
    return NewEvent(event_type, json.dumps(body, separators=(",", ":")).encode())


def message(run_id: str, number: int, role: str, pieces: int) -> list[NewEvent]:
    message_id = f"{run_id}.{number}"
    return [
        new("message.started", run_id=run_id, message_id=message_id, role=role),
        new("block.started", message_id=message_id, block=0, kind="text"),
        *(new("block.delta", message_id=message_id, block=0, text=_TEXT[: 20 + piece]) for piece in range(pieces)),
        new("block.sealed", message_id=message_id, block=0),
        new("message.finished", message_id=message_id, status="complete"),
    ]


def run(run_id: str, parent: str | None, messages: int) -> list[NewEvent]:
    said = (message(run_id, n, "assistant" if n % 2 == 0 else "user", 5 if n % 2 == 0 else 1) for n in range(1, messages + 1))
    return [
        new("run.started", run_id=run_id, parent_message_id=parent, trigger="submit", producer=run_id),
        *(event for events in said for event in events),
        new("run.finished", run_id=run_id, outcome="completed"),
    ]


async def import_files(door: Door, folder: Path, argument: str) -> dict[str, float]:
    """Takes a folder of public data in, by the command."""
    from ledger.admin import main  # noqa: PLC0415 - only this task needs it

    def command(*words: str) -> None:
        sys.argv = ["tailfold", "--data", str(folder / "imported.db"), *words]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            main()

    def imported() -> dict[str, float]:
        command("import", "--help")  # imports all there is
        with door.measure() as told:
            command("import", argument)
        return told

    return await asyncio.to_thread(imported)


async def write_anew(door: Door, folder: Path, argument: str) -> dict[str, float]:
    """Opens a ledger whose file is gone, and takes all of its log in."""
    del argument
    log = str(folder / "log.db")
    store = await open_store(log)
    for conversation in range(_CONVERSATIONS):
        events: list[NewEvent] = []
        for number in range(_RUNS):
            events += run(f"{conversation}-{number}", f"{conversation}-{number - 1}.2" if number else None, 2)
        await store.append(f"c{conversation}", events)
    await store.close()
    with door.measure() as told:
        async with open_ledger(str(folder / "ledger.db"), log=log) as ledger:
            found = [conversation async for conversation in ledger.conversations()]
    assert len(found) == _CONVERSATIONS
    return told


async def commit(door: Door, folder: Path, argument: str) -> dict[str, float]:
    """Takes a run of many messages into the ledger that is in the log already."""
    del argument
    async with open_ledger(str(folder / "chat.db")) as ledger:
        await ledger.store.append("c", run("r", None, _MESSAGES))
        with door.measure() as told:
            [last] = await ledger.transcript("c", limit=1)
    assert last.id == f"r.{_MESSAGES}"
    return told


async def append(door: Door, folder: Path, argument: str) -> dict[str, float]:
    """Writers append one event after the other, each to a stream of its own."""
    del argument
    event = new("block.delta", message_id="5f0c2a9e7b13d846.1", block=0, text=_TEXT[:40])
    async with open_store(str(folder / "log.db")) as store:

        async def write(writer: int, calls: int) -> None:
            for _ in range(calls):
                await store.append(f"c{writer}", [event])

        await asyncio.gather(*(write(writer, 5) for writer in range(_WRITERS)))
        with door.measure() as told:
            await asyncio.gather(*(write(writer, _CALLS) for writer in range(_WRITERS)))
    return told


async def stream_text(door: Door, folder: Path, argument: str) -> dict[str, float]:
    """Agents stream deltas at a pace, through runs; the CPU time of the pacing alone is taken off."""
    del argument

    async def pace(say: Callable[[], Awaitable[object]] | None, late: float) -> None:
        begin = time.perf_counter() + late / _DELTAS_PER_S
        for number in range(int(_PACED_S * _DELTAS_PER_S)):
            await asyncio.sleep(max(0.0, begin + number / _DELTAS_PER_S - time.perf_counter()))
            if say is not None:
                await say()

    async with open_ledger(str(folder / "chat.db")) as ledger:
        runs = [await ledger.begin_run(f"c{agent}") for agent in range(_WRITERS)]
        with door.measure() as told:
            await asyncio.gather(
                *(pace(functools.partial(run.text, _TEXT[:20]), agent / _WRITERS) for agent, run in enumerate(runs))
            )
        with door.measure() as alone:
            await asyncio.gather(*(pace(None, agent / _WRITERS) for agent in range(_WRITERS)))
        for begun in runs:
            await begun.finish()
    return told | {"cpu": told["cpu"] - alone["cpu"]}


async def count_trips(door: Door, folder: Path, argument: str) -> dict[str, float]:
    """How many trips each of some operations makes."""
    del argument
    counts: dict[str, float] = {}

    async def count(name: str, call: Awaitable[object]) -> None:
        with door.measure() as told:
            await call
        counts[name] = told["trips"]

    async with open_ledger(str(folder / "chat.db")) as ledger:
        await ledger.store.append("c", run("q", None, 3))
        await ledger.transcript("c")
        await ledger.store.append("c", run("r", "q.3", 3))
        await count("commit of 3 messages", ledger.catch_up("c"))
        await count("transcript", ledger.transcript("c"))
        await ledger.context("c")
        await count("context that records nothing", ledger.context("c"))
        begun: list[Any] = []

        async def begin() -> None:
            begun.append(await ledger.begin_run("c"))

        await count("begin_run", begin())
        await begun[0].message("user", "hello")
        await begun[0].finish()
        await ledger.transcript("c")
        await count("compact", ledger.compact("c"))
    return counts


TASKS: Final[dict[str, Callable[[Door, Path, str], Awaitable[dict[str, float]]]]] = {
    "import": import_files, "anew": write_anew, "commit": commit, "append": append, "agents": stream_text,
    "trips": count_trips,
}  # fmt: skip


def main() -> None:
    task, folder, argument, sleep_ms = sys.argv[1:]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    door = Door(float(sleep_ms))
    print(json.dumps(asyncio.run(functools.partial(TASKS[task], door, Path(folder), argument)())))  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
