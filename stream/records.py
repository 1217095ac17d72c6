"""The plain values that go in and out of a log.

`gc=False`: events hold only text, bytes and numbers, so the collector need not look at the many of them.
"""

from __future__ import annotations

import msgspec


class NewEvent(msgspec.Struct, frozen=True, gc=False):
    """What a caller gives: `type` (1 to 64 bytes of UTF-8) and `data`, opaque and kept byte for byte."""

    type: str
    data: bytes


class Event(msgspec.Struct, frozen=True, gc=False):
    """What a log holds. `seq` counts from 1 without gaps; `at` (ms since 1970) is information, never order."""

    stream_id: str
    seq: int
    type: str
    data: bytes
    at: int


class Bounds(msgspec.Struct, frozen=True):
    """`floor < seq <= head` are readable; `0, 0` for an unknown stream.

    `origin` is the floor that a deletion left: below it there was another life of this stream, so a log with
    `floor == origin` is complete.
    """

    floor: int
    head: int
    origin: int = 0


class Producer(msgspec.Struct, frozen=True, gc=False):
    """Who appends, for safe retries: `seq` numbers the appends from 0 within (stream, id, epoch)."""

    id: str
    epoch: int
    seq: int


class AppendResult(msgspec.Struct, frozen=True, gc=False):
    """The numbers an append got. An empty one gives `(head + 1, head)`; `duplicate` marks a producer's repeat."""

    first_seq: int
    last_seq: int
    duplicate: bool = False


class StreamInfo(msgspec.Struct, frozen=True):
    """One line of a listing of streams."""

    stream_id: str
    floor: int
    head: int
    origin: int


class Changes(msgspec.Struct, frozen=True):
    """One page of the change feed: `streams` have changed since the place that was asked for, `token` is behind them.

    `spans` says of each of them where it stood: its head then, and its head up to which this page tells. `begin` is the
    place that was asked for, bound to what there was now: asked for again it gives the same spans, and nothing newer.
    """

    streams: list[str]
    token: str
    spans: list[tuple[int, int]]
    begin: str


class Gap(msgspec.Struct, frozen=True):
    """Events of a stream up to `floor` are gone before somebody has read them; its head is `head`.

    Where more has gone since the feed has looked, another one comes.
    """

    stream_id: str
    floor: int
    head: int


class Snapshot(msgspec.Struct, frozen=True):
    """A projector's state after all events up to `last_seq`. `created_at` in ms."""

    stream_id: str
    projector: str
    version: int
    last_seq: int
    created_at: int
    state: bytes


class SnapshotInfo(msgspec.Struct, frozen=True):
    """One line of a listing of snapshots; `readable` is false where the checksum fails."""

    projector: str
    last_seq: int
    readable: bool
