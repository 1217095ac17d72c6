"""What this process last knew of streams and producers: a starting point only, the statement decides."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from stream.tables.bounds import check_bounds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stream.admission import Append
    from stream.postgres.database import PostgresDatabase
    from stream.records import Producer

_MAX_CACHED: Final = 50_000
_LOOK_STREAMS: Final = "SELECT name, id, head, floor, origin, guard FROM streams WHERE name = ANY($1::text[])"
_ADD_STREAMS: Final = """
INSERT INTO streams (name) SELECT n FROM unnest($1::text[]) AS n
WHERE NOT EXISTS (SELECT 1 FROM streams WHERE name = n) ORDER BY n"""
_LOOK_PRODUCERS: Final = """
SELECT p.stream, p.name, p.id, p.epoch, p.seq FROM unnest($1::bigint[], $2::text[]) AS w (stream, name)
JOIN producers AS p ON p.stream = w.stream AND p.name = w.name"""
_ADD_PRODUCERS: Final = """
INSERT INTO producers (stream, name) SELECT w.stream, w.name FROM unnest($1::bigint[], $2::text[]) AS w (stream, name)
WHERE NOT EXISTS (SELECT 1 FROM producers AS p WHERE p.stream = w.stream AND p.name = w.name) ORDER BY 1, 2"""


class Stream:
    """A stream's key, its head and floor as this process last saw them."""

    __slots__ = ("floor", "head", "key")

    def __init__(self, key: int, head: int, floor: int) -> None:
        self.key, self.head, self.floor = key, head, floor


class Known:
    """A producer's key, and its newest append as this process last saw it; before the first one the epoch is -1."""

    __slots__ = ("epoch", "key", "seq")

    def __init__(self, key: int, epoch: int | None, seq: int | None) -> None:
        self.key = key
        self.epoch = -1 if epoch is None else epoch
        self.seq = -1 if seq is None else seq

    def goes_on_with(self, producer: Producer, planned: tuple[int, int] | None) -> bool:
        """Whether this looks like its next append, behind what is planned of it."""
        epoch, seq = planned or (self.epoch, self.seq)
        if producer.epoch == epoch:
            return producer.seq == seq + 1
        return producer.epoch > epoch and producer.seq == 0

    def note(self, producer: Producer) -> None:
        """It has appended this."""
        self.epoch, self.seq = max((self.epoch, self.seq), (producer.epoch, producer.seq))


class KeyCache:
    """Looks keys up once, and makes them where there are none; many at a time."""

    def __init__(self) -> None:
        self.streams: dict[str, Stream] = {}
        self.producers: dict[tuple[int, str], Known] = {}

    def trim(self) -> None:
        """Forgets the older half when it is too much: it is only a cache."""
        if len(self.streams) > _MAX_CACHED:
            self.streams = dict(itertools.islice(self.streams.items(), _MAX_CACHED // 2, None))
        if len(self.producers) > _MAX_CACHED:
            self.producers = dict(itertools.islice(self.producers.items(), _MAX_CACHED // 2, None))

    def forget(self, names: Iterable[str]) -> None:
        """What is known of these may be wrong."""
        gone = {stream.key for name in set(names) if (stream := self.streams.pop(name, None)) is not None}
        if gone:
            self.producers = {place: known for place, known in self.producers.items() if place[0] not in gone}

    async def know(self, database: PostgresDatabase, appends: Sequence[Append]) -> None:
        """Looks up, or makes, the keys of these, unless they are known. Raises `CorruptEvent`, and what the driver raises."""
        names = list(dict.fromkeys(append.stream_id for append in appends if append.stream_id not in self.streams))
        if names:
            await self._know_streams(database, names)
        wanted = {
            (self.streams[append.stream_id].key, append.producer.id): None for append in appends if append.producer is not None
        }
        places = [place for place in wanted if place not in self.producers]
        if places:
            await self._know_producers(database, places)

    async def _know_streams(self, database: PostgresDatabase, names: Sequence[str]) -> None:
        async with database.connected() as connection:
            for text in (_LOOK_STREAMS, _ADD_STREAMS, _LOOK_STREAMS):
                database.trips += 1
                rows = await connection.fetch(text, [name for name in names if name not in self.streams])
                for name, key, head, floor, origin, guard in rows:
                    check_bounds(name, floor, head, origin, guard)
                    self.streams[name] = Stream(key, head, floor)
                if all(name in self.streams for name in names):
                    return

    async def _know_producers(self, database: PostgresDatabase, places: Sequence[tuple[int, str]]) -> None:
        async with database.connected() as connection:
            for text in (_LOOK_PRODUCERS, _ADD_PRODUCERS, _LOOK_PRODUCERS):
                left = [place for place in places if place not in self.producers]
                if not left:
                    return
                database.trips += 1
                for stream, name, *numbers in await connection.fetch(text, *map(list, zip(*left, strict=True))):
                    self.producers[stream, name] = Known(*numbers)
