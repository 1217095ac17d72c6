"""What log and tables say of a conversation at one moment: one trip to the database where both lie in one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ledger.tables import conversations
from stream import Bounds
from stream.tables.bounds import check_bounds
from stream.tables.store import TableStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ledger.tables.conversations import Position
    from ledger.tables.tables import LedgerTables
    from stream import Event, EventStore, Snapshot
    from stream.database import Row, Sql

T = TypeVar("T")


class Moment(Protocol):
    """One conversation. Where the log lies elsewhere its answers are newer the later they are asked for: bounds first."""

    async def position(self) -> Position:
        """How far the ledger holds it."""

    async def bounds(self) -> Bounds:
        """See `EventStore.bounds`."""

    async def snapshot(self, projector: str) -> Snapshot | None:
        """See `SnapshotStore.load`."""

    async def events(self, after: int, limit: int) -> list[Event]:
        """See `EventStore.read`."""


async def look(store: EventStore, tables: LedgerTables, conversation: str, job: Callable[[Moment], Awaitable[T]]) -> T:
    """Runs `job(moment)`, which only asks. A log elsewhere is asked for each by itself, in the order of the job."""
    if isinstance(store, TableStore) and store.database is tables.database:
        return await store.database.look(lambda sql: job(_Together(store, sql, conversation)))
    return await job(_Apart(store, tables, conversation))


async def look_on(
    store: EventStore, tables: LedgerTables, conversation: str, after: int, limit: int
) -> tuple[Position, Bounds, list[Event]] | None:
    """Position, bounds and the events behind `after` in one statement, where every statement is a trip to a server.

    None where that is not so, or one does not do: then it is to be looked at. Raises `Truncated` and `CorruptEvent`.
    """
    database = tables.database
    if not (isinstance(store, TableStore) and store.database is database and database.dialect == "postgres"):
        return None
    seen: list[tuple[Position, Bounds]] = []

    async def once(text: str, parameters: Sequence[Any] = (), /) -> list[Row]:
        if seen:
            raise _TakesMore
        rows, position = await conversations.beside(database.read, text, parameters)
        seen.append((position, check_bounds(conversation, *rows[0][:4]) if rows else Bounds(0, 0)))
        return rows

    try:
        events = await store.read_within(once, conversation, after, limit)
    except _TakesMore:
        return None
    return *seen[0], events


class _TakesMore(Exception):
    """A page that is not there in one statement."""


async def stand(moment: Moment) -> tuple[Position, Bounds]:
    """A job for `look`. The ledger first: where both are not of one moment, the log has come further meanwhile, and not it."""
    return await moment.position(), await moment.bounds()


class _Together:
    def __init__(self, store: TableStore, sql: Sql, conversation: str) -> None:
        self._store = store
        self._sql = sql
        self._conversation = conversation

    async def position(self) -> Position:
        return await conversations.position(self._sql, self._conversation)

    async def bounds(self) -> Bounds:
        return await self._store.bounds_within(self._sql, self._conversation)

    async def snapshot(self, projector: str) -> Snapshot | None:
        return await self._store.snapshot_within(self._sql, self._conversation, projector)

    async def events(self, after: int, limit: int) -> list[Event]:
        return await self._store.read_within(self._sql, self._conversation, after, limit)


class _Apart:
    def __init__(self, store: EventStore, tables: LedgerTables, conversation: str) -> None:
        self._store = store
        self._tables = tables
        self._conversation = conversation

    async def position(self) -> Position:
        return await self._tables.position(self._conversation)

    async def bounds(self) -> Bounds:
        return await self._store.bounds(self._conversation)

    async def snapshot(self, projector: str) -> Snapshot | None:
        return await self._store.snapshots.load(self._conversation, projector)

    async def events(self, after: int, limit: int) -> list[Event]:
        return await self._store.read(self._conversation, after=after, limit=limit)
