"""Durable Streams and forks of them while the server is killed again and again: what was answered holds."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from stream import open_store
from tests.faults.sizes import size
from tests.serving import Served, serve

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.heavy, pytest.mark.anyio]
TEXT = {"Content-Type": "text/plain"}
PATHS = 4


class Owner(threading.Thread):
    """One that alone creates, forks, writes, closes, deletes and reads a few paths, and knows what each of them holds.

    What gets no answer is sent again; the answer then may be that of a repeat.
    """

    def __init__(self, server: Served, number: int, chance: random.Random, over: threading.Event) -> None:
        super().__init__()
        self._server, self._number, self._chance, self._over = server, number, chance, over
        self._client = httpx.Client(timeout=20)
        self._held: dict[str, bytes | None] = {}  # None: deleted, and kept for its forks
        self._closed: set[str] = set()
        self._next: dict[str, int] = {}
        self.failure: BaseException | None = None
        self.done = 0

    def run(self) -> None:
        try:
            while not self._over.is_set():
                self._act(f"{self._number}/{self._chance.randrange(PATHS)}")
                self.done += 1
        except BaseException as error:  # noqa: BLE001 - told by the test
            self.failure = error
            self._over.set()
        finally:
            self._client.close()

    def _ask(self, method: str, path: str, *, first: int = 200, later: tuple[int, ...] = (), **sent: Any) -> httpx.Response:
        """The answer: `first` where the request was sent once, or one of `later` where it was sent again."""
        tries = 0
        while True:
            tries += 1
            try:
                answer = self._client.request(method, f"{self._server.url}/v1/stream/{path}", **sent)
            except httpx.TransportError:
                time.sleep(0.01)
                continue
            assert answer.status_code in ((first, *later) if tries > 1 else (first,)), (method, path, tries, answer.text)
            return answer

    def _act(self, path: str) -> None:
        chance, held = self._chance, self._held.get(path)
        if path not in self._held:
            sources = [each for each, content in self._held.items() if content is not None]
            source = chance.choice(sources) if sources and chance.random() < 0.6 else None
            told = {"Stream-Forked-From": source} if source is not None else {}
            self._ask("PUT", path, first=201, later=(200,), headers=TEXT | told, content=b"begin;")
            self._held[path] = (self._held[source] or b"" if source is not None else b"") + b"begin;"
            self._next[path] = 0
            self._closed.discard(path)
        elif held is None:
            if self._client_sees(path) == httpx.codes.NOT_FOUND:
                del self._held[path]
        elif (what := chance.random()) < 0.2:
            self._ask("DELETE", path, first=204, later=(404, 410))
            self._held[path] = None
        elif what < 0.5 or path in self._closed:
            assert self._ask("GET", path).content == held, path
        else:
            word = b"%d;" % self.done
            told = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": str(self._next[path])}
            told |= {"Stream-Closed": "true"} if what > 0.95 else {}
            self._ask("POST", path, first=200, later=(204,), headers=TEXT | told, content=word)
            self._held[path] = held + word
            self._next[path] += 1
            self._closed |= {path} if what > 0.95 else set()

    def _client_sees(self, path: str) -> int:
        while True:
            try:
                status = self._client.get(f"{self._server.url}/v1/stream/{path}").status_code
            except httpx.TransportError:
                time.sleep(0.01)
                continue
            assert status in (404, 410), path
            return status


async def test_forks_deletions_and_new_lives_survive_kills(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance, over = random.Random(seed), threading.Event()
    with serve(tmp_path / "streams.db") as server:
        owners = [Owner(server, n, random.Random(seed + n), over) for n in range(4)]
        for owner in owners:
            owner.start()
        for _ in range(size(smoke=3, full=60)):
            if not over.wait(0.1 + chance.random()):
                server.restart()
        over.wait(0.3)
        over.set()
        for owner in owners:
            owner.join()
        for owner in owners:
            if owner.failure is not None:
                raise owner.failure
        assert all(owner.done > 20 for owner in owners)
        paths = [f"{n}/{path}" for n in range(4) for path in range(PATHS)]
        for _ in range(PATHS):  # a fork may hold another
            for path in paths:
                httpx.delete(f"{server.url}/v1/stream/{path}")
        assert {httpx.get(f"{server.url}/v1/stream/{path}").status_code for path in paths} == {404}
        server.stop()
    async with open_store(str(tmp_path / "streams.db")) as store:
        lives = [info async for info in store.streams(prefix="ds:")]
    assert len(lives) > len(paths)
    assert [info.stream_id for info in lives if info.origin != info.head] == []
