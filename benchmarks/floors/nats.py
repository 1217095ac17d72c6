"""nats-py alone: the very bytes that ours keeps, on JetStream streams with the settings of ours, each acknowledged.

The messages are made before the clock starts, and have no header: neither what ours says of its stream, nor where it is
expected. What many writers wait for goes as a message each, one behind the other or as many under way as there are writers; or
as an atomic batch, which is sent by hand, for the driver knows none, also two and four of them at once. Where there are more
writers than conversations ours puts the appends that wait for one conversation into one message: so does the driver, besides a
message each. Ours may choose among these as it goes, and so may the floor.

Read are the messages that our own store has written, an append each: by pages of direct gets, by a consumer that pulls, and by
an ordered consumer, each unpacked to types and data.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import secrets
import time
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec

from benchmarks.floors import CONVERSATIONS, EVENTS, READ
from stream.nats.address import read_address
from stream.nats.layout import Layout
from stream.opening import open_store
from stream.tables.chunks import join, pack

if TYPE_CHECKING:
    from benchmarks.measuring import Side, SizedSide

_TIMEOUT_S: Final = 30.0
_PAGE: Final = 1000
_CHUNK: Final = msgspec.msgpack.Decoder(list[tuple[int, bytes | None, list[tuple[str, bytes]]]])
_EVENT: Final = itertools.cycle(EVENTS)
_Way = tuple[int, int, int]
"""So many senders at once, each with so many messages in an atomic batch, each of so many appends."""

_WAYS: Final[dict[int, tuple[_Way, ...]]] = {
    1: ((1, 1, 1),),
    10: ((1, 1, 1), (10, 1, 1), (1, 10, 1), (2, 5, 1)),
    100: ((1, 1, 1), (100, 1, 1), (1, 100, 1), (2, 50, 1), (4, 25, 1)),
}
_MANY: Final[tuple[_Way, ...]] = ((1000, 1, 1), (1, 1000, 1), (4, 250, 1), (100, 1, 10), (1, 100, 10), (2, 50, 10))


class NatsFloor:
    """A `Floor` over one connection."""

    def __init__(self, url: str, driver: Any, ours: Layout) -> None:
        self.url = url
        self._driver = driver
        self._ours = ours
        self._raw = Layout(f"{ours.name}raw", ours.shards)

    @classmethod
    async def open(cls, url: str) -> Self:
        """Has our store make its JetStream streams, and makes some of the same settings. Raises what either raises."""
        import nats  # noqa: PLC0415 - an extra

        address = read_address(url)
        parts = urlsplit(url)
        name = f"bench_{secrets.token_hex(4)}"
        own = urlunsplit(parts._replace(query=urlencode([*_but_stream(parts.query), ("stream", name)])))
        async with open_store(own):
            pass
        driver = await nats.connect(address.servers, pending_size=64 * 1024 * 1024, **address.credentials)
        floor = cls(own, driver, Layout(name, address.shards or 1))
        try:
            for shard in range(floor._raw.shards):
                info = await floor._ask(f"STREAM.INFO.{floor._ours.stream(shard)}")
                config = info["config"] | {"name": floor._raw.stream(shard), "subjects": floor._raw.subjects(shard)}
                await floor._ask(f"STREAM.CREATE.{config['name']}", config | {"republish": floor._raw.republish(shard)})
        except BaseException:
            await floor.close()
            raise
        return floor

    def ways(self, writers: int) -> dict[str, SizedSide]:
        """See `Floor.ways`."""
        return {_called(way): functools.partial(self._store, way) for way in _WAYS.get(writers, _MANY)}

    async def fill(self, amount: int) -> None:
        """Nothing: what our store has written is read."""

    def reads(self, amount: int) -> dict[str, Side]:
        """See `Floor.reads`."""
        ways = {"direct gets": self._get, "a pulling consumer": self._pull, "an ordered consumer": self._follow}
        return {name: functools.partial(_timed, way, amount) for name, way in ways.items()}

    async def close(self) -> None:
        """See `Floor.close`."""
        for layout in (self._raw, self._ours):
            for shard in range(layout.shards):
                await self._driver.request(f"$JS.API.STREAM.DELETE.{layout.stream(shard)}", timeout=_TIMEOUT_S)
        await self._driver.close()

    async def _ask(self, api: str, question: object = None) -> dict[str, Any]:
        said = await self._driver.request(f"$JS.API.{api}", msgspec.json.encode(question or {}), timeout=_TIMEOUT_S)
        answer: dict[str, Any] = msgspec.json.decode(_checked(said.data))
        return answer

    async def _store(self, way: _Way, amount: int) -> float:
        senders, messages, appends = way
        rounds = max(1, amount // (senders * messages * appends))
        plans = []
        for sender in range(senders):
            names = [f"conversation-{(sender * messages + number) % CONVERSATIONS}" for number in range(messages)]
            subjects = [self._raw.log(name) for name in sorted(names, key=self._raw.shard_of)]
            plans.append([[(subject, _made(appends)) for subject in subjects] for _ in range(rounds)])
        began = time.perf_counter()
        await asyncio.gather(*(self._send(plan) for plan in plans))
        return rounds * senders * messages * appends / (time.perf_counter() - began)

    async def _send(self, plan: list[list[tuple[str, bytes]]]) -> None:
        for messages in plan:
            if len(messages) == 1:
                [(subject, data)] = messages
                _checked((await self._driver.request(subject, data, timeout=_TIMEOUT_S)).data)
            else:
                shards = itertools.groupby(messages, lambda message: message[0].split(".", 2)[1])
                await asyncio.gather(*[self._send_batch(list(those)) for _, those in shards])

    async def _send_batch(self, messages: list[tuple[str, bytes]]) -> None:
        name = secrets.token_hex(8)
        *others, (subject, data) = messages
        for number, (other, its) in enumerate(others, 1):
            await self._driver.publish(other, its, headers={"Nats-Batch-Id": name, "Nats-Batch-Sequence": str(number)})
        headers = {"Nats-Batch-Id": name, "Nats-Batch-Sequence": str(len(messages)), "Nats-Batch-Commit": "1"}
        _checked((await self._driver.request(subject, data, headers=headers, timeout=_TIMEOUT_S)).data)

    async def _get(self, amount: int) -> int:
        home, subject = self._ours.home(READ), self._ours.log(READ)
        inbox = self._driver.new_inbox()
        answers = await self._driver.subscribe(inbox)
        count, begin = 0, 1
        while count < amount:
            question = msgspec.json.encode({"seq": begin, "next_by_subj": subject, "batch": _PAGE})
            await self._driver.publish(f"$JS.API.DIRECT.GET.{home}", question, reply=inbox)
            while "Status" not in ((message := await answers.next_msg(timeout=_TIMEOUT_S)).headers or {}):
                count += _unpacked(message.data)
                begin = int(message.headers["Nats-Sequence"]) + 1
        await answers.unsubscribe()
        return count

    async def _pull(self, amount: int) -> int:
        from nats.js.api import AckPolicy, ConsumerConfig  # noqa: PLC0415 - an extra

        home, subject = self._ours.home(READ), self._ours.log(READ)
        config = ConsumerConfig(ack_policy=AckPolicy.NONE, mem_storage=True)
        consumer = await self._driver.jetstream().pull_subscribe(subject, stream=home, config=config)
        count = 0
        while count < amount:
            count += sum([_unpacked(message.data) for message in await consumer.fetch(min(_PAGE, amount - count))])
        await consumer.unsubscribe()
        return count

    async def _follow(self, amount: int) -> int:
        home, subject = self._ours.home(READ), self._ours.log(READ)
        consumer = await self._driver.jetstream().subscribe(subject, stream=home, ordered_consumer=True)
        count = 0
        while count < amount:
            count += _unpacked((await consumer.next_msg(timeout=_TIMEOUT_S)).data)
        await consumer.unsubscribe()
        return count


def _made(appends: int) -> bytes:
    at = time.time_ns() // 1_000_000
    return join([(at, secrets.token_bytes(16), pack([next(_EVENT)])) for _ in range(appends)])


async def _timed(way: Any, amount: int) -> float:
    began = time.perf_counter()
    count = await way(amount)
    return float(count / (time.perf_counter() - began))


def _unpacked(data: bytes) -> int:
    return sum([len(events) for _, _, events in _CHUNK.decode(data)])


def _checked(answer: bytes) -> bytes:
    """Looks for a refusal as cheaply as can be. Raises `RuntimeError`."""
    if b'"error":' in answer:
        raise RuntimeError(answer.decode())
    return answer


def _called(way: _Way) -> str:
    senders, messages, appends = way
    packed = f", {appends} appends in each" if appends > 1 else ""
    if messages == 1:
        return f"{senders} messages at once{packed}" if senders > 1 else "a message at a time"
    return f"batch of {messages} messages, {senders} at once{packed}"


def _but_stream(query: str) -> list[tuple[str, str]]:
    return [pair for pair in parse_qsl(query, keep_blank_values=True) if pair[0] != "stream"]
