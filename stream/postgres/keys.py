"""What this process last knew of streams and producers: a starting point only, the statement decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stream.errors import CorruptEvent
from stream.tables.bounds import check_bounds, watermark_of
from stream.tables.known_producers import Known, without_oldest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from stream.admission import Append
    from stream.postgres.database import PostgresDatabase

Damages = dict[tuple[str, str], CorruptEvent]
"""By stream, and by producer where only its row is damaged."""

_LOOK_STREAMS: Final = "SELECT name, id, head, floor, origin, guard FROM streams WHERE name = ANY($1::text[])"
_ADD_STREAMS: Final = """
INSERT INTO streams (name) SELECT n FROM unnest($1::text[]) AS n
WHERE NOT EXISTS (SELECT 1 FROM streams WHERE name = n) ORDER BY n"""
_LOOK_PRODUCERS: Final = """
SELECT p.stream, p.name, p.id, p.epoch, p.seq, p.first, p.last, p.guard
FROM unnest($1::bigint[], $2::text[]) AS w (stream, name)
JOIN producers AS p ON p.stream = w.stream AND p.name = w.name"""
_ADD_PRODUCERS: Final = """
INSERT INTO producers (stream, name) SELECT w.stream, w.name FROM unnest($1::bigint[], $2::text[]) AS w (stream, name)
WHERE NOT EXISTS (SELECT 1 FROM producers AS p WHERE p.stream = w.stream AND p.name = w.name) ORDER BY 1, 2"""


class Stream:
    """A stream's key, its head and floor as this process last saw them."""

    __slots__ = ("floor", "head", "key")

    def __init__(self, key: int, head: int, floor: int) -> None:
        self.key, self.head, self.floor = key, head, floor


class KeyCache:
    """Looks keys up once, and makes them where there are none; many at a time."""

    def __init__(self) -> None:
        self.streams: dict[str, Stream] = {}
        self.producers: dict[tuple[int, str], Known] = {}

    def trim(self) -> None:
        """Forgets the older half when it is too much: it is only a cache."""
        self.streams, self.producers = without_oldest(self.streams), without_oldest(self.producers)

    def forget(self, names: Iterable[str]) -> None:
        """What is known of these may be wrong."""
        gone = {stream.key for name in set(names) if (stream := self.streams.pop(name, None)) is not None}
        if gone:
            self.producers = {place: known for place, known in self.producers.items() if place[0] not in gone}

    async def know(self, database: PostgresDatabase, appends: Sequence[Append]) -> Damages:
        """Looks up, or makes, the keys of these, unless they are known; gives what can't be known, for its row is damaged.

        Raises what the driver raises.
        """
        damages: Damages = {}
        names = list(dict.fromkeys(append.stream_id for append in appends if append.stream_id not in self.streams))
        if names:
            await self._know_streams(database, names, damages)
        wanted = {
            (self.streams[append.stream_id].key, append.producer.id): append.stream_id
            for append in appends
            if append.producer is not None and append.stream_id in self.streams
        }
        places = {place: name for place, name in wanted.items() if place not in self.producers}
        if places:
            await self._know_producers(database, places, damages)
        return damages

    async def _know_streams(self, database: PostgresDatabase, names: Sequence[str], damages: Damages) -> None:
        left = list(names)
        async with database.connected() as connection:
            for text in (_LOOK_STREAMS, _ADD_STREAMS, _LOOK_STREAMS):
                database.trips += 1
                for name, key, head, floor, origin, guard in await connection.fetch(text, left):
                    try:
                        check_bounds(name, floor, head, origin, guard)
                    except CorruptEvent as damage:
                        damages[name, ""] = damage
                    else:
                        self.streams[name] = Stream(key, head, floor)
                left = [name for name in left if name not in self.streams and (name, "") not in damages]
                if not left:
                    return

    async def _know_producers(
        self, database: PostgresDatabase, places: Mapping[tuple[int, str], str], damages: Damages
    ) -> None:
        left = list(places)
        async with database.connected() as connection:
            for text in (_LOOK_PRODUCERS, _ADD_PRODUCERS, _LOOK_PRODUCERS):
                database.trips += 1
                for stream, name, key, *numbers in await connection.fetch(text, *map(list, zip(*left, strict=True))):
                    stream_id = places[stream, name]
                    try:
                        watermark = watermark_of(stream_id, name, [tuple(numbers)])
                    except CorruptEvent as damage:
                        damages[stream_id, name] = damage
                    else:
                        epoch, seq = (None, None) if watermark is None else (watermark.epoch, watermark.seq)
                        self.producers[stream, name] = Known(key, epoch, seq)
                left = [place for place in left if place not in self.producers and (places[place], place[1]) not in damages]
                if not left:
                    return


def damage_of(append: Append, damages: Damages) -> CorruptEvent | None:
    """Why this can't be stored, of what `know` gives."""
    producer_id = "" if append.producer is None else append.producer.id
    return damages.get((append.stream_id, "")) or damages.get((append.stream_id, producer_id))
