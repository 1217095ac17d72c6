"""Snapshots in the same file as the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stream.errors import SnapshotUnreadable
from stream.limits import check_id, check_position
from stream.records import Snapshot, SnapshotInfo
from stream.snapshots import check_dispensable, check_snapshot, is_newer, open_envelope, require_snapshot, seal
from stream.tables.bounds import read_bounds

if TYPE_CHECKING:
    from stream.database import Database, Sql

_STREAM: Final = "(SELECT id FROM streams WHERE name = ?1)"
_NEXT_OLDER: Final = f"""
SELECT last_seq, envelope FROM snapshots
WHERE stream = {_STREAM} AND projector = ?2 AND last_seq < ?3 ORDER BY last_seq DESC LIMIT 1"""  # noqa: S608 - constants
_ALL: Final = f"""
SELECT projector, last_seq, envelope FROM snapshots
WHERE stream = {_STREAM} AND (projector, last_seq) > (?2, ?3) ORDER BY projector, last_seq LIMIT 1"""  # noqa: S608 - constants
_PUT: Final = f"INSERT INTO snapshots SELECT {_STREAM}, ?2, ?3, ?4"
_DROP: Final = f"DELETE FROM snapshots WHERE stream = {_STREAM} AND projector = ?2 AND (?3 IS NULL OR last_seq = ?3)"  # noqa: S608 - constants


class TableSnapshots:
    """The `SnapshotStore` beside a `SqliteStore`. One envelope at a time is held in memory."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save(self, snapshot: Snapshot) -> bool:
        """See `SnapshotStore.save`."""
        require_snapshot(snapshot)

        async def job(sql: Sql) -> bool:
            check_snapshot(snapshot, await read_bounds(sql, snapshot.stream_id))
            newest = await load_snapshot(sql, snapshot.stream_id, snapshot.projector)
            if not is_newer(snapshot, newest):
                return False
            place = (snapshot.stream_id, snapshot.projector, snapshot.last_seq)
            await sql(_DROP, place)  # one of the same seq, unreadable or of a lower version
            await sql(_PUT, (*place, seal(snapshot)))
            return True

        return await self._database.transact(job)

    async def load(self, stream_id: str, projector: str) -> Snapshot | None:
        """See `SnapshotStore.load`."""
        check_id("stream id", stream_id)
        check_id("projector name", projector)
        return await self._database.look(lambda sql: load_snapshot(sql, stream_id, projector))

    async def list(self, stream_id: str) -> list[SnapshotInfo]:
        """See `SnapshotStore.list`."""
        check_id("stream id", stream_id)
        return await self._database.look(lambda sql: list_snapshots(sql, stream_id))

    async def delete(self, stream_id: str, projector: str, last_seq: int | None = None) -> None:
        """See `SnapshotStore.delete`."""
        check_id("stream id", stream_id)
        check_id("projector name", projector)
        if last_seq is not None:
            check_position("last_seq", last_seq)

        async def job(sql: Sql) -> None:
            if last_seq is not None:
                bounds = await read_bounds(sql, stream_id)
                check_dispensable(stream_id, projector, last_seq, bounds, await list_snapshots(sql, stream_id))
            await sql(_DROP, (stream_id, projector, last_seq))

        await self._database.transact(job)


async def load_snapshot(sql: Sql, stream_id: str, projector: str) -> Snapshot | None:
    """See `SnapshotStore.load`; one envelope at a time is held in memory."""
    below = 2**63 - 1
    while rows := await sql(_NEXT_OLDER, (stream_id, projector, below)):
        [(last_seq, envelope)] = rows
        if not isinstance(last_seq, int) or last_seq >= below:  # a damaged index would lead round in circles
            return None
        below = last_seq
        snapshot = open_envelope(envelope, stream_id=stream_id, projector=projector)
        if snapshot is not None:
            return snapshot
    return None


async def list_snapshots(sql: Sql, stream_id: str) -> list[SnapshotInfo]:
    """See `SnapshotStore.list`. Raises `SnapshotUnreadable` where the index is damaged."""
    infos: list[SnapshotInfo] = []
    place: tuple[str, int] = ("", 0)
    while rows := await sql(_ALL, (stream_id, *place)):
        [(projector, last_seq, envelope)] = rows
        if (
            not isinstance(projector, str) or not isinstance(last_seq, int) or (projector, last_seq) <= place
        ):  # a damaged index would lead round in circles
            raise SnapshotUnreadable(stream_id, str(projector), "the index of snapshots is damaged: run `tailfold verify`")
        place = (projector, last_seq)
        readable = open_envelope(envelope, stream_id=stream_id, projector=projector) is not None
        infos.append(SnapshotInfo(projector, last_seq, readable))
    return infos
