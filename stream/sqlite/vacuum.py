"""Gives the room of what is gone back to the disk."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from stream.errors import StoreBusy, StoreFull, StoreUnusable
from stream.sqlite.blocking import Connect, run_blocking
from stream.sqlite.errors import FAILURES, translate
from stream.sqlite.statistics import file_sizes

if TYPE_CHECKING:
    from stream.sqlite.database import Database
    from stream.sqlite.store import SqliteStore

_BUSY_LIMIT_S: Final = 30.0
_CHECKPOINT_S: Final = 2.0


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
    store.database.check()
    await run_blocking(lambda connect: _write_anew(connect, path))
    if not await _empty_wal(store.database, _BUSY_LIMIT_S):
        raise StoreBusy(f"{path}: another process reads the file, it becomes smaller when that ends: try again then")
    return Vacuumed(before_bytes, sum(file_sizes(path)))


def _write_anew(connect: Connect, path: str) -> None:
    """On a connection of its own, which can be interrupted."""
    try:
        with connect(path) as connection:
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("VACUUM")
    except FAILURES as error:
        raise translate(error, path) from error


async def clean_file(database: Database) -> str | None:
    """Writes the file anew without what was deleted and empties its write-ahead log; why not, if something is in the way."""
    try:
        await database.write(lambda sql: sql("VACUUM"))
    except (StoreBusy, StoreFull, StoreUnusable) as error:  # it is gone, if not proven so
        return f"the file could not be written anew, run `tailfold vacuum` later: {error}"
    if not await _empty_wal(database, _CHECKPOINT_S):
        return f"another process still reads old pages of {database.path}: end it, then run `tailfold vacuum`"
    return None


async def _empty_wal(database: Database, limit_s: float) -> bool:
    """What was written anew lies in the log until nobody reads the old file; each look is a job of its own: appends go on."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            [(is_busy, _, _)] = await database.write(lambda sql: sql("PRAGMA wal_checkpoint(TRUNCATE)"))
        except StoreBusy:
            is_busy = True
        if not is_busy:
            return True
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(random.uniform(0.01, 0.05))  # noqa: S311 - jitter, no secret
