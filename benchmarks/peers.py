"""Other libraries that keep events or conversations in SQLite, each by its own documented fast path.

All run with WAL and `synchronous=FULL` on the same file system, with the same texts, 100 writers over 100 streams:

* `eventsourcing`: `SQLiteAggregateRecorder.insert_events`, k events a call, a thread a writer (it is synchronous), the
  pool's default size, its time-outs raised to a minute. It sets WAL; FULL is SQLite's default, where the build did not
  change it (`machine.default_synchronous` of the run tells). One thread that did the work of all hundred would be about
  1.5 times as fast: its threads queue for one lock.
* `openai-agents`: `SQLiteSession.add_items`, k items a call, a session and a task a writer. It sets WAL; FULL is the default.
* `langgraph-checkpoint-sqlite`: `AsyncSqliteSaver.aput` of a state of 200 messages, one call a step, a thread id and a
  task a writer. It sets WAL; FULL is set on its connection.

One that is not installed is named and left out.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import resource
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import aiosqlite

from benchmarks.talk import deltas, texts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

WRITERS: Final = 100
_STATE_MESSAGES: Final = 200
_PATIENCE_S: Final = 60
_OPEN_FILES: Final = 8192


class EventSourcing:
    """Recorder of aggregates' events."""

    def __init__(self, path: Path) -> None:
        sqlite = importlib.import_module("eventsourcing.sqlite")
        self._make = importlib.import_module("eventsourcing.persistence").StoredEvent
        self._datastore = sqlite.SQLiteDatastore(str(path), lock_timeout=_PATIENCE_S, pool_timeout=float(_PATIENCE_S))
        self._recorder = sqlite.SQLiteAggregateRecorder(self._datastore)
        self._recorder.create_table()
        self._streams = [uuid.uuid4() for _ in range(WRITERS)]
        self._heads = [0] * WRITERS
        self._events = deltas(1000)
        self._threads = ThreadPoolExecutor(WRITERS)

    async def store(self, amount: int, k: int) -> float:
        """Inserts about so many events, `k` a call; returns events a second."""
        calls = max(1, amount // (WRITERS * k))
        prepared = [[self._batch(writer, k) for _ in range(calls)] for writer in range(WRITERS)]
        began = time.perf_counter()
        list(self._threads.map(self._write, prepared))
        return calls * k * WRITERS / (time.perf_counter() - began)

    async def close(self) -> None:
        self._threads.shutdown()
        self._datastore.close()

    def _batch(self, writer: int, k: int) -> list[Any]:
        first = self._heads[writer] + 1
        self._heads[writer] += k
        events = [self._events[(writer + seq) % len(self._events)] for seq in range(first, first + k)]
        return [self._make(self._streams[writer], seq, event.type, event.data) for seq, event in enumerate(events, first)]

    def _write(self, calls: list[list[Any]]) -> None:
        for events in calls:
            self._recorder.insert_events(events)


class OpenAIAgents:
    """Sessions of items."""

    def __init__(self, path: Path) -> None:
        _allow_open_files()  # it opens a connection a session and thread
        session = importlib.import_module("agents.memory.sqlite_session").SQLiteSession
        self._sessions = [session(f"session-{writer}", path) for writer in range(WRITERS)]
        self._items = [{"role": "assistant", "content": text} for text in texts(1000)]

    async def store(self, amount: int, k: int) -> float:
        """Adds about so many items, `k` a call; returns items a second."""
        calls = max(1, amount // (WRITERS * k))

        async def write(writer: int) -> None:
            for call in range(calls):
                start = (writer * 7 + call * k) % (len(self._items) - k)
                await self._sessions[writer].add_items(self._items[start : start + k])

        return calls * k * WRITERS / await _all_at_once(write)

    async def close(self) -> None:
        for session in self._sessions:
            session.close()


class LangGraph:
    """Checkpoints of a whole state."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._saver: Any = None
        said = texts(_STATE_MESSAGES * 10)
        messages = importlib.import_module("langchain_core.messages")
        kinds = (messages.HumanMessage, messages.AIMessage)
        self._state = [
            kinds[number % 2](content="".join(said[number * 10 : number * 10 + 10]), id=f"message-{number}")
            for number in range(_STATE_MESSAGES)
        ]
        self._empty = importlib.import_module("langgraph.checkpoint.base").empty_checkpoint

    async def store(self, amount: int, k: int) -> float:
        """Puts about so many checkpoints; returns steps a second, whatever `k`."""
        del k
        if self._saver is None:
            self._connection = await aiosqlite.connect(self._path)
            await self._connection.execute("PRAGMA synchronous = FULL")
            self._saver = importlib.import_module("langgraph.checkpoint.sqlite.aio").AsyncSqliteSaver(self._connection)
            await self._saver.setup()
        steps = max(1, amount // WRITERS)

        async def write(writer: int) -> None:
            config: dict[str, Any] = {"configurable": {"thread_id": f"thread-{writer}", "checkpoint_ns": ""}}
            for step in range(steps):
                checkpoint = {**self._empty(), "channel_values": {"messages": self._state}}
                config = await self._saver.aput(config, checkpoint, {"source": "loop", "step": step}, {})

        return steps * WRITERS / await _all_at_once(write)

    async def close(self) -> None:
        if self._saver is not None:
            await self._connection.close()


Peer = EventSourcing | OpenAIAgents | LangGraph
PEERS: Final[dict[str, Callable[[Path], Peer]]] = {
    "eventsourcing": EventSourcing,
    "openai-agents": OpenAIAgents,
    "langgraph-checkpoint-sqlite": LangGraph,
}
BY_STEP: Final = frozenset({"langgraph-checkpoint-sqlite"})
"""Peers that store a whole state a step instead of events: one rate, compared with appends of one event."""


def versions() -> dict[str, str | None]:
    """The installed version of every peer, None where there is none."""
    found: dict[str, str | None] = {}
    for name in PEERS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def _allow_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _OPEN_FILES:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES), hard)
        )


async def _all_at_once(write: Callable[[int], Awaitable[None]]) -> float:
    began = time.perf_counter()
    await asyncio.gather(*(write(writer) for writer in range(WRITERS)))
    return time.perf_counter() - began
