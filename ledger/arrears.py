"""What the ledger may be behind with: the conversations whose logs have moved since it was last asked, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledger.errors import LedgerBehind
from ledger.kinds import is_reserved
from ledger.turns import Turns
from stream import CorruptEvent
from stream.logger import Logger

if TYPE_CHECKING:
    from ledger.catchup import CatchUp
    from ledger.tables.tables import LedgerTables
    from stream import EventStore

_LOG: Final = Logger("tailfold.ledger")
_PAGE_STREAMS: Final = 1000


class Arrears:
    """Kept by a process for itself: one that begins compares all heads with the ledger once, then only what moved.

    A conversation is due until it was caught up with, however often that failed.
    """

    def __init__(self, store: EventStore, tables: LedgerTables, catch_up: CatchUp) -> None:
        self._store = store
        self._tables = tables
        self._catch_up = catch_up
        self._token = ""
        self._due: dict[str, None] = {}
        self._turns = Turns()

    async def work_off(self) -> None:
        """Takes in what is new in every log that may be of a conversation.

        One at a time: whoever comes second must not go on before what the first has found due was taken in.
        """
        async with self._turns.of(""):
            await self._look()
            for conversation in list(self._due):
                try:
                    await self._catch_up.run(conversation)
                except (CorruptEvent, LedgerBehind) as error:  # one bad conversation does not bar the others
                    _LOG.error("ledger.behind", conversation=conversation, error=str(error))
                else:
                    del self._due[conversation]

    async def _look(self) -> None:
        token = self._token
        while True:
            page = await self._store.changes(after=token, limit=_PAGE_STREAMS)
            positions = await self._tables.positions(page.streams) if page.streams else {}
            for conversation, (_, head) in zip(page.streams, page.spans, strict=True):
                is_left_out = is_reserved(conversation) and conversation not in positions  # only what older programs wrote
                if head > positions.get(conversation, 0) and not is_left_out:
                    self._due[conversation] = None
            token = page.token
            if len(page.streams) < _PAGE_STREAMS:  # what has come since then was not there when this was asked for
                self._token = token
                return
