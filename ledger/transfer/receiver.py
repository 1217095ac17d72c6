"""What an import needs of a ledger: its log, its tables, and that it takes in what is new."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ledger.tables.tables import LedgerTables
    from stream import EventStore


class Receiver(Protocol):
    """Where conversations go."""

    @property
    def store(self) -> EventStore:
        """The log."""

    @property
    def tables(self) -> LedgerTables:
        """The durable transcript."""

    async def catch_up(self, conversation: str) -> object:
        """Takes in what is new in the log of a conversation."""
