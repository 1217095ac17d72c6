"""What everything is measured against: stdlib `sqlite3` that does the same durable work, and nothing else.

One connection in one plain thread, WAL, `synchronous=FULL`, one rowid table of the shape of ours with UNIQUE (stream,
last): integer stream key, number, time, id, type, data. No trigger, no check, no checksum, no answer to match. Rows hold
one event each and the same payload bytes; they are made before the clock starts. They go in by `executemany` between
BEGIN and COMMIT, over the same streams in turn; a transaction of one row is one `execute` in autocommit, one statement
instead of three. A scan is one cursor over one stream in order; msgspec decodes every body into the struct of its type.
"""

from __future__ import annotations

import itertools
import secrets
import sqlite3
import time
from typing import TYPE_CHECKING, Final

import msgspec

from projector.events import BODIES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from stream import NewEvent

Row = tuple[int, int, int, bytes, str, bytes]
_TABLE: Final = """
CREATE TABLE events (
  pos INTEGER PRIMARY KEY, stream INTEGER NOT NULL, last INTEGER NOT NULL, at INTEGER NOT NULL, id BLOB NOT NULL,
  type TEXT NOT NULL, data BLOB NOT NULL, UNIQUE (stream, last))"""
_INSERT: Final = "INSERT INTO events (stream, last, at, id, type, data) VALUES (?, ?, ?, ?, ?, ?)"
_SCAN: Final = "SELECT last, at, type, data FROM events WHERE stream = ? AND last > ? ORDER BY last"
_DECODERS: Final = {kind: msgspec.json.Decoder(body) for kind, body in BODIES.items()}


class RawLog:
    """A log without any promise but durability."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute(_TABLE)
        self._heads: dict[int, int] = {}

    def prepare(self, events: Sequence[NewEvent], count: int, *, streams: int, rows: int) -> list[list[Row]]:
        """At least `count` rows in transactions of `rows`, over the streams in turn; the events are used over again."""
        stream, event = itertools.cycle(range(streams)), itertools.cycle(events)
        return [[self._row(next(stream), next(event)) for _ in range(rows)] for _ in range(-(-count // rows))]

    def store(self, transactions: Sequence[Sequence[Row]]) -> float:
        """Commits them one after the other; returns the rows a second."""
        execute = self._connection.execute
        began = time.perf_counter()
        for rows in transactions:
            if len(rows) == 1:
                execute(_INSERT, rows[0])
            else:
                execute("BEGIN IMMEDIATE")
                self._connection.executemany(_INSERT, rows)
                execute("COMMIT")
        return sum(map(len, transactions)) / (time.perf_counter() - began)

    def scan(self, stream: int = 0, *, after: int = 0) -> int:
        """Reads and decodes what comes after a position; returns how many."""
        count = 0
        for _, _, kind, data in self._connection.execute(_SCAN, (stream, after)):
            _DECODERS[kind].decode(data)
            count += 1
        return count

    def read(self, stream: int = 0, *, after: int = 0) -> list[tuple[int, int, str, bytes]]:
        """What comes after a position, as it is."""
        return self._connection.execute(_SCAN, (stream, after)).fetchall()

    def close(self) -> None:
        self._connection.close()

    def _row(self, stream: int, event: NewEvent) -> Row:
        last = self._heads[stream] = self._heads.get(stream, 0) + 1
        return (stream, last, time.time_ns() // 1_000_000, secrets.token_bytes(16), event.type, event.data)


def fill(raw: RawLog, events: Iterator[NewEvent], *, rows: int = 1000) -> None:
    """Puts all events into stream 0."""
    for batch in iter(lambda: list(itertools.islice(events, rows)), []):
        raw.store(raw.prepare(batch, len(batch), streams=1, rows=len(batch)))
