"""AG-UI and AI SDK across processes: a run that one writes, a server that is killed, clients that come back."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from ledger import open_ledger
from tests.http.ui_clients import AguiClient, ChatPage
from tests.serving import Served, serve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.anyio, pytest.mark.heavy]
WORDS = 200
LONGEST_S = 30.0


def wire(server: Served, kind: str) -> Iterator[dict[str, Any]]:
    """The frames of one connection, until it ends or is broken off."""
    path, body = ("/v1/agui/connect", {"threadId": "c", "runId": "x"}) if kind == "agui" else ("/v1/chat/c/stream", None)
    with httpx.stream("POST" if body else "GET", server.url + path, json=body, timeout=LONGEST_S, trust_env=False) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                yield json.loads(line.removeprefix("data: "))


@pytest.mark.parametrize("kind", ["agui", "chat"])
async def test_the_text_is_shown_once_over_a_kill_of_the_server(tmp_path: Path, kind: str) -> None:
    database = str(tmp_path / "c.db")
    command = [sys.executable, "-m", "tests.slow_producer", database, "c", str(WORDS), "10", str(WORDS // 2)]
    producer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert producer.stdin is not None
        assert producer.stdout is not None
        assert producer.stdout.readline()
        with serve(database) as server:
            client: AguiClient | ChatPage = AguiClient() if kind == "agui" else ChatPage()
            follow(server, kind, client, 20)
            server.kill()
            with pytest.raises(httpx.TransportError):
                follow(server, kind, client, 1)
            server.start()
            frames = begin(server, kind, client)
            client.take([next(frames)])
            producer.stdin.write(b"\n")
            producer.stdin.flush()
            client.take(frames)
            assert client.ended in ("RUN_FINISHED", "finish")
            assert client.text() == "".join(f"word{number} " for number in range(WORDS))
    finally:
        producer.kill()
        producer.communicate()


async def test_a_run_whose_writer_was_killed_ends_when_it_is_recovered(tmp_path: Path) -> None:
    database = str(tmp_path / "c.db")
    command = [sys.executable, "-m", "tests.slow_producer", database, "c", "100000", "5"]
    producer = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert producer.stdout is not None
        assert producer.stdout.readline()
        with serve(database) as server:
            agent, page = AguiClient(), ChatPage()
            events, chunks = wire(server, "agui"), wire(server, "chat")
            agent.take([next(events)])
            page.take([next(chunks)])
            time.sleep(0.2)
            producer.kill()
            producer.wait()
            async with open_ledger(database) as ledger:
                await ledger.recover("c", "slow", "commit")
                text = (await ledger.transcript("c"))[-1].text
            agent.take(events)
            page.take(chunks)
    finally:
        producer.kill()
        producer.communicate()
    assert (agent.ended, page.ended) == ("RUN_FINISHED", "finish")
    assert agent.text() == page.text() == text


def begin(server: Served, kind: str, client: AguiClient | ChatPage) -> Iterator[dict[str, Any]]:
    """A new connection."""
    if isinstance(client, AguiClient):
        client.connect()
    else:
        client.resume()
    return wire(server, kind)


def follow(server: Served, kind: str, client: AguiClient | ChatPage, words: int) -> None:
    """One connection, until so many words are shown."""
    for frame in begin(server, kind, client):
        client.take([frame])
        if client.text().count(" ") >= words:
            return
