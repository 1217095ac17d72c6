"""What every operation of a ledger works on: the log, the tables, and the catch-up from one to the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ledger.arrears import Arrears
from ledger.catchup import CatchUp
from ledger.erasure import is_pending
from ledger.errors import LedgerBehind, LedgerDiverged, UnknownConversation
from ledger.moment import look
from projector.events import to_event
from projector.validation import validate
from stream import Bounds, CorruptEvent
from stream.home import Home
from stream.limits import check_id
from stream.logger import Logger
from stream.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.catchup import Caught
    from ledger.moment import Moment
    from ledger.tables.conversations import Position
    from ledger.tables.tables import LedgerTables
    from projector import Projector
    from projector.events import Body
    from stream import EventStore

_LOG: Final = Logger("tailfold.ledger")


class Engine:
    """One ledger that is open. Operations are functions over it; what only one of them needs does not belong here."""

    __slots__ = ("_arrears", "_catch_up", "home", "projectors", "shown_store", "store", "tables")

    def __init__(self, store: EventStore, tables: LedgerTables, projectors: Sequence[Projector[Any]] = ()) -> None:
        self.home = Home("this ledger")
        self.store = store
        self.shown_store = _only_read(store) if tables.database.is_private_copy else store
        self.tables = tables
        self.projectors = tuple(projectors)
        self._catch_up = CatchUp(store, tables)
        self._arrears = Arrears(store, tables, self._catch_up)

    @property
    def writing(self) -> Engine:
        """This, for what changes something. Raises `StoreUnusable` where it was opened only to be looked at."""
        if self.tables.database.is_private_copy:
            from stream.sqlite.read_only_store import only_looked_at  # noqa: PLC0415 - only where it is looked at

            raise only_looked_at(self.tables.database.path)
        return self

    async def catch_up(self, conversation: str) -> Caught:
        """Takes in what is new in the log of a conversation. Raises `LedgerBehind` where events it needs are gone."""
        return await self._catch_up.run(check_id("conversation id", conversation))

    async def require(self, conversation: str) -> Caught:
        """Catches up with a conversation that there is. Raises `UnknownConversation`."""
        caught = await self.catch_up(conversation)
        if caught.bounds.head == 0:
            raise UnknownConversation(conversation)
        return caught

    async def read_up(self, conversation: str) -> Bounds:
        """Catches up as far as it goes: what is committed can be read whatever has become of the log, whose bounds it gives."""
        try:
            return (await self.require(conversation)).bounds
        except (LedgerBehind, LedgerDiverged, CorruptEvent) as error:
            _LOG.error("ledger.behind", conversation=conversation, error=str(error))
        except UnknownConversation:
            if await self.tables.conversation(conversation) is None:
                raise
            return Bounds(0, 0)
        return await self.store.bounds(conversation)

    async def catch_up_all(self) -> None:
        """Takes in what is new in every log that may be of a conversation."""
        await self._arrears.work_off()

    async def note(self, conversation: str, body: Body) -> bool:
        """Appends one event and takes it in. False where an erasure that went on beside it has taken it away."""
        event = to_event(body)
        validate([event])
        seq = (await self.store.append(conversation, [event])).last_seq
        return (await self.catch_up(conversation)).bounds.origin < seq

    async def stays(self, conversation: str, seq: int) -> bool:
        """Whether an event that was appended is left by every erasure that was begun until now; finishes those."""

        async def job(moment: Moment) -> tuple[Position, Bounds]:
            return await moment.position(), await moment.bounds()

        position, bounds = await look(self.store, self.tables, conversation, job)
        if is_pending(position.erased):
            bounds = (await self.catch_up(conversation)).bounds
        return bounds.origin < seq

    def forget(self, conversation: str) -> None:
        """Drops what is remembered here of a conversation: something else than catch-up has moved the ledger."""
        self._catch_up.forget(conversation)
        self.tables.kept.forget(conversation)


def _only_read(store: EventStore) -> EventStore:
    """What callers are given of a log that is only looked at: what catching up does to its copy is nobody else's."""
    from stream.sqlite.read_only_store import LookedAtStore  # noqa: PLC0415 - only where it is looked at

    return LookedAtStore.over(store) if isinstance(store, SqliteStore) else store
