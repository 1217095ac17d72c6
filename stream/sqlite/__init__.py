"""The log on SQLite. `Database` is public to `ledger`, which keeps its tables in the same file."""

from stream.database import Row, Sql
from stream.sqlite.database import Database, Durability, open_database
from stream.sqlite.handles import MEMORY
from stream.sqlite.scripts import read_scripts
from stream.sqlite.store import SqliteStore

__all__ = ["MEMORY", "Database", "Durability", "Row", "Sql", "SqliteStore", "open_database", "read_scripts"]
