"""What this process last knew of streams and producers: a starting point only, the schema decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stream.tables.bounds import check_bounds
from stream.tables.known_producers import Known, without_oldest

if TYPE_CHECKING:
    from stream.admission import Append
    from stream.database import Sql

_LOOK_STREAM: Final = """
SELECT id, head, floor, origin, guard, (SELECT count(*) FROM (SELECT 1 FROM appends WHERE stream = id LIMIT 256))
FROM streams WHERE name = ?"""
_ADD_STREAM: Final = "INSERT INTO streams (name) SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM streams WHERE name = ?1)"
_LOOK_PRODUCER: Final = "SELECT id, epoch, seq FROM producers WHERE stream = ?1 AND name = ?2"
_ADD_PRODUCER: Final = f"INSERT INTO producers (stream, name) SELECT ?1, ?2 WHERE NOT EXISTS ({_LOOK_PRODUCER})"


class Stream:
    """A stream's key, its head and floor as this process last saw them, how far it is packed, and how much is not."""

    __slots__ = ("floor", "head", "is_due", "key", "name", "packed", "unpacked")

    def __init__(self, name: str, key: int, head: int, floor: int, unpacked: int) -> None:
        self.name = name
        self.key, self.head, self.floor, self.packed, self.unpacked = key, head, floor, 0, unpacked
        self.is_due = False


class KeyCache:
    """Looks keys up once, and makes them where there are none."""

    def __init__(self) -> None:
        self.streams: dict[str, Stream] = {}
        self.producers: dict[tuple[int, str], Known] = {}

    def trim(self) -> None:
        """Forgets the older half when it is too much: it is only a cache."""
        self.streams, self.producers = without_oldest(self.streams), without_oldest(self.producers)

    def has(self, append: Append) -> bool:
        """Whether its keys are known."""
        stream = self.streams.get(append.stream_id)
        return stream is not None and (append.producer is None or (stream.key, append.producer.id) in self.producers)

    async def know(self, sql: Sql, append: Append) -> None:
        """Looks up, or makes, the keys of an append, unless they are known."""
        stream = self.streams.get(append.stream_id) or await self.look_up_stream(sql, append.stream_id)
        if append.producer is not None and (stream.key, append.producer.id) not in self.producers:
            await self._look_up_producer(sql, stream.key, append.producer.id)

    async def look_again(self, sql: Sql, append: Append) -> Stream:
        """As `know`, and what is known already as it is now."""
        stream = await self.look_up_stream(sql, append.stream_id)
        if append.producer is not None:
            await self._look_up_producer(sql, stream.key, append.producer.id)
        return stream

    async def look_up_stream(self, sql: Sql, name: str) -> Stream:
        """The stream as it is now; raises `CorruptEvent` where its row is damaged."""
        rows = await sql(_LOOK_STREAM, (name,))
        if not rows:
            await sql(_ADD_STREAM, (name,))
            rows = await sql(_LOOK_STREAM, (name,))
        key, head, floor, origin, guard, unpacked = rows[0]
        check_bounds(name, floor, head, origin, guard)
        stream = self.streams.get(name)
        if stream is None:
            stream = self.streams[name] = Stream(name, key, head, floor, unpacked)
        else:  # the same object, so that what was counted is not forgotten
            stream.head, stream.floor = head, floor
        return stream

    async def _look_up_producer(self, sql: Sql, stream: int, name: str) -> None:
        place = (stream, name)
        rows = await sql(_LOOK_PRODUCER, place)
        if not rows:
            await sql(_ADD_PRODUCER, place)
            rows = await sql(_LOOK_PRODUCER, place)
        self.producers[place] = Known(*rows[0])
