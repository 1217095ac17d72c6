"""Durable Streams across processes: servers that are killed, two servers on one file, clients that break off."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import httpx
import msgspec
import pytest

from ledger import NoConversation, open_ledger
from ledger.http.server import listen
from tests.faults.sizes import FULL
from tests.serving import Served, serve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.heavy
TEXT = {"Content-Type": "text/plain"}


def url_of(server: Served, path: str) -> str:
    return f"{server.url}/v1/stream/{path}"


def read_all(server: Served, path: str) -> bytes:
    got, offset = b"", "-1"
    while True:
        answer = httpx.get(url_of(server, path), params={"offset": offset})
        assert answer.status_code == 200, answer.text
        got, offset = got + answer.content, answer.headers["Stream-Next-Offset"]
        if "Stream-Up-To-Date" in answer.headers:
            return got


def told_by(client: httpx.Client, url: str) -> Iterator[tuple[str, bytes]]:
    """The events of a connection, as (event, data)."""
    with client.stream("GET", url) as answer:
        assert answer.status_code == 200
        event, lines = "", list[bytes]()
        for line in answer.iter_lines():
            name, _, value = line.partition(":")
            if name == "event":
                event = value.strip()
            elif name == "data":
                lines.append(value.encode())
            elif not line and lines:
                yield event, b"\n".join(lines)
                lines.clear()


def test_a_producers_retries_survive_kills(tmp_path: Path) -> None:
    """Hundreds of appends, several kills in the middle of them: nothing is lost, nothing is there twice."""
    appends, kills = (2000, 25) if FULL else (150, 2)
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    answers: dict[int, int] = {}
    with serve(tmp_path / "streams.db") as server, httpx.Client(timeout=5) as client:
        assert client.put(url_of(server, "a"), headers=TEXT).status_code == 201
        done = 0

        def kill() -> None:
            for n in range(1, kills + 1):
                while done < n * appends // (kills + 1):
                    time.sleep(0.001)
                time.sleep(chance.random() / 100)
                server.restart()

        killer = threading.Thread(target=kill)
        killer.start()
        while done < appends:
            told = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": str(done)}
            try:
                answer = client.post(url_of(server, "a"), content=b"%d\n" % done, headers=TEXT | told)
            except httpx.TransportError:
                time.sleep(0.005)
                continue
            assert answer.status_code in (200, 204), answer.text
            answers[answer.status_code] = answers.get(answer.status_code, 0) + 1
            done += 1
        killer.join()
        server.restart()
        assert read_all(server, "a") == b"".join(b"%d\n" % n for n in range(appends))
        again = client.post(
            url_of(server, "a"), content=b"x", headers=TEXT | {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "7"}
        )
        assert (again.status_code, again.headers["Producer-Seq"]) == (204, str(appends - 1))
    assert answers[200] > appends // 2


def test_a_close_and_its_repeat_survive_a_kill(tmp_path: Path) -> None:
    told = TEXT | {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0", "Stream-Closed": "true"}
    with serve(tmp_path / "streams.db") as server:
        httpx.put(url_of(server, "a"), headers=TEXT | {"Stream-TTL": "500"})
        assert httpx.post(url_of(server, "a"), content=b"all", headers=told).status_code == 200
        server.restart()
        repeat = httpx.post(url_of(server, "a"), content=b"all", headers=told)
        assert (repeat.status_code, repeat.headers["Stream-Closed"]) == (204, "true")
        assert httpx.post(url_of(server, "a"), content=b"more", headers=TEXT).status_code == 409
        assert httpx.head(url_of(server, "a")).headers["Stream-TTL"] == "500"
        assert read_all(server, "a") == b"all"


def test_two_servers_on_one_file_see_each_other(tmp_path: Path) -> None:
    database = tmp_path / "streams.db"
    with serve(database, "--long-poll-timeout", "10") as one, serve(database) as two, httpx.Client(timeout=20) as client:
        assert client.put(url_of(one, "a"), headers=TEXT, content=b"1").status_code == 201
        assert client.put(url_of(two, "a"), headers=TEXT).status_code == 200
        followed = told_by(client, url_of(two, "a") + "?offset=-1&live=sse")
        assert next(followed) == ("data", b"1")
        assert msgspec.json.decode(next(followed)[1])["upToDate"] is True
        for n in range(2, 12):
            server = (one, two)[n % 2]
            told = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": str(n - 2)}
            assert client.post(url_of(server, "a"), content=b"%d" % n, headers=TEXT | told).status_code == 200
            other = (one, two)[(n + 1) % 2]
            assert client.post(url_of(other, "a"), content=b"%d" % n, headers=TEXT | told).status_code == 204
            assert client.get(url_of(other, "a")).text.endswith(str(n))
        got = b""
        while not got.endswith(b"11"):
            event, data = next(followed)
            got += data if event == "data" else b""
        assert got == b"234567891011"
        assert client.delete(url_of(one, "a")).status_code == 204
        assert {event for event, _ in followed} <= {"control"}, "it ends where the stream does"
        assert client.get(url_of(two, "a")).status_code == 404


@pytest.mark.parametrize(("then", "status"), [("DELETE", 404), ("CLOSE", 204), ("POST", 200)])
def test_who_waits_is_told_what_another_server_did(tmp_path: Path, then: str, status: int) -> None:
    database = tmp_path / "streams.db"
    with serve(database, "--long-poll-timeout", "10") as one, serve(database) as two:
        httpx.put(url_of(one, "a"), headers=TEXT, content=b"1")
        answers: list[httpx.Response] = []

        def wait() -> None:
            answers.append(httpx.get(url_of(one, "a") + "?offset=now&live=long-poll", timeout=20))

        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.3)
        sent: dict[str, Any] = {"content": b"2"} if then == "POST" else {}
        closing = {"Stream-Closed": "true"} if then == "CLOSE" else {}
        httpx.request("POST" if then == "CLOSE" else then, url_of(two, "a"), headers=TEXT | closing, **sent)
        began = time.monotonic()
        waiting.join()
        assert time.monotonic() - began < 5
        assert answers[0].status_code == status
        assert answers[0].content == (b"2" if then == "POST" else answers[0].content)


def test_a_server_that_stops_lets_go_of_those_who_wait(tmp_path: Path) -> None:
    with serve(tmp_path / "streams.db", "--long-poll-timeout", "60") as server:
        httpx.put(url_of(server, "a"), headers=TEXT)
        answers: list[httpx.Response] = []

        def wait() -> None:
            with contextlib.suppress(httpx.TransportError):  # one that came too late to be taken
                answers.append(httpx.get(url_of(server, "a") + "?offset=now&live=long-poll", timeout=60))

        waiting = [threading.Thread(target=wait) for _ in range(20)]
        for each in waiting:
            each.start()
        time.sleep(1)
        began = time.monotonic()
        server.stop()
        for each in waiting:
            each.join()
        assert time.monotonic() - began < 3
        assert {answer.status_code for answer in answers} == {204}


def test_a_time_to_live_goes_on_over_a_kill(tmp_path: Path) -> None:
    with serve(tmp_path / "streams.db") as server:
        httpx.put(url_of(server, "a"), headers=TEXT | {"Stream-TTL": "2"})
        until = time.monotonic() + 1.6
        while time.monotonic() < until:
            assert httpx.get(url_of(server, "a")).status_code == 200
            time.sleep(0.05)
        server.restart()
        time.sleep(max(0.0, until + 1.2 - time.monotonic()))  # 2.8 s after its creation, 1.2 s after the last look
        assert httpx.head(url_of(server, "a")).status_code == 200
        time.sleep(2)
        assert httpx.head(url_of(server, "a")).status_code == 404


def test_bodies_that_break_off_and_bodies_that_are_large(tmp_path: Path) -> None:
    with serve(tmp_path / "streams.db", "--max-body", str(11 * 1024 * 1024)) as server:
        httpx.put(url_of(server, "a"), headers=TEXT)
        place = ("127.0.0.1", server.port)
        begin = b"POST /v1/stream/a HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: text/plain\r\n"
        for head in (b"Content-Length: 1000", b"Transfer-Encoding: chunked"):
            with socket.create_connection(place) as connection:
                connection.sendall(begin + head + b"\r\n\r\n3\r\nabc\r\n")
        assert httpx.post(url_of(server, "a"), content=b"x" * (12 << 20), headers=TEXT).status_code == 413
        large = random.Random(1).randbytes(10 << 20)
        assert httpx.put(url_of(server, "b"), headers={"Content-Type": "image/png"}, content=large).status_code == 201
        assert read_all(server, "b") == large
        assert read_all(server, "a") == b""


def test_requests_that_are_not_what_they_seem(tmp_path: Path) -> None:
    with serve(tmp_path / "streams.db") as server:
        httpx.put(url_of(server, "a/b"), headers=TEXT, content=b"x")
        place = ("127.0.0.1", server.port)
        for target in (b"a%2Fb", b"a/../a/b", b"c/%2e%2e/a/b", b"a//b", b"./a/b", b"a/b%23", b"__ds/x", b"a/b/"):
            with socket.create_connection(place) as connection:
                connection.sendall(b"GET /v1/stream/" + target + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
                answer = b"".join(iter(lambda: connection.recv(65536), b""))
            assert answer.startswith(b"HTTP/1.1 400 "), (target, answer[:60])
        assert httpx.patch(url_of(server, "a/b")).status_code == 405
        assert httpx.get(url_of(server, "a/b") + "?offset=-1&offset=-1").status_code == 400
        assert httpx.get(url_of(server, "a/b") + "?live=often&offset=-1").status_code == 400


def test_small_answers_are_sent_at_once() -> None:
    """An event loop turns Nagle's waiting off (40 ms an answer) for sockets of which it sees that they are TCP."""
    with listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


@pytest.mark.anyio
async def test_the_ledger_leaves_streams_of_the_protocol_alone(tmp_path: Path) -> None:
    database = tmp_path / "streams.db"
    with serve(database) as server:
        async with httpx.AsyncClient(base_url=server.url) as client, open_ledger(str(database)) as ledger:
            async with ledger.run("talk") as run:
                await run.message("user", "hello")
            [begun] = await ledger.store.read("talk", limit=1)
            events = [{"type": begun.type, "data": msgspec.json.decode(begun.data)}]
            assert (await client.put("/v1/stream/talk", headers=TEXT, content=b"x")).status_code == 201
            looks = {"Content-Type": "application/json"}
            assert (await client.put("/v1/stream/run.started", headers=looks, json=events)).status_code == 201
            assert [each.conversation async for each in ledger.conversations()] == ["talk"]
            for path in ("talk", "run.started"):
                for do in (ledger.compact, ledger.erase):
                    with pytest.raises(NoConversation, match="begins with"):
                        await do(f"ds:{path}#1")
            refused = await client.post("/v1/conversations/ds:talk%231/events", json=events)
            assert refused.status_code in (400, 404, 422)
            assert (await client.get("/v1/stream/talk")).text == "x"
            assert (await client.get("/v1/stream/run.started")).json() == events
