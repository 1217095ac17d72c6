"""The demo: a live run whose process is killed, and everything that is right again afterwards."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, nullcontext
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio

from ledger.admin.output import describe_message, make_table, print_json
from ledger.errors import RunOpen
from ledger.opening import open_ledger
from ledger.signs import printable
from projector.events import BlockDelta
from projector.json_text import decode
from stream import follow

if TYPE_CHECKING:
    from anyio.abc import Process
    from rich.console import Console

    from ledger.ledger import Ledger
    from stream import Event

_CHAT: Final = "demo"
_CHUNKS_A_SECOND: Final = 60
_ACKNOWLEDGEMENTS_BEFORE_THE_KILL: Final = 11
_PATIENCE_S: Final = 60


async def run_demo(console: Console, keep: Path | None, as_json: bool) -> bool:  # noqa: FBT001 - called by anyio.run
    """Plays, kills, recovers, compacts, loads again; prints each step. True if all numbers are right."""
    console.quiet = as_json
    with ExitStack() as stack:
        folder = stack.enter_context(nullcontext(str(keep)) if keep else tempfile.TemporaryDirectory(prefix="tailfold-"))
        sample = stack.enter_context(as_file(files("ledger.admin").joinpath("sample.jsonl")))
        with anyio.fail_after(_PATIENCE_S):
            numbers = await _Demo(console, Path(folder) / "demo.db", sample).run()
    is_right = all(_checks(numbers).values())
    if as_json:
        print_json(numbers | {"checks": _checks(numbers), "ok": is_right})
    else:
        _print_proof(console, numbers, is_right)
    return is_right


class _Demo:
    def __init__(self, console: Console, path: Path, sample: Path) -> None:
        self._console = console
        self._path = path
        self._sample = sample
        self._acknowledged = 0
        self._run_id = ""
        self._seen: list[int] = []

    async def run(self) -> dict[str, Any]:
        self._step(f"A process of its own plays a recorded stream (thinking, text, a tool call) into {self._path.name}.")
        self._step("A follower in this process prints each piece as soon as it is durable:")
        async with open_ledger(str(self._path)) as ledger:
            await self._play_and_kill(ledger)
            stored = (await ledger.store.bounds(_CHAT)).head
            await self._follow(ledger, until=stored)
            self._console.print()
            self._step(f"The process was killed (SIGKILL) in the middle. The follower keeps its cursor, {self._seen[-1]}.")
            await self._show_open(ledger)
            recovered = await ledger.recover(_CHAT, self._run_id, "commit")
            self._step(
                f"Recovered: run {recovered.run_id} is {recovered.status}, as {recovered.outcome}. Whoever wrote it is fenced."
            )
            cursor = self._seen[-1]
            head = (await ledger.store.bounds(_CHAT)).head
            await self._follow(ledger, until=head)
            self._step(f"The follower resumes after {cursor} and sees the rest, to {self._seen[-1]}.")
            before = await ledger.transcript(_CHAT)
            self._step("The transcript now holds what was durable when the process died:")
            for message in before:
                self._console.print(describe_message(message), soft_wrap=True)
            compaction = await ledger.compact(_CHAT)
            gone = compaction.floor - compaction.floor_before
            self._step(f"Compacted: the log let {gone} events go, its numbers go on at {head + 1}.")
        async with open_ledger(str(self._path), create=False) as ledger:
            after = await ledger.transcript(_CHAT)
            bounds = await ledger.store.bounds(_CHAT)
            self._step("Opened again: the same transcript is loaded, without the log.")
            async with ledger.run(_CHAT) as run:
                await run.message("user", "You were cut off. Please go on.")
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

    async def _play_and_kill(self, ledger: Ledger) -> None:
        command = [sys.executable, "-m", "ledger.admin", "--data", str(self._path), "play", str(self._sample)]
        command += ["--format", "anthropic", "--conversation", _CHAT, "--rate", str(_CHUNKS_A_SECOND), "--json"]
        async with await anyio.open_process(command, stdout=subprocess.PIPE, stderr=None) as child:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._follow, ledger, None)
                await self._listen(child)
                tasks.cancel_scope.cancel()
            await child.wait()
        if child.returncode != -signal.SIGKILL:
            raise ValueError(
                f"the playing process ended by itself ({child.returncode}) before it could be killed: run it again"
            )

    async def _listen(self, child: Process) -> None:
        """Counts what the child was told is durable, and kills it in the middle of its work."""
        assert child.stdout is not None
        lines, rest = 0, b""
        async for data in child.stdout:
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                told = json.loads(line)
                self._run_id = told.get("run_id", self._run_id)
                self._acknowledged = max(self._acknowledged, told.get("acknowledged_seq", 0))
                lines += 1
            if lines >= _ACKNOWLEDGEMENTS_BEFORE_THE_KILL and child.returncode is None:
                child.kill()

    async def _follow(self, ledger: Ledger, until: int | None) -> None:
        """Goes on behind the cursor; every event is counted, text is printed."""
        cursor = self._seen[-1] if self._seen else 0
        if until is not None and cursor >= until:
            return
        async for event in follow(ledger.store, _CHAT, after=cursor):
            self._seen.append(event.seq)
            self._show_piece(event)
            if event.seq == until:
                return

    def _show_piece(self, event: Event) -> None:
        if event.type == BlockDelta.TYPE:
            delta = decode(event.data, BlockDelta)
            style = "dim italic" if delta.block == 0 else ""
            self._console.print(printable(delta.text), end="", style=style, markup=False, soft_wrap=True)

    async def _show_open(self, ledger: Ledger) -> None:
        committed = await ledger.transcript(_CHAT)
        for run in await ledger.open_runs(_CHAT):
            pieces = sum(len(block.text) for message in run.messages for block in message.blocks)
            self._step(f"Run {run.run_id} has no end: {pieces} characters in the log, {len(committed)} messages committed.")
        try:
            await ledger.begin_run(_CHAT)
        except RunOpen as refusal:
            self._step(f"A new run is refused: {refusal}.")

    def _step(self, text: str) -> None:
        self._console.print("● " + text, style="bold", markup=False)


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
    console.print(make_table("The numbers", ("", "count"), [(text, numbers[name]) for name, text in names.items()]))
    for check, holds in _checks(numbers).items():
        console.print(f"{'✓' if holds else '✗'} {check}", style="green" if holds else "bold red", markup=False)
    console.print("All is as it should be." if is_right else "Something is wrong.", style="bold")
