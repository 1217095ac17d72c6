"""The demo: a live run whose process is killed, and everything that is right again afterwards."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import anyio
import typer

from ledger.admin.demo_agent import CHAT
from ledger.admin.demo_screen import Screen
from ledger.admin.loop import run_in_loop
from ledger.admin.options import AsJson, ProblemsFound, named_path, refuse_to_write
from ledger.admin.output import make_console, print_json
from ledger.admin.tables import print_pairs
from ledger.errors import RunOpen
from ledger.opening import open_ledger
from stream import follow

if TYPE_CHECKING:
    from anyio.abc import Process
    from rich.console import Console

    from ledger.ledger import Ledger

_FILE: Final = "demo.db"
_ACKNOWLEDGEMENTS_OF_THE_ANSWER: Final = 4  # and then its process is killed
_PATIENCE_S: Final = 60
COMMANDS_TO_TRY: Final = (f"show {CHAT}", f"context {CHAT} --explain", f"export {CHAT} --format chat")


def demo(
    context: typer.Context,
    *,
    as_json: AsJson = False,
    keep: Annotated[
        Path | None, typer.Option(help="Keep the database of the demo in this folder.", parser=named_path, metavar="PATH")
    ] = None,
) -> None:
    """Kill an agent in the middle of its answer, recover the run, compact it, and prove that nothing was lost."""
    refuse_to_write(context)
    if keep is not None:
        if keep.exists() and not keep.is_dir():
            raise ValueError(f"{keep} is no folder: name another one with --keep")
        keep.mkdir(parents=True, exist_ok=True)
        if (keep / "demo.db").exists():
            raise ValueError(f"{keep / 'demo.db'} exists: name another folder with --keep")
    if not run_in_loop(run_demo, make_console(), keep, as_json):
        raise ProblemsFound


async def run_demo(console: Console, keep: Path | None, as_json: bool) -> bool:  # noqa: FBT001 - called by `run_in_loop`
    """Asks, kills, recovers, compacts, loads again; prints each step. True if all numbers are right."""
    console.quiet = as_json
    with nullcontext(str(keep)) if keep else tempfile.TemporaryDirectory(prefix="tailfold-") as folder:
        with anyio.fail_after(_PATIENCE_S):
            numbers = await _Demo(console, Path(folder) / _FILE).run()
    is_right = all(_checks(numbers).values())
    if as_json:
        print_json(numbers | {"checks": _checks(numbers), "ok": is_right})
    else:
        _print_proof(console, numbers, is_right)
        _print_commands(console, keep)
    return is_right


class _Demo:
    def __init__(self, console: Console, path: Path) -> None:
        self._screen = Screen(console)
        self._path = path
        self._acknowledged = 0
        self._run_id = ""
        self._seen: list[int] = []

    async def run(self) -> dict[str, Any]:
        step = self._screen.step
        async with open_ledger(str(self._path)) as ledger:
            step("An agent answers a question in a process of its own. A client sees each piece as soon as it is safe:")
            await self._ask_and_kill(ledger)
            stored = (await ledger.store.bounds(CHAT)).head
            await self._follow(ledger, until=stored)
            step(
                "Its process was killed (SIGKILL) in the middle of a sentence. "
                f"The client has seen events 1 to {self._seen[-1]}, and {stored} are in the log: "
                f"all {self._acknowledged} that were acknowledged."
            )
            await self._refuse(ledger)
            recovered = await ledger.recover(CHAT, self._run_id, "commit")
            step(f"Recovered: what the run had said is {recovered.status}, as {recovered.outcome}; whoever wrote it is fenced.")
            cursor = self._seen[-1]
            head = (await ledger.store.bounds(CHAT)).head
            await self._follow(ledger, until=head)
            step(f"The client comes back with its cursor, {cursor}, and sees what is new, to {self._seen[-1]}: nothing twice.")
            before = await ledger.transcript(CHAT)
            compaction = await ledger.compact(CHAT)
            gone = compaction.floor - compaction.floor_before
            step(f"Compacted: the log let {gone} events go. Opened again, the transcript is there without them:")
        async with open_ledger(str(self._path), create=False) as ledger:
            after = await ledger.transcript(CHAT)
            bounds = await ledger.store.bounds(CHAT)
            self._screen.list(after)
            step(f"The next turn goes on behind it, with event {head + 1}:")
            async with ledger.run(CHAT) as run:
                await run.message("user", "You were cut off. Is the dining car open?")
                await run.text("It is, until ten. Shall I book a bed for you?")
            self._screen.list((await ledger.transcript(CHAT))[len(after) :])
            self._screen.end_line()
            next_seq = run.acknowledged_seq
        return {
            "acknowledged": self._acknowledged,
            "stored": stored,
            "lost": max(0, self._acknowledged - stored),
            "head": head,
            "seen_by_follower": len(self._seen),
            "seen_once_in_order": self._seen == list(range(1, head + 1)),
            "messages_before": len(before),
            "messages_after": len(after),
            "characters_before": sum(len(block.text) for message in before for block in message.blocks),
            "characters_after": sum(len(block.text) for message in after for block in message.blocks),
            "same_transcript": before == after,
            "floor_after_compaction": bounds.floor,
            "next_run_went_on_at": bounds.head + 1,
            "next_run_is_behind": next_seq > head,
        }

    async def _ask_and_kill(self, ledger: Ledger) -> None:
        # With the path of this process: a module that lies in the folder it is in is not taken for one of ours.
        begin = (
            f"import sys, anyio; sys.path[:] = {sys.path!r}; from ledger.admin.demo_agent import run_agent;"
            f" anyio.run(run_agent, {str(self._path)!r})"
        )
        command = [sys.executable, "-P", "-c", begin]
        async with await anyio.open_process(command, stdout=subprocess.PIPE, stderr=None) as child:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._follow, ledger, None)
                await self._listen(child)
                tasks.cancel_scope.cancel()
            await child.wait()
        if child.returncode != -signal.SIGKILL:
            raise ValueError(
                f"the agent's process ended by itself ({child.returncode}) before it could be killed: run it again"
            )

    async def _listen(self, child: Process) -> None:
        """Counts what the agent was told is durable, and kills it in the middle of its answer."""
        assert child.stdout is not None
        rest, answers = b"", False
        left = _ACKNOWLEDGEMENTS_OF_THE_ANSWER
        async for data in child.stdout:
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                told = json.loads(line)
                self._run_id = told.get("run_id", self._run_id)
                self._acknowledged = max(self._acknowledged, told.get("acknowledged_seq", 0))
                answers |= "answers" in told
                left -= answers and "acknowledged_seq" in told
                left = 0 if "waits" in told else left
            if left <= 0 and child.returncode is None:
                child.kill()

    async def _follow(self, ledger: Ledger, until: int | None) -> None:
        """Goes on behind the cursor; every event is counted, and what can be read of it is shown."""
        cursor = self._seen[-1] if self._seen else 0
        if until is not None and cursor >= until:
            return
        async for event in follow(ledger.store, CHAT, after=cursor):
            self._seen.append(event.seq)
            self._screen.show(event)
            if event.seq == until:
                return

    async def _refuse(self, ledger: Ledger) -> None:
        """The run is open: a second one would speak into it."""
        committed = await ledger.transcript(CHAT)
        try:
            await ledger.begin_run(CHAT)
        except RunOpen:
            told = f"Its run has no end: {len(committed)} messages are committed, and a next run is refused (RunOpen)."
            self._screen.step(told)


def _checks(numbers: dict[str, Any]) -> dict[str, bool]:
    return {
        "nothing that was acknowledged is lost": numbers["acknowledged"] > 0 and numbers["lost"] == 0,
        "the follower saw every event once, in order": numbers["seen_once_in_order"],
        "the transcript is the same before and after compaction": numbers["same_transcript"] and numbers["messages_before"] > 0,
        "the log was let go": numbers["floor_after_compaction"] == numbers["head"],
        "the next run goes on behind it": numbers["next_run_is_behind"],
    }


def _print_proof(console: Console, numbers: dict[str, Any], is_right: bool) -> None:  # noqa: FBT001 - one caller
    names = {
        "acknowledged": "events acknowledged to the killed process",
        "stored": "events stored when it was dead",
        "lost": "acknowledged events lost",
        "head": "events in all, with the recovery",
        "seen_by_follower": "events seen by the follower, before and after",
        "characters_before": "characters in the transcript before compaction",
        "characters_after": "characters in the transcript after it",
        "floor_after_compaction": "events let go by compaction",
        "next_run_went_on_at": "first event of the next run",
    }
    print_pairs("The numbers", [(text, f"{numbers[name]:,}") for name, text in names.items()])
    console.print()
    for check, holds in _checks(numbers).items():
        console.print(f"{'✓' if holds else '✗'} {check}", style="green" if holds else "bold red", markup=False)
    console.print("All is as it should be." if is_right else "Something is wrong.", style="bold")


def _print_commands(console: Console, keep: Path | None) -> None:
    """What to do with the file, if it is left."""
    if keep is None:
        console.print("`tailfold demo --keep demo-files` leaves the file to look at.", markup=False)
        return
    console.print("Three commands to try next:", markup=False)
    data = shlex.quote(str(keep / _FILE))
    for words in COMMANDS_TO_TRY:
        console.print(f"  tailfold --data {data} {words}", markup=False, soft_wrap=True)
