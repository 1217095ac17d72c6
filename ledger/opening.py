"""Opens a ledger and its log by their URLs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ledger.errors import LogReplaced
from ledger.ledger import Ledger
from ledger.tables.logs import KNOWN, know_log
from ledger.tables.tables import LedgerTables
from projector import Projector
from stream import EventStore, MemoryStore, Opening, StoreUnusable, open_store
from stream.checks import check_flag, check_kind, check_list, check_name, check_text
from stream.opening import MEMORY as MEMORY_URL
from stream.opening import sqlite_path
from stream.sqlite import MEMORY, Durability, SqliteStore, open_database
from stream.tables.store import TableStore
from stream.tasks import finish_anyway
from stream.urls import is_nats, is_postgres, is_server, shown_url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stream.database import Database
    from stream.nats import NatsStore
    from stream.postgres import PostgresStore
    from stream.sqlite import Database as SqliteDatabase


def open_ledger(
    url: str,
    *,
    log: str | None = None,
    projectors: Sequence[Projector[Any]] = (),
    create: bool = True,
    durability: Durability = "full",
    take_over_log: bool = False,
    read_only: bool = False,
) -> Opening[Ledger]:
    """Opens the ledger at `url`, and the log in the same file, or at `log`.

    `memory:` keeps both in memory. `async with open_ledger(url) as ledger` closes it at the end. Compaction keeps
    snapshots of `projectors`, too. With `create=False` a missing file is an error. Raises `StoreUnusable`, and
    `LogReplaced` for a log that is not this ledger's, or that lies elsewhere and was not named, unless it is to
    `take_over_log` (as `reconcile` does).

    With `read_only` nothing is written, neither to the files nor beside them, and this user need not be able to: what is
    looked at is a copy of this process alone, of all that was there when it was opened. What the log has beyond the ledger
    is taken in there, and an older file is brought to the newest form. While something of it is followed or waited for, what
    others commit is seen, too, within a second (a large file: when it is copied again): then it is a copy of that moment.
    Whatever would change something raises `StoreUnusable`; a file must be there, and `memory:` is a `ValueError`.
    """
    check_text("url", url)
    if log is not None:
        check_name("log", log)
    for number, projector in enumerate(check_list("projectors", projectors, "Projectors")):
        check_kind(f"projectors[{number}]", projector, Projector, "a Projector")
    for name, flag in (("create", create), ("take_over_log", take_over_log), ("read_only", read_only)):
        check_flag(name, flag)
    if read_only and MEMORY_URL in (url, log):
        raise ValueError("memory: begins empty, there is nothing to look at: open it without read_only")
    for place in (url, log or ""):
        if read_only and is_server(place):
            raise StoreUnusable(shown_url(place), "read_only looks at a copy of a file: open it without")
    if is_nats(url):
        raise StoreUnusable(
            shown_url(url), "a ledger's tables lie in a file or in PostgreSQL: name one, and log=nats://… for its log"
        )
    return Opening(_Place(url, log, projectors, create, durability, take_over_log, read_only).open)


class _Place(NamedTuple):
    url: str
    log: str | None
    projectors: Sequence[Projector[Any]]
    create: bool
    durability: Durability
    take_over_log: bool
    read_only: bool

    async def open(self) -> Ledger:
        store = await self._open_log(self.url if self.log is None else self.log)
        database: Database | None = None
        try:
            database = await self._open_database(store)
            tables = await LedgerTables.attach(database)
            if self.log is not None or await _is_forgotten(tables, store):
                await _know_log(tables, store.incarnation, take_over=self.take_over_log)
            return Ledger(store, tables, self.projectors)
        except BaseException:
            if database is not None:
                await finish_anyway(database.close())
            await store.close()
            raise

    async def _open_log(self, url: str) -> MemoryStore | SqliteStore | PostgresStore | NatsStore:
        if not self.read_only:
            return await open_store(url, create=self.create, durability=self.durability)
        copy = await _copy(sqlite_path(url))
        try:
            return await SqliteStore.attach(copy)
        except BaseException:
            await finish_anyway(copy.abandon())
            raise

    async def _open_database(self, store: EventStore) -> Database:
        if self.log is None and isinstance(store, TableStore):
            return store.database
        if is_postgres(self.url):
            from stream.postgres import open_postgres  # noqa: PLC0415 - an extra

            return await open_postgres(self.url, create=self.create, durability=self.durability)
        path = MEMORY if self.log is None else sqlite_path(self.url)
        if self.read_only:
            return await _copy(path)
        return await open_database(path, create=self.create, durability=self.durability)


async def _copy(path: str) -> SqliteDatabase:
    from stream.sqlite.private_copy import open_private_copy  # noqa: PLC0415 - as a rule nobody needs it

    return await open_private_copy(path)


async def _is_forgotten(tables: LedgerTables, store: EventStore) -> bool:
    """Whether this is the ledger of a log elsewhere, which was not named: where it lies itself there has never been one."""
    if not await tables.look(lambda sql: sql(KNOWN)):
        return False
    return not (await store.changes(limit=1)).streams


async def _know_log(tables: LedgerTables, incarnation: str, *, take_over: bool) -> None:
    known = await tables.transact(lambda sql: know_log(sql, incarnation, take_over=take_over))
    if known != incarnation:
        raise LogReplaced(known, incarnation)
