"""What the tests of commands over ledgers share: a conversation to begin with, and commands run many at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from ledger import open_ledger
from tests.fork_server import COMMANDS
from tests.talk import finished, said, started

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ledger import Ledger
    from stream import NewEvent
    from tests.test_commands import Shell


def fill(shell: Shell, job: Callable[[Ledger], Awaitable[object]]) -> None:
    """Does what a program would have done before the commands are run."""

    async def main() -> None:
        async with open_ledger(str(shell.data), durability="normal") as ledger:
            await job(ledger)
            await ledger.catch_up_all()  # what is left to do would change the file when a command is refused

    with capture_logs():
        asyncio.run(main())


async def talk(ledger: Ledger) -> None:
    """Two answers to one question, a failed run, and one that is still open."""
    async with ledger.run("c", run_id="r1") as run:
        question = await run.message("user", "What is the capital of France?")
        await run.message("assistant", "Lyon")
    async with ledger.run("c", run_id="r2", parent=question, trigger="regenerate") as run:
        await run.message("assistant", "Paris")
    with pytest.raises(ZeroDivisionError):
        async with ledger.run("c", run_id="r3") as run:
            raise ZeroDivisionError
    run = await ledger.begin_run("c", run_id="r4")
    await run.text("still going")
    await run.flush()


def run_each(shell: Shell, commands: Sequence[Sequence[str]]) -> list[tuple[int, str, str]]:
    """Exit code, standard output and error of each, in one process, for most of a command's time is its beginning."""
    return COMMANDS.run_each([["--data", str(shell.data), *words] for words in commands])


def refuse_each(shell: Shell, commands: Sequence[Sequence[str]]) -> list[str]:
    """What commands that can't be done say: exit code 2, one line, and nothing is changed."""
    before = shell.data.read_bytes() if shell.data.exists() else None
    told = run_each(shell, commands)
    for words, (code, out, err) in zip(commands, told, strict=True):
        assert (code, out, err.count("\n"), err[:10]) == (2, "", 1, "tailfold: "), (words, out, err)
        assert len(err) < 700, words
    assert (shell.data.read_bytes() if shell.data.exists() else None) == before
    return [err for _, _, err in told]


def turns(count: int, prefix: str = "q", parent: str | None = None) -> list[NewEvent]:
    """A conversation of `count` runs of one message, each behind the one before."""
    events: list[NewEvent] = []
    for number in range(count):
        run_id = f"{prefix}{number}"
        events += [started(run_id, parent), *said(run_id, f"{run_id}.1", f"turn {number}"), finished(run_id)]
        parent = f"{run_id}.1"
    return events


async def record(ledger: Ledger, conversation: str, events: list[NewEvent]) -> None:
    for at in range(0, len(events), 5000):
        await ledger.record(conversation, events[at : at + 5000])
