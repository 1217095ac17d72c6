"""The transport log: ordered, immutable events per stream, snapshots beside them, and readers that follow.

What lives here knows opaque bytes, sequence numbers, time and producers. What an event means must not: that is
`projector`'s.
"""

from stream.errors import (
    CorruptEvent,
    Diverged,
    InvalidEvent,
    InvalidId,
    ProducerFenced,
    ProducerGap,
    SeqConflict,
    SnapshotNeeded,
    SnapshotUnreadable,
    StoreBusy,
    StoreClosed,
    StoreElsewhere,
    StoreFull,
    StoreUnusable,
    StreamError,
    Truncated,
)
from stream.follow import follow
from stream.follow_all import follow_all
from stream.memory import MemoryStore
from stream.opening import Opening, open_store
from stream.records import (
    AppendResult,
    Bounds,
    Changes,
    Event,
    Gap,
    NewEvent,
    Producer,
    Snapshot,
    SnapshotInfo,
    StreamInfo,
)
from stream.snapshots import SnapshotStore, retain
from stream.store import EventStore

__all__ = [
    "AppendResult",
    "Bounds",
    "Changes",
    "CorruptEvent",
    "Diverged",
    "Event",
    "EventStore",
    "Gap",
    "InvalidEvent",
    "InvalidId",
    "MemoryStore",
    "NewEvent",
    "Opening",
    "Producer",
    "ProducerFenced",
    "ProducerGap",
    "SeqConflict",
    "Snapshot",
    "SnapshotInfo",
    "SnapshotNeeded",
    "SnapshotStore",
    "SnapshotUnreadable",
    "StoreBusy",
    "StoreClosed",
    "StoreElsewhere",
    "StoreFull",
    "StoreUnusable",
    "StreamError",
    "StreamInfo",
    "Truncated",
    "follow",
    "follow_all",
    "open_store",
    "retain",
]
