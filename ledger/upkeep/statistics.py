"""What log and ledger hold where they lie together, in a file or on a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.upkeep.backup import file_of
from stream.sqlite import statistics as of_files
from stream.tables.store import TableStore

if TYPE_CHECKING:
    from ledger.engine import Engine
    from stream.postgres.database import PostgresDatabase
    from stream.postgres.statistics import ServerStatistics


async def store_statistics(engine: Engine, *, exact: bool = False) -> of_files.StoreStatistics | ServerStatistics:
    """Counts of the whole; `exact` looks at every row. Raises `StoreUnusable` where log and ledger lie apart, or in memory."""
    database = _server_of(engine)
    if database is None:
        return await of_files.store_statistics(file_of(engine).database, exact=exact)
    from stream.postgres.statistics import server_statistics  # noqa: PLC0415 - an extra

    return await server_statistics(database, exact=exact)


async def stream_statistics(engine: Engine, stream_id: str) -> of_files.StreamStatistics | None:
    """Counts of one stream, None for one that never had an event. Raises as `store_statistics`."""
    database = _server_of(engine)
    if database is None:
        return await of_files.stream_statistics(file_of(engine).database, stream_id)
    from stream.postgres import statistics as of_servers  # noqa: PLC0415 - an extra

    return await of_servers.stream_statistics(database, stream_id)


def _server_of(engine: Engine) -> PostgresDatabase | None:
    store, own = engine.store, engine.tables.database
    if not isinstance(store, TableStore) or store.database is not own or own.dialect != "postgres":
        return None
    return own  # type: ignore[return-value] # no other has that dialect
