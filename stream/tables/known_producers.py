"""A producer as a process last knew it, and how a cache of such knowledge is kept small."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from stream.records import Producer

K = TypeVar("K")
V = TypeVar("V")
MAX_CACHED: Final = 50_000


class Known:
    """A producer's key, and its newest append as this process last saw it; before the first one the epoch is -1."""

    __slots__ = ("epoch", "key", "seq")

    def __init__(self, key: int, epoch: int | None, seq: int | None) -> None:
        self.key = key
        self.epoch = -1 if epoch is None else epoch
        self.seq = -1 if seq is None else seq

    def goes_on_with(self, producer: Producer, planned: tuple[int, int] | None = None) -> bool:
        """Whether this looks like its next append, behind what is planned of it."""
        epoch, seq = planned or (self.epoch, self.seq)
        if producer.epoch == epoch:
            return producer.seq == seq + 1
        return producer.epoch > epoch and producer.seq == 0

    def note(self, producer: Producer) -> None:
        """It has appended this."""
        self.epoch, self.seq = max((self.epoch, self.seq), (producer.epoch, producer.seq))


def without_oldest(cache: dict[K, V]) -> dict[K, V]:
    """A cache that is too much, without its older half."""
    return cache if len(cache) <= MAX_CACHED else dict(itertools.islice(cache.items(), MAX_CACHED // 2, None))
