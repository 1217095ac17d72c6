"""The EventSource of browsers, as the npm package `eventsource` has it, follows a conversation over kills of the server."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest

from tests.clients.conftest import node_command, scripts_of
from tests.serving import serve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.clients.conftest import Npm
    from tests.serving import Served

pytestmark = pytest.mark.clients
PACKAGE: Final = {"dependencies": {"eventsource": "4.1.1"}}
EVENTS: Final = 400
KILLS: Final = (100, 250)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serve(tmp_path / "talks.db") as server:
        yield server


def body(number: int) -> dict[str, Any]:
    return {"n": number, "said": "a\u2028b\n"}


def append_all(url: str) -> None:
    """One event after the other, each tried until it is answered: nothing twice, whatever becomes of the server."""
    for number in range(1, EVENTS + 1):
        headers = {"Expected-Seq": str(number - 1), "Idempotency-Key": f"event {number}"}
        for _ in range(200):
            try:
                answer = httpx.post(url, json=[{"type": "tick", "data": body(number)}], headers=headers)
                assert answer.json() == {"first_seq": number, "last_seq": number}
                break
            except httpx.TransportError:
                time.sleep(0.05)


def test_each_event_comes_exactly_once_over_two_kills(served: Served, npm: Npm, tmp_path: Path) -> None:
    folder = npm(PACKAGE)
    url = f"{served.url}/v1/conversations/chat/events"
    writer = threading.Thread(target=append_all, args=(url,))
    writer.start()
    while httpx.head(url).status_code != 200:
        time.sleep(0.01)
    seen: list[dict[str, Any]] = []
    command = node_command(folder, "eventsource.mjs", url, str(EVENTS))
    with (
        (tmp_path / "told").open("w") as told,
        subprocess.Popen(command, cwd=scripts_of(folder), stdout=subprocess.PIPE, stderr=told, text=True) as client,
    ):
        assert client.stdout is not None
        for line in client.stdout:
            seen.append(json.loads(line))
            if len(seen) in KILLS:
                served.restart()
    writer.join()
    said = (tmp_path / "told").read_text()
    assert client.returncode == 0, said
    assert [int(each["id"]) for each in seen] == list(range(1, EVENTS + 1))
    assert [json.loads(each["data"]) for each in seen] == [body(number) for number in range(1, EVENTS + 1)]
    assert said.count("open") == 1 + len(KILLS), said


def test_a_position_that_is_gone_gets_a_snapshot_and_then_the_tail(served: Served, npm: Npm) -> None:
    folder = npm(PACKAGE)
    url = f"{served.url}/v1/conversations/chat"
    named = [{"type": "conversation.created", "data": {"title": "t"}}] * 3
    httpx.post(f"{url}/events", json=named).raise_for_status()
    httpx.post(f"{url}/compact").raise_for_status()
    command = node_command(folder, "eventsource.mjs", f"{url}/events?after=1", "2")
    with subprocess.Popen(command, cwd=scripts_of(folder), stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        snapshot = json.loads(client.stdout.readline())
        httpx.post(f"{url}/events", json=[{"type": "tick", "data": {}}]).raise_for_status()
        event = json.loads(client.stdout.readline())
    assert (snapshot["type"], snapshot["id"]) == ("snapshot", "3")
    assert json.loads(snapshot["data"])["seq"] == 3
    assert (event["type"], event["id"]) == ("tick", "4")
