"""Opens a ledger and its log by their URLs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledger.errors import LogReplaced
from ledger.ledger import Ledger
from ledger.tables.logs import know_log
from ledger.tables.tables import LedgerTables
from projector import Projector
from stream import MemoryStore, Opening, open_store
from stream.checks import check_flag, check_kind, check_list, check_name, check_text
from stream.opening import sqlite_path
from stream.sqlite import MEMORY, Database, Durability, SqliteStore, open_database
from stream.tasks import finish_anyway

if TYPE_CHECKING:
    from collections.abc import Sequence


def open_ledger(
    url: str,
    *,
    log: str | None = None,
    projectors: Sequence[Projector[Any]] = (),
    create: bool = True,
    durability: Durability = "full",
    take_over_log: bool = False,
) -> Opening[Ledger]:
    """Opens the ledger at `url`, and the log in the same file, or at `log`.

    `memory:` keeps both in memory. `async with open_ledger(url) as ledger` closes it at the end. Compaction keeps
    snapshots of `projectors`, too. With `create=False` a missing file is an error. Raises `StoreUnusable`, and
    `LogReplaced` for a log elsewhere that is not this ledger's, unless it is to `take_over_log` (as `reconcile` does).
    """
    check_text("url", url)
    if log is not None:
        check_name("log", log)
    for number, projector in enumerate(check_list("projectors", projectors, "Projectors")):
        check_kind(f"projectors[{number}]", projector, Projector, "a Projector")
    check_flag("create", create)
    check_flag("take_over_log", take_over_log)

    async def make() -> Ledger:
        store = await open_store(url if log is None else log, create=create, durability=durability)
        database: Database | None = None
        try:
            database = await _database(store)
            tables = await LedgerTables.attach(database)
            if log is not None:
                await _know_log(tables, store.incarnation, take_over=take_over_log)
            return Ledger(store, tables, projectors)
        except BaseException:
            if database is not None:
                await finish_anyway(database.abandon())
            await store.close()
            raise

    async def _database(store: MemoryStore | SqliteStore) -> Database:
        if log is None and isinstance(store, SqliteStore):
            return store.database
        path = MEMORY if log is None else sqlite_path(url)
        return await open_database(path, create=create, durability=durability)

    return Opening(make)


async def _know_log(tables: LedgerTables, incarnation: str, *, take_over: bool) -> None:
    known = await tables.transact(lambda sql: know_log(sql, incarnation, take_over=take_over))
    if known != incarnation:
        raise LogReplaced(known, incarnation)
