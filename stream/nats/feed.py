"""What has changed in all logs: the order of each JetStream stream is the feed of what lies in it, and misses nothing.

A token says how far each was seen. What moved since is walked through once, and paged by the ids of the streams; messages
that have been let go meanwhile are told by those behind them.
"""

from __future__ import annotations

import asyncio
import bisect
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

import msgspec

from stream.checks import check_text
from stream.errors import Diverged
from stream.feed import check_page, seal, unseal
from stream.nats.layout import untoken
from stream.nats.state import read_state
from stream.records import Changes

if TYPE_CHECKING:
    from stream.nats.log import Log

_MAX_WALKS: Final = 8

Numbers = tuple[int, ...]
"""A place in each JetStream stream."""


class FeedPlace(msgspec.Struct, frozen=True, array_like=True):
    """All up to `since` is known; of what follows up to `through`, if there is one, the streams up to the id `key` are."""

    since: Numbers
    through: Numbers = ()
    key: str = ""


class _Move(msgspec.Struct):
    """Where a stream stood, and where it stands."""

    after: int
    head: int


_TOKEN: Final = msgspec.msgpack.Decoder(tuple[str, Any])


class Feed:
    """The feed of a store. It keeps what it has walked through last, so that its pages are cut from that."""

    def __init__(self, log: Log, incarnation: str) -> None:
        self._log = log
        self._incarnation = incarnation
        self._walks: OrderedDict[tuple[Numbers, Numbers], tuple[list[str], dict[str, _Move]]] = OrderedDict()

    async def changes(self, after: str, limit: int) -> Changes:
        """See `EventStore.changes`."""
        place = self.open(after)
        check_page(limit)
        end = await self.end()
        if any(reached > last for reached, last in zip(place.through or place.since, end, strict=True)):
            raise Diverged("", sum(place.through or place.since), sum(end))
        while True:
            begin = place if place.through else FeedPlace(place.since, end)
            names, moves = await self._walk(begin.since, begin.through, end)
            first = bisect.bisect_right(names, begin.key) if begin.key else 0
            page = names[first : first + limit]
            following = FeedPlace(begin.through)
            if first + limit < len(names):
                following = FeedPlace(begin.since, begin.through, page[-1])
            if page or begin is not place:
                spans = [(moves[name].after, moves[name].head) for name in page]
                return Changes(page, self._seal(following), spans, self._seal(begin))
            place = following  # nothing was left to go through: what has changed since?

    async def has_moved(self, place: FeedPlace) -> bool:
        """Whether there is anything behind a place."""
        return await self.end() != (place.through or place.since)

    async def end(self) -> Numbers:
        """The place behind all that has changed."""
        layout = self._log.layout
        lasts = [self._log.client.last(layout.stream(shard), layout.logs(shard)) for shard in range(layout.shards)]
        return tuple([raw.js if raw else 0 for raw in await asyncio.gather(*lasts)])

    def open(self, token: str) -> FeedPlace:
        """The place that a token tells; "" is before everything.

        Raises `Diverged` for a token of another incarnation, `ValueError` for what is no token.
        """
        check_text("after", token)
        shards = self._log.layout.shards
        if not token:
            return FeedPlace((0,) * shards)
        incarnation, said = unseal(token, _TOKEN)
        if incarnation != self._incarnation:
            raise Diverged("", 0, 0, incarnation=incarnation)
        place = msgspec.convert(said, FeedPlace)
        if len(place.since) != shards or len(place.through) not in (0, shards):
            raise ValueError("after is no token of this change feed: it is of another number of shards")
        return place

    def _seal(self, place: FeedPlace) -> str:
        return seal((self._incarnation, place))

    async def _walk(self, since: Numbers, through: Numbers, end: Numbers) -> tuple[list[str], dict[str, _Move]]:
        """The streams that moved between the two, by their ids; `end` is where everything ends now."""
        walk = self._walks.get((since, through))
        if walk is None:
            moves: dict[str, _Move] = {}
            for shard, places in enumerate(zip(since, through, end, strict=True)):
                await self._walk_shard(shard, *places, moves)
            walk = self._walks[since, through] = sorted(moves), moves
            while len(self._walks) > _MAX_WALKS:
                self._walks.popitem(last=False)
        self._walks.move_to_end((since, through))
        return walk

    async def _walk_shard(self, shard: int, since: int, through: int, end: int, moves: dict[str, _Move]) -> None:
        """A message says where its stream stood before it, and since which message: so the first one says where it stood then.

        Where that one has been let go of, all is gone that the stream held then. What follows behind `through` is looked
        at only for streams whose messages before it are gone.
        """
        if since == through:
            return
        home, subject = self._log.layout.stream(shard), self._log.layout.logs(shard)
        seen: set[str] = set()
        async for raw in self._log.walk(home, subject, since + 1, end):
            name = raw.subject.rpartition(".")[2]
            if raw.js > through and name in seen:
                continue
            stream_id = untoken(name)
            state = read_state(stream_id, raw.said)
            if state.left:  # the last of its batch tells, if it is there
                continue
            if raw.js <= through:
                after = state.head - state.n if 0 < state.since <= since else 0
                moves.setdefault(stream_id, _Move(after, 0)).head = state.head
            elif since < state.since <= through:
                moves[stream_id] = _Move(0, state.head - state.n)
            seen.add(name)
