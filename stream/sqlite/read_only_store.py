"""A log that is only looked at: it reads as any other, and refuses by name whatever would change it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Self

from stream.errors import StoreUnusable
from stream.sqlite.store import SqliteStore
from stream.tables.snapshots import TableSnapshots

if TYPE_CHECKING:
    from stream.sqlite.database import Database


class _LookedAtSnapshots(TableSnapshots):
    """They are read as ever."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._path = database.path

    async def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise only_looked_at(self._path)

    save = delete = _refuse


class LookedAtStore(SqliteStore):
    """The `EventStore` of a ledger that was opened `read_only`: each call that writes raises `StoreUnusable`."""

    @classmethod
    def over(cls, store: SqliteStore) -> Self:
        """The same log over the same database, which the other one closes."""
        return cls(store.database, store.incarnation, store.clock_ms, 0)

    @property
    def snapshots(self) -> TableSnapshots:
        """See `EventStore.snapshots`; they are refused to be saved or deleted, too."""
        return _LookedAtSnapshots(self.database)

    async def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise only_looked_at(self.database.path)

    append = adopt = truncate = truncate_within = delete = _refuse


def only_looked_at(path: str) -> StoreUnusable:
    """What is said to who would change what was opened `read_only`."""
    return StoreUnusable(path, "it was opened only to be looked at (read_only), nothing is written: open it to be written")
