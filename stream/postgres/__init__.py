"""The log on PostgreSQL, by asyncpg. `PostgresDatabase` is public to `ledger`, which keeps its tables beside those of the log.

What lives here knows one database; what all logs in tables share is `stream.tables`.
"""

from stream.extras import needs as _needs

with _needs("postgres", "stream.postgres"):
    from stream.postgres.database import PostgresDatabase, open_postgres
    from stream.postgres.store import PostgresStore

__all__ = ["PostgresDatabase", "PostgresStore", "open_postgres"]
