"""A server that is killed, two on one file, and clients that never read, send half or come and go: what is kept is whole."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest

from tests.http.clients import HTTP, Frame, follow
from tests.serving import Served, serve

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.heavy
COMES_AND_GOES: Final = 300
SILENT: Final = 40


def post(url: str, *numbers: int, size: int = 0, **headers: str) -> httpx.Response:
    given = [{"type": "tick", "data": {"n": number, "pad": "x" * size}} for number in numbers]
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HTTP.post(f"{url}/v1/conversations/c/events", json=given, headers=named)


def post_behind(number: int, url: str) -> httpx.Response:
    """Appended only as the event behind that number."""
    return post(url, number, Expected_Seq=str(number))


def memory_kb(pid: int) -> int:
    """Resident, of a process of Linux."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no such process")


def verify(server: Served) -> None:
    command = [sys.executable, "-m", "ledger.admin", "--data", server.database, "verify", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with serve(tmp_path / "talks.db") as found:
        yield found


def connect(server: Served, sent: bytes) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    client.sendall(sent)
    return client


def asked_for(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def test_what_one_server_takes_a_follower_of_another_on_the_same_file_gets(tmp_path: Path) -> None:
    with serve(tmp_path / "talks.db") as one, serve(tmp_path / "talks.db") as other:
        post(one.url, 1)
        with follow(f"{other.url}/v1/conversations/c/events") as frames:
            seen = [next(frames)]
            for number in range(2, 31):
                post(one.url if number % 2 else other.url, number)
                seen.append(next(frames))
        assert [int(frame.id) for frame in seen] == [frame.said["n"] for frame in seen] == list(range(1, 31))


def test_two_servers_settle_who_was_first(tmp_path: Path) -> None:
    """Both append after the same event; one of each two is told where the other has come to."""
    with serve(tmp_path / "talks.db") as one, serve(tmp_path / "talks.db") as other:
        for number in range(10):
            with ThreadPoolExecutor(2) as writers:
                answers = list(writers.map(partial(post_behind, number), (one.url, other.url)))
            assert sorted(answer.status_code for answer in answers) == [200, 409]
            assert [answer.json()["head"] for answer in answers if answer.status_code == 409] == [number + 1]
        verify(one)


def test_a_follower_waits_over_a_restart_and_misses_nothing(server: Served) -> None:
    """It comes back with the last id it has, as an EventSource does."""
    post(server.url, 1)
    seen: list[Frame] = []
    statuses: list[int] = []

    def follow_on() -> None:
        url = f"{server.url}/v1/conversations/c/events"
        while len(seen) < 60:
            with contextlib.suppress(httpx.TransportError):
                last = {"Last_Event_ID": seen[-1].id} if seen else {}
                with follow(url, timeout=5, **last) as frames:
                    statuses.append(frames.status)
                    for frame in frames:
                        seen.append(frame)
                        if len(seen) == 60:
                            return
            time.sleep(0.02)

    follower = threading.Thread(target=follow_on, daemon=True)
    follower.start()
    for number in range(2, 61):
        if number in (20, 40):
            if number == 20:
                server.kill()
            else:
                server.stop()
            server.start()
        post(server.url, number)
    follower.join(timeout=20)
    assert [int(frame.id) for frame in seen] == list(range(1, 61))
    assert set(statuses) == {200}, "any other would end an EventSource for ever"


def test_a_server_that_is_told_to_stop_lets_followers_go_at_once_and_ends_well(server: Served) -> None:
    post(server.url, 1)
    with contextlib.ExitStack() as stack:
        for _ in range(50):
            frames = stack.enter_context(follow(f"{server.url}/v1/conversations/c/events"))
            next(frames)
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 3
        with pytest.raises(httpx.RemoteProtocolError):  # cut, and not ended: nobody takes it for the whole
            next(frames)


def test_beyond_the_limit_an_eventsource_is_let_go_to_come_back_and_others_are_told(tmp_path: Path) -> None:
    with serve(tmp_path / "talks.db", "--max-connections", "2", "--cors", "https://app.example") as server:
        post(server.url, 1)
        url = f"{server.url}/v1/conversations/c"
        with follow(f"{url}/events") as one, follow(f"{url}/events") as other:
            assert [next(frames).id for frames in (one, other)] == ["1", "1"]
            refused = HTTP.get(url, headers={"Origin": "https://app.example"})
            assert (refused.status_code, refused.json()["error"]) == (503, "too_many_connections")
            assert refused.headers["retry-after"] == "5"
            assert refused.headers["access-control-allow-origin"] == "https://app.example"
            with follow(f"{url}/events", Accept="text/event-stream") as third:  # any other answer would end it for ever
                assert (third.status, third.response.headers["content-type"]) == (200, "text/event-stream")
                with pytest.raises(httpx.RemoteProtocolError):
                    next(third)
            assert HTTP.post(f"{url}/events", json=[]).status_code == 503
            other.response.close()
            until = time.monotonic() + 5
            while HTTP.get(url).status_code != 200 and time.monotonic() < until:
                time.sleep(0.02)
            assert HTTP.get(url).status_code == 200


def test_what_was_answered_is_there_after_a_kill_and_a_retry_adds_nothing(server: Served) -> None:
    for number in range(1, 41):
        attempt = partial(post, server.url, number, Expected_Seq=str(number - 1), Idempotency_Key=f"k{number}")
        if number % 10 == 0:
            killer = threading.Timer(0.002, server.kill)
            killer.start()
            with contextlib.suppress(httpx.TransportError):
                attempt()
            killer.join()
            server.restart()
        for _ in range(2):
            assert attempt().json() == {"first_seq": number, "last_seq": number}
    with follow(f"{server.url}/v1/conversations/c/events") as frames:
        assert [frame.said["n"] for frame in frames.take(40)] == list(range(1, 41))
    verify(server)


def test_clients_that_never_read_hold_no_memory(server: Served) -> None:
    """Each is behind by 30 MB of the log, and takes none of it."""
    for number in range(30):
        post(server.url, number, size=1_000_000)
    post(server.url, 30)
    before_kb = memory_kb(server.pid)
    with contextlib.ExitStack() as stack:
        for _ in range(SILENT):
            stack.enter_context(connect(server, asked_for("/v1/conversations/c/events")))
        time.sleep(1.5)
        grown_kb = memory_kb(server.pid) - before_kb
        assert grown_kb / SILENT < 8 * 1024, "the first few events each at most, not what they are behind"
        with follow(f"{server.url}/v1/conversations/c/events?after=30") as frames:
            assert next(frames).id == "31"


HALF_A_POST: Final = (
    b"POST /v1/conversations/c/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b'Content-Length: 100\r\n\r\n[{"type":"tick","data":{"n":'
)


def come_and_go(server: Served, count: int) -> None:
    post(server.url, 1)
    kinds = [
        asked_for("/v1/conversations/c/events"), asked_for("/v1/conversations/c/events")[:30], b"",
        HALF_A_POST,
        asked_for("/v1/conversations/c/events?after=900"), asked_for("/v1/conversations"),
    ]  # fmt: skip
    files_before = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
    for number in range(count):
        client = connect(server, kinds[number % len(kinds)])
        if number % 3 == 0 and kinds[number % len(kinds)]:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset, no farewell
        client.close()
    until = time.monotonic() + 10 + count / 200
    while len(list(Path(f"/proc/{server.pid}/fd").iterdir())) > files_before + 5 and time.monotonic() < until:
        time.sleep(0.05)
    assert len(list(Path(f"/proc/{server.pid}/fd").iterdir())) <= files_before + 5, "connections that are gone are let go"


def test_clients_that_come_and_go_leave_nothing_behind(server: Served) -> None:
    come_and_go(server, COMES_AND_GOES)
    shown = HTTP.get(f"{server.url}/v1/conversations/c").json()
    assert shown["head"] == 1, "half a body adds nothing"
    verify(server)


@pytest.mark.heavy
def test_ten_thousand_clients_come_and_go(server: Served) -> None:
    come_and_go(server, 5000)
    before_kb = memory_kb(server.pid)  # what so many took at once stays with the process
    come_and_go(server, 5000)
    assert memory_kb(server.pid) - before_kb < 20 * 1024
    assert HTTP.get(f"{server.url}/v1/conversations/c").json()["head"] == 2
    verify(server)


@pytest.mark.parametrize("cut", [0.0, 0.5, 0.99])
def test_half_a_body_adds_nothing_and_the_other_half_nothing_either(server: Served, cut: float) -> None:
    body = json.dumps([{"type": "tick", "data": {"n": number}} for number in range(100)]).encode()
    body += b" " * len(body)  # so that the last piece, too, would be whole without what is missing
    head = (
        f"POST /v1/conversations/c/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    client = connect(server, head.encode() + body[: int(len(body) * cut)])
    time.sleep(0.1)
    client.close()
    time.sleep(0.1)
    assert HTTP.get(f"{server.url}/v1/conversations/c").status_code == 404
    with connect(server, head.encode() + body) as whole:
        assert whole.recv(1000).startswith(b"HTTP/1.1 200")


def test_compaction_beside_followers_loses_nothing_to_any_of_them(server: Served) -> None:
    """Each gets every number, or a snapshot in place of those that are gone."""
    url = f"{server.url}/v1/conversations/c"
    created: list[dict[str, Any]] = [{"type": "conversation.updated", "data": {"title": "t"}}]
    HTTP.post(f"{url}/events", json=created)
    ends: list[int] = []

    def follow_on(after: int) -> None:
        last = after
        with follow(f"{url}/events?after={after}") as frames:
            for frame in frames:
                seq = int(frame.id)
                assert seq > last if frame.event == "snapshot" else seq == last + 1
                last = max(last, seq)
                if last >= 200:
                    ends.append(last)
                    return

    followers = [threading.Thread(target=follow_on, args=(after,), daemon=True) for after in (1, 1, 1, 0, 900)[:4]]
    for follower in followers:
        follower.start()
    for number in range(2, 201):
        HTTP.post(f"{url}/events", json=created)
        if number % 25 == 0:
            assert HTTP.post(f"{url}/compact").json()["floor"] == number
    for follower in followers:
        follower.join(timeout=20)
    assert ends == [200] * len(followers)
