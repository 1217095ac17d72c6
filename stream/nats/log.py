"""Reads the logs: where each is, from the leader, and what it holds, from whoever is near."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from stream.limits import MAX_PAGE_BYTES
from stream.nats.client import ROLLUP, Raw
from stream.nats.errors import refusal
from stream.nats.state import NOWHERE, Mark, Place, State, read_mark, read_state, write_mark
from stream.tables.chunks import split_within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stream.nats.client import Client
    from stream.nats.layout import Layout
    from stream.records import Event

_PAGE_MESSAGES: Final = 256
_MAX_KNOWN: Final = 10_000


class Log:
    """All logs of a store, over one connection."""

    def __init__(self, client: Client, layout: Layout) -> None:
        self.client = client
        self.layout = layout
        self._known: OrderedDict[tuple[str, int], int] = OrderedDict()
        """Where in JetStream what lies behind a number begins: a reader goes on from where he was."""

    async def place(self, stream_id: str) -> Place:
        """The last message of a log, as it is now. Raises `CorruptEvent`."""
        home, subject = self.layout.home(stream_id), self.layout.log(stream_id)
        place = _place(stream_id, await self.client.last(home, subject))
        if not place.state.left:
            return place
        # More of this batch is to come, or a server died in the middle of it: what is stored behind it tells which.
        await self.pass_fence(self.layout.shard_of(stream_id))
        again = _place(stream_id, await self.client.last(home, subject))
        if again.js != place.js:
            return await self.place(stream_id)
        await self.drop_below(stream_id, place.js + 1)
        return NOWHERE

    async def pass_fence(self, shard: int) -> None:
        """Returns when all is stored, or is not, that was under way before."""

        async def once() -> int:
            return await self.client.send(self.layout.fence(shard), b"", ROLLUP)

        await self.client.again(once)

    async def drop_below(self, stream_id: str, js: int) -> None:
        """Lets go of the messages of a log below a number in JetStream."""
        await self.purge(stream_id, self.layout.log(stream_id), js)

    async def purge(self, stream_id: str, subject: str, js: int) -> None:
        """The same of any of the subjects beside it."""
        await self.client.ask(f"STREAM.PURGE.{self.layout.home(stream_id)}", {"filter": subject, "seq": js})

    async def subjects(self, shard: int, pattern: str) -> list[str]:
        """Those that hold a message now, in no order."""
        found: dict[str, int] = {}
        while True:
            question = {"subjects_filter": pattern, "offset": len(found)}
            answer = await self.client.ask(f"STREAM.INFO.{self.layout.stream(shard)}", question)
            if error := answer.get("error"):
                raise refusal(error, self.client.path)
            page = answer["state"].get("subjects") or {}
            found |= page
            if not page or len(found) >= answer.get("total", 0):
                return list(found)

    async def mark(self, stream_id: str, place: Place, producer_id: str) -> Mark | None:
        """The watermark of a producer, where the log is at `place`. Raises `CorruptEvent`."""
        for mark in place.state.marks:
            if mark.id == producer_id:
                return mark
        if place is NOWHERE:
            return None
        raw = await self.client.last(self.layout.home(stream_id), self.layout.producer(stream_id, producer_id))
        return None if raw is None else read_mark(stream_id, raw.data)

    async def keep_mark(self, stream_id: str, mark: Mark) -> None:
        """Keeps a watermark beside the log, which is to say it no longer. It only rises, whoever else does the same."""
        home, subject = self.layout.home(stream_id), self.layout.producer(stream_id, mark.id)

        async def once() -> None:
            raw = await self.client.last(home, subject)
            kept = None if raw is None else read_mark(stream_id, raw.data)
            if kept is None or (kept.epoch, kept.seq) < (mark.epoch, mark.seq):
                await self.client.send(subject, write_mark(mark), ROLLUP, expected=raw.js if raw else 0)

        await self.client.again(once)

    async def walk(self, home: str, subject: str, begin: int, end: int, *, count: int = _PAGE_MESSAGES) -> AsyncIterator[Raw]:
        """The messages from number `begin` to `end` that are still there."""
        js = begin
        while js <= end:
            found, is_more = await self.client.scan(home, subject, js, count=count)
            for raw in found:
                if raw.js > end:
                    return
                yield raw
                js = raw.js + 1
            if js <= end and not is_more:  # whoever has answered may lag behind: the leader knows
                following = await self.client.get(home, seq=js, next_by_subj=subject)
                if following is None or following.js > end:
                    return
                yield following
                js = following.js + 1

    async def events(self, stream_id: str, place: Place, after: int, end: int) -> list[Event]:
        """Events behind `after` up to `end`, which is at most the head: as many as a page has, as far as they are there.

        None where others have let go of them since the log was at `place`.
        """
        events: list[Event] = []
        size_bytes = 0
        reached = after
        async for raw, state in self._messages(stream_id, place, after, end - after):
            found, found_bytes = _split(stream_id, raw, state, reached, end)
            if not found:
                continue
            if found[0].seq != reached + 1:
                break
            events += found
            size_bytes += found_bytes
            reached = found[-1].seq
            if reached >= end or size_bytes >= MAX_PAGE_BYTES:
                self._know(stream_id, reached, raw.js + 1 if reached == state.head else raw.js)
                break
        return events

    async def message(self, stream_id: str, place: Place, after: int) -> tuple[int, int, int, bytes] | None:
        """The message that holds the event behind `after`, as a chunk: its last number, how many, their checksum, its data."""
        async for raw, state in self._messages(stream_id, place, after, 1):
            if state.n and state.head > after:
                return state.head, state.n, state.crc, raw.data
        return None

    async def _messages(self, stream_id: str, place: Place, after: int, wanted: int) -> AsyncIterator[tuple[Raw, State]]:
        """From the one that holds the event behind `after` on, to `place`; maybe some before it."""
        home, subject = self.layout.home(stream_id), self.layout.log(stream_id)
        if place.state.n and place.state.head - place.state.n <= after < place.state.head:
            yield Raw(subject, place.js, "", place.data), place.state
            return
        begin = self._known.get((stream_id, after)) or await self.begin(stream_id, place, after)
        async for raw in self.walk(home, subject, begin, place.js, count=min(wanted, _PAGE_MESSAGES)):
            yield raw, read_state(stream_id, raw.said)

    async def begin(self, stream_id: str, place: Place, after: int) -> int:
        """A number in JetStream from which on all lies that is behind `after`, and nothing that is not, but for one message.

        Back from the end in growing steps, then halved: a few questions, wherever it lies.
        """
        home, subject = self.layout.home(stream_id), self.layout.log(stream_id)
        low, high = 0, place.js  # what lies at `low` or before it is not wanted, the first that is lies at `high` or before it
        step = 4 * (place.state.head - after)
        while low + 1 < high:
            probe = max(high - step, low + 1) if step < high - low else (low + high) // 2
            step *= 4
            found, _ = await self.client.scan(home, subject, probe, count=1)
            raw = found[0] if found else await self.client.get(home, seq=probe, next_by_subj=subject)
            if raw is None:  # it has been deleted meanwhile
                return low + 1
            if read_state(stream_id, raw.said).head > after:
                high = probe
            else:
                low, step = raw.js, high
        return low + 1

    def _know(self, stream_id: str, reached: int, js: int) -> None:
        self._known[stream_id, reached] = js
        self._known.move_to_end((stream_id, reached))
        while len(self._known) > _MAX_KNOWN:
            self._known.popitem(last=False)


def _place(stream_id: str, raw: Raw | None) -> Place:
    return NOWHERE if raw is None else Place(raw.js, read_state(stream_id, raw.said), raw.data)


def _split(stream_id: str, raw: Raw, state: State, after: int, end: int) -> tuple[list[Event], int]:
    if not state.n or state.head <= after:
        return [], 0
    return split_within(stream_id, state.head, state.n, state.crc, raw.data, after=after, end=end)
