"""The rows of one run as they lie in the tables, to be held against its events; a repair writes only over what it has seen."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ledger.errors import LedgerDamaged
from ledger.tables import runs
from ledger.tables.bodies import read_bodies
from ledger.tables.messages import read, rows_of_run
from ledger.tables.texts import marks, pieces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.records import RunInfo
    from projector import Message
    from stream.database import Sql

_RUN: Final = "SELECT seq, status, first, id, crc, row_body, place FROM runs WHERE conversation = ?1 AND id = ?2"
_OF_MESSAGES: Final = "id, on_path, started, is_committed, parent, seq, crc, row_body, place"


class RunRows(NamedTuple):
    """What the tables hold of a run; without `run` they do not list it. Two that are equal are the same rows, untouched."""

    run: tuple[Any, ...] | None = None
    messages: tuple[tuple[Any, ...], ...] = ()

    @property
    def listed_seq(self) -> int | None:
        """Where it is listed."""
        return None if self.run is None else self.run[0]

    @property
    def seq(self) -> int | None:
        """Where it started, as it says itself if it can be read."""
        with suppress(LedgerDamaged):
            info = self.info("")
            return None if info is None else info.seq
        return self.listed_seq

    def info(self, conversation: str) -> RunInfo | None:
        """What is listed of it. Raises `LedgerDamaged`."""
        return None if self.run is None else runs.read(conversation, *self.run[3:])

    @property
    def shape(self) -> list[tuple[str, bool, int, bool]]:
        """What the tree sees of its messages: (id, whether on the path, where the run started, whether it is committed)."""
        return [(row[0], bool(row[1]), row[2], bool(row[3])) for row in self.messages]

    @property
    def parents(self) -> dict[str, str | None]:
        """The parent of each message."""
        return {row[0]: row[4] for row in self.messages}

    def read(self, conversation: str) -> list[tuple[Message, bool]]:
        """The messages in their order, and whether each is on the path. Raises `LedgerDamaged`."""
        return [(read(conversation, row[0], *row[6:]), bool(row[1])) for row in self.messages]


async def rows_of(sql: Sql, key: int | None, run_id: str) -> RunRows:
    """The rows of a run of the conversation with this key; none where the ledger does not know the conversation."""
    if key is None:
        return RunRows()
    found = await read_bodies(sql, _RUN, (key, run_id))
    messages = await rows_of_run(sql, key, run_id, _OF_MESSAGES)
    return RunRows(found[0] if found else None, tuple(messages))


async def owned_by_others(sql: Sql, key: int | None, run_id: str, message_ids: Sequence[str]) -> list[str]:
    """Those of these message ids that another run has."""
    found: set[str] = set()
    for some in pieces(message_ids) if key is not None else ():
        text = f"SELECT id FROM messages WHERE conversation = ?1 AND run <> ?2 AND id IN ({marks(len(some), 3)})"  # noqa: S608 - marks
        found.update(row[0] for row in await sql(text, (key, run_id, *some)))
    return [message_id for message_id in message_ids if message_id in found]
