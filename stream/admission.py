"""Decides whether an append is stored, answered from memory, or refused.

One pure decision for every backend: memory asks it before storing; SQLite lets its triggers decide in the same
terms and asks it afterwards why a row was refused.
"""

from __future__ import annotations

import hashlib
import itertools
from typing import TYPE_CHECKING, Final

import msgspec

from stream.checks import check_list, shown
from stream.errors import InvalidEvent, ProducerFenced, ProducerGap, SeqConflict
from stream.limits import LIMITS, MAX_INTEGER, check_events, check_id, check_position, check_producer
from stream.records import AppendResult, Event, NewEvent, Producer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stream.limits import Limits

_COUNTER: Final = itertools.count()


class Append(msgspec.Struct, frozen=True, gc=False):
    """A checked request. `aid` names it: 16 bytes from `append_id` and content, or 8 that only this process knows."""

    stream_id: str
    events: tuple[NewEvent, ...]
    expected_seq: int | None
    producer: Producer | None
    aid: bytes
    named: bool


class Watermark(msgspec.Struct, frozen=True):
    """What a stream remembers of a producer: its newest append and the numbers that got."""

    epoch: int
    seq: int
    first_seq: int
    last_seq: int


def admit(append: Append, *, head: int, watermark: Watermark | None, earlier: AppendResult | None) -> AppendResult | None:
    """Returns None if the append goes in at `head`, or the answer it had got before.

    `earlier` is the answer of a stored append with the same `aid` that began right after `expected_seq`. Raises
    `ProducerFenced`, `ProducerGap` or `SeqConflict`; the producer is judged first, so that a retry of an append
    that had moved the head is a duplicate and no conflict.
    """
    producer, expected = append.producer, append.expected_seq
    if producer is not None:
        repeat = _judge_producer(append.stream_id, producer, head, watermark)
        if repeat is not None:
            return repeat
    if expected is None or expected == head:
        return None
    if append.named and earlier is not None:
        return earlier
    raise SeqConflict(append.stream_id, expected, head)


def prepare(
    stream_id: str,
    events: Sequence[NewEvent],
    *,
    expected_seq: int | None,
    append_id: str | None,
    producer: Producer | None,
    limits: Limits = LIMITS,
) -> Append:
    """Checks what a caller gave, before anything is stored.

    Raises `InvalidId`, `InvalidEvent` or `ValueError`; an `append_id` needs an `expected_seq` and excludes a
    producer, and a producer's append is never empty.
    """
    check_id("stream id", stream_id)
    check_events(events, limits=limits)
    if expected_seq is not None:
        check_position("expected_seq", expected_seq)
        if expected_seq + len(events) > MAX_INTEGER:
            raise ValueError(f"expected_seq {expected_seq} leaves no room for {len(events)} events")
    if producer is not None:
        check_producer(producer)
        if not events:
            raise ValueError("a producer's append needs at least one event")
    aid = next(_COUNTER).to_bytes(8, "big")
    if append_id is not None:
        check_id("append id", append_id)
        if expected_seq is None or producer is not None:
            raise ValueError("append_id goes with expected_seq, and never beside a producer")
        aid = _digest(stream_id, expected_seq, append_id, events)
    return Append(stream_id, tuple(events), expected_seq, producer, aid, append_id is not None)


def check_adoption(
    stream_id: str, events: Sequence[Event], *, floor: int, origin: int, producers: Sequence[Producer], limits: Limits = LIMITS
) -> None:
    """Checks what `adopt` is given. Raises `InvalidId`, `InvalidEvent` or `ValueError`."""
    check_id("stream id", stream_id)
    check_position("floor", floor)
    check_position("origin", origin)
    if floor > MAX_INTEGER // 2:
        raise ValueError(f"floor {floor} leaves no room for events")
    if origin > floor:
        raise ValueError(f"origin {origin} lies above the floor {floor}")
    check_list("events", events, "Events")
    check_list("producers", producers, "Producers")
    if not events and not floor:
        raise ValueError("there is nothing to adopt: no events, and no floor")
    for index, event in enumerate(events):
        if not isinstance(event, Event):
            raise InvalidEvent(index, f"it is {shown(event)}, not an Event")
        check_events([NewEvent(event.type, event.data)], first_index=index, limits=limits)
        if check_position("seq", event.seq) != floor + 1 + index:
            raise InvalidEvent(index, f"its number is {event.seq}, after the floor {floor} it must be {floor + 1 + index}")
        check_position("at", event.at)
    for producer in producers:
        check_producer(producer)


def _judge_producer(stream_id: str, producer: Producer, head: int, watermark: Watermark | None) -> AppendResult | None:
    if watermark is None or producer.epoch > watermark.epoch:
        if producer.seq != 0:
            raise ProducerGap(stream_id, producer.id, 0)
        return None
    if producer.epoch < watermark.epoch:
        raise ProducerFenced(stream_id, producer.id, watermark.epoch)
    if producer.seq > watermark.seq + 1:
        raise ProducerGap(stream_id, producer.id, watermark.seq + 1)
    if producer.seq == watermark.seq + 1:
        return None
    if producer.seq == watermark.seq:
        return AppendResult(watermark.first_seq, watermark.last_seq, duplicate=True)
    return AppendResult(head + 1, head, duplicate=True)


def _digest(stream_id: str, expected_seq: int, append_id: str, events: Sequence[NewEvent]) -> bytes:
    """Place and content are part of the name: a repeat elsewhere, or with other content, is another append."""
    digest = hashlib.blake2b(digest_size=16)
    place = (stream_id.encode(), str(expected_seq).encode(), append_id.encode())
    for part in (*place, *(part for event in events for part in (event.type.encode(), event.data))):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()
