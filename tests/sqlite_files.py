"""What a test asks of the file of a ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stream.sqlite import Database

if TYPE_CHECKING:
    from ledger import Ledger


def database_of(ledger: Ledger) -> Database:
    """The file of its tables."""
    database = ledger.tables.database
    assert isinstance(database, Database)
    return database
