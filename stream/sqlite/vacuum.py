"""Gives the room of what is gone back to the disk."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from stream.errors import StoreBusy
from stream.sqlite.statistics import file_sizes

if TYPE_CHECKING:
    from stream.sqlite.store import SqliteStore

_BUSY_LIMIT_S: Final = 30.0


class Vacuumed(NamedTuple):
    """Bytes of the file and its write-ahead log together."""

    before_bytes: int
    after_bytes: int


async def vacuum(store: SqliteStore) -> Vacuumed:
    """Sweeps what lies below the floors, then writes the file anew without its free pages. No number changes.

    It needs room for a second copy. Appends wait meanwhile, those of other processes too. Raises `StoreBusy` while
    another process writes or reads for too long, `StoreFull`; the file stays as it was, or shrinks later.
    """
    path = store.database.path
    before_bytes = sum(file_sizes(path))
    await store.settle()
    await store.database.write(lambda sql: sql("VACUUM"))
    # The new file lies in the log until nobody reads the old one. Each look is a job of its own: appends go on.
    deadline = time.monotonic() + _BUSY_LIMIT_S
    while (await store.database.write(lambda sql: sql("PRAGMA wal_checkpoint(TRUNCATE)")))[0][0]:
        if time.monotonic() > deadline:
            raise StoreBusy(f"{path}: another process reads the file, it becomes smaller when that ends: try again then")
        await asyncio.sleep(random.uniform(0.01, 0.05))  # noqa: S311 - jitter, no secret
    return Vacuumed(before_bytes, sum(file_sizes(path)))
