"""The log on SQLite. `Database` is public to `ledger`, which keeps its tables in the same file."""

from stream.database import Row, Sql
from stream.sqlite.database import Database, Durability, open_database
from stream.sqlite.handles import MEMORY
from stream.sqlite.looking import LookedAtStore, only_looked_at
from stream.sqlite.private_copy import PrivateCopy, open_private_copy
from stream.sqlite.scripts import read_scripts
from stream.sqlite.store import SqliteStore

__all__ = [
    "MEMORY", "Database", "Durability", "LookedAtStore", "PrivateCopy", "Row", "Sql", "SqliteStore", "only_looked_at",
    "open_database", "open_private_copy", "read_scripts",
]  # fmt: skip
