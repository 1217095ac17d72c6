"""The public clients of AG-UI and of the AI SDK, against `tailfold serve`, with a run that another process writes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from ledger import open_ledger
from projector.events import to_event
from projector.formats.agui.stream_writer import AguiStreamWriter
from projector.formats.ai_sdk.stream_writer import AiSdkStreamWriter
from tests.clients.conftest import node_command, scripts_of
from tests.http.agent_checks import state_at, wanted
from tests.http.agent_talk import ended, started
from tests.http.test_agent_taken_back import AGAIN, KEPT, seals
from tests.serving import serve
from tests.shared_data import needs_data
from tests.test_stream_writers import RECORDED, conversation_of, kept, stamped

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.clients.conftest import Node, Npm

PACKAGE: Final = {"dependencies": {"@ag-ui/client": "1.0.0", "ai": "6.0.326"}}
LONGEST_S: Final = 60.0
CUTS: Final = 2

pytestmark = [pytest.mark.clients, pytest.mark.anyio]


class Client(NamedTuple):
    """A script of ours with a public client in it."""

    process: subprocess.Popen[str]

    def wait_for(self, characters: int) -> None:
        """Returns when it shows so much text."""
        assert self.process.stdout is not None
        line = "nothing"
        for line in self.process.stdout:
            if line.strip().isdecimal() and int(line) >= characters:
                return
        raise AssertionError(f"the client has ended before it: {line[-2000:]}")

    def say(self) -> None:
        """Gives it a line to go on."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> dict[str, Any]:
        """What it tells at its end."""
        out, _ = self.process.communicate(timeout=LONGEST_S)
        told: dict[str, Any] = json.loads(out.strip().split("\n")[-1])
        return told


@contextlib.contextmanager
def running(*command: str, cwd: Path | None = None) -> Iterator[Client]:
    process = subprocess.Popen(command, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Client(process)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("is_killed", [False, True], ids=["it ends", "its producer is killed too"])
@pytest.mark.parametrize("script", ["agui_agent.mjs", "chat_page.mjs"])
async def test_who_joins_in_the_middle_shows_the_text_once_over_kills(
    tmp_path: Path, npm: Npm, script: str, *, is_killed: bool
) -> None:
    folder, database = npm(PACKAGE), str(tmp_path / "c.db")
    words = 2000 if is_killed else 250
    producer = (sys.executable, "-m", "tests.slow_producer", database, "c", str(words), "10", "-1" if is_killed else "150")
    with running(*producer) as writer, serve(database) as server:
        writer.wait_for(5)
        command = node_command(folder, script, server.url, "c")
        with running(*command, cwd=scripts_of(folder)) as same:
            same.wait_for(200)
            server.kill()
            time.sleep(0.3)
            server.start()
            same.wait_for(600)
            with running(*command, cwd=scripts_of(folder)) as fresh:
                fresh.wait_for(700)
                if is_killed:
                    writer.process.send_signal(signal.SIGKILL)
                    writer.process.wait()
                    async with open_ledger(database) as ledger:
                        await ledger.recover("c", "slow", "commit")
                else:
                    writer.say()
                told = [same.end(), fresh.end()]
    async with open_ledger(database) as ledger:
        text = "".join(message.text for message in await ledger.transcript("c") if message.role == "assistant")
    assert is_killed or text == "".join(f"word{number} " for number in range(words))
    assert [one["text"] for one in told] == [text, text]
    assert [one["ended_early"] for one in told] == [0, 0]
    assert told[0]["connections"] > 1
    if script == "chat_page.mjs":
        assert [one["ids"] for one in told] == [["slow"], ["slow"]]
        assert [one["refused"] for one in told] == [0, 0]
    else:
        assert [[message["role"] for message in one["messages"]] for one in told] == [["user", "assistant"]] * 2


@pytest.mark.parametrize("script", ["agui_agent.mjs", "chat_page.mjs"])
async def test_who_is_there_when_a_step_is_taken_back_shows_what_counts_once(tmp_path: Path, npm: Npm, script: str) -> None:
    folder, database = npm(PACKAGE), str(tmp_path / "c.db")
    async with open_ledger(database) as ledger:
        await ledger.record("c", [started(), *(to_event(body) for body in KEPT)])
        with (
            serve(database) as server,
            running(*node_command(folder, script, server.url, "c"), cwd=scripts_of(folder)) as client,
        ):
            client.wait_for(len("kept "))
            for body in [*AGAIN["twice"], *seals("r.2")]:
                await ledger.record("c", [to_event(body)])
                await asyncio.sleep(0.05)
            await ledger.record("c", [ended(outcome="incomplete")])
            told = client.end()
    assert told["text"] == "kept right"
    assert told.get("refused", 0) == 0


@needs_data
def test_the_public_clients_take_every_recorded_run_cut_somewhere(tmp_path: Path, npm: Npm, node: Node) -> None:
    given, made = tmp_path / "given.json", tmp_path / "made.json"
    streams: list[dict[str, Any]] = []
    truths: dict[str, Any] = {}
    for path in RECORDED:
        [[run]] = conversation_of(path)
        bodies, messages = stamped(run), kept(run)
        for cut in random.Random(path.name).sample(range(1, len(bodies)), min(CUTS, len(bodies) - 1)):
            first, late, answer = AguiStreamWriter(thread_id="c"), AguiStreamWriter(thread_id="c"), AiSdkStreamWriter()
            runs = state_at(bodies, cut).open.values()
            name = f"{len(streams)}: {path.name} cut at {cut}"
            followed = [event for body in bodies[: cut // 2 + 1] for event in first.feed(body)]
            events = late.resume(runs) + [event for body in bodies[cut:] for event in late.feed(body)]
            chunks = answer.resume(runs) + [chunk for body in bodies[cut:] for chunk in answer.feed(body)]
            streams.append({"name": name, "followed": followed, "late": events, "chunks": chunks})
            truths[name] = wanted(messages, "tool_call"), events[-1]["type"]
    given.write_text(json.dumps(streams))
    done = node(npm(PACKAGE), "ui_streams.mjs", str(given), str(made))
    assert made.exists(), done.stderr[-2000:]
    wrong = []
    for told in json.loads(made.read_text()):
        (text, thoughts, calls), end = truths[told["name"]]
        for client in ("same", "fresh", "page"):
            found = told[client]
            is_right = (found.get("text"), found.get("reasoning")) == (text, thoughts)
            has_calls = client == "page" or {ref for ref, _ in found.get("calls", ())} == {ref for ref, _ in calls}
            if not (is_right and has_calls) and end != "RUN_ERROR":
                wrong.append((told["name"], client, found, text, thoughts, calls))
    assert not wrong, f"{len(wrong)} of {len(streams)}: {wrong[:3]}"
