"""The transport log: ordered, immutable events per stream, snapshots beside them, and readers that follow.

What lives here knows opaque bytes, sequence numbers, time and producers. What an event means must not: that is
`projector`'s.
"""

from typing import TYPE_CHECKING

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
    StoreUnreachable,
    StoreUnusable,
    StreamError,
    Truncated,
)
from stream.follow import follow  # now, and so is the next: they lie in modules of their own names
from stream.follow_all import follow_all
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

if TYPE_CHECKING:
    from stream.memory import MemoryStore
    from stream.opening import Opening, open_store
    from stream.snapshots import SnapshotStore, retain
    from stream.store import EventStore
else:
    from stream.lazy_names import on_demand as _on_demand

    __getattr__, __dir__ = _on_demand(
        __name__,
        {
            "stream.memory": "MemoryStore",
            "stream.opening": "Opening open_store",
            "stream.snapshots": "SnapshotStore retain",
            "stream.store": "EventStore",
        },
    )

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
    "StoreUnreachable",
    "StoreUnusable",
    "StreamError",
    "StreamInfo",
    "Truncated",
    "follow",
    "follow_all",
    "open_store",
    "retain",
]
