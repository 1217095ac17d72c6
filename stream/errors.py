"""Everything a log refuses, each error with what is needed to go on."""

from __future__ import annotations


class StreamError(Exception):
    """Base of all errors of this package."""


class SeqConflict(StreamError):
    """The stream is not where the writer expected it. Read on from `expected`, decide again, append at `head`."""

    def __init__(self, stream_id: str, expected: int, head: int) -> None:
        super().__init__(f"stream {stream_id!r} is at {head}, not at {expected}: read what is new and append again")
        self.stream_id, self.expected, self.head = stream_id, expected, head


class Truncated(StreamError):
    """The position lies below the floor: begin again from a snapshot, or read after `floor`."""

    def __init__(self, stream_id: str, after: int, floor: int) -> None:
        super().__init__(
            f"stream {stream_id!r} is truncated through {floor}, reading after {after} would skip events: "
            f"load a snapshot, or read after {floor}"
        )
        self.stream_id, self.after, self.floor = stream_id, after, floor


class Diverged(StreamError):
    """The position belongs to another history of this stream: beyond the head, or of another `incarnation`.

    Of a token of the change feed `stream_id` is empty, and the numbers are those of changes.
    """

    def __init__(self, stream_id: str, after: int, head: int, *, incarnation: str | None = None) -> None:
        why = f"stream {stream_id!r} ends at {head}, there is nothing to follow after {after}: load it anew"
        if not stream_id:
            where = f"was given after {after} changes, the store has seen {head}: it was put back to what it was before"
            if incarnation is not None:
                where = f"belongs to another life of the store, {incarnation!r}"
            why = f"the token {where}: take what you have made of it anew, and begin without a token"
        elif incarnation is not None:
            why = (
                f"position {after} of stream {stream_id!r} belongs to another life of the store, {incarnation!r}: "
                "begin again from a snapshot, or after 0"
            )
        super().__init__(why)
        self.stream_id, self.after, self.head, self.incarnation = stream_id, after, head, incarnation


class ProducerFenced(StreamError):
    """A newer epoch of this producer exists; this writer has been replaced and must stop."""

    def __init__(self, stream_id: str, producer_id: str, epoch: int) -> None:
        super().__init__(f"producer {producer_id!r} of stream {stream_id!r} was taken over by epoch {epoch}: stop writing")
        self.stream_id, self.producer_id, self.epoch = stream_id, producer_id, epoch


class ProducerGap(StreamError):
    """An append of this producer is missing: send number `expected` first."""

    def __init__(self, stream_id: str, producer_id: str, expected: int) -> None:
        super().__init__(f"producer {producer_id!r} of stream {stream_id!r} jumped ahead: send number {expected} first")
        self.stream_id, self.producer_id, self.expected = stream_id, producer_id, expected


class InvalidId(StreamError, ValueError):
    """An id that can't be stored."""


class InvalidEvent(StreamError):
    """Event `index` of the append can't be stored; nothing of the append was."""

    def __init__(self, index: int, why: str) -> None:
        super().__init__(f"event {index} of the append was refused: {why}")
        self.index, self.why = index, why


class CorruptEvent(StreamError):
    """What is stored at `seq` is not what was acknowledged: restore it from a backup."""

    def __init__(self, stream_id: str, seq: int, why: str) -> None:
        super().__init__(f"event {seq} of stream {stream_id!r} is damaged ({why}): restore it from a backup")
        self.stream_id, self.seq, self.why = stream_id, seq, why


class SnapshotUnreadable(StreamError):
    """There is no readable base record to load from, and the events below it are gone."""

    def __init__(self, stream_id: str, projector: str, why: str) -> None:
        super().__init__(f"no state of {projector!r} can be loaded for stream {stream_id!r}: {why}")
        self.stream_id, self.projector, self.why = stream_id, projector, why


class SnapshotNeeded(StreamError):
    """The last base record of a truncated stream is not deleted. Retire the whole projector to let it go."""

    def __init__(self, stream_id: str, projector: str, last_seq: int) -> None:
        super().__init__(
            f"snapshot {last_seq} of {projector!r} is the last one stream {stream_id!r} can be loaded from: "
            "save a newer one first, or delete all snapshots of this projector by its name"
        )
        self.stream_id, self.projector, self.last_seq = stream_id, projector, last_seq


class StoreFull(StreamError):
    """There is no room; nothing was stored. Make room and try again, the store goes on working."""


class StoreBusy(StreamError):
    """Another process held the store for too long; nothing was stored. Try again."""


class StoreClosed(StreamError):
    """The store was closed."""


class StoreUnreachable(StreamError):
    """The server was not to be reached, or was lost in the middle: then whether anything was stored is not known.

    Retries are safe: with the same `append_id` and `expected_seq`, or by a producer.
    """

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"{place}: {why}")
        self.place, self.why = place, why


class StoreElsewhere(StreamError):
    """The store was opened in another event loop, or before this process was forked; nothing was done, it lives on there."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what} {why}")
        self.what, self.why = what, why


class StoreUnusable(StreamError):
    """The place that was named is no store that this version can use."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"{place}: {why}")
        self.place, self.why = place, why
