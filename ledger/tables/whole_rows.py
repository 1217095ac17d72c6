"""All that the tables hold of one conversation, to be written as it is into the tables of another ledger."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ledger.tables.bodies import read_bodies
from ledger.tables.conversations import key_of, make_known
from ledger.tables.texts import pieces, rows

if TYPE_CHECKING:
    from stream.database import Sql

_COLUMNS: Final = (
    "projected_seq", "replay_from", "leaf", "title", "metadata", "archived", "active_at", "messages", "runs", "orphans",
    "holes", "erased", "is_conversation", "calls_from", "rewound", "amended",
)  # fmt: skip
_COUNTED: Final = 3  # the last ones count what was done to get here, and are no content
# What is ordered by is unique, or all of the row. The bodies leave their pages; a compaction there packs them again.
_TABLES: Final = {
    "messages": ("id, run, parent, seq, on_path, started, is_committed, selected, crc, row_body", "seq, id"),
    "runs": ("id, seq, status, first, crc, row_body", "seq, id"),
    "selections": ("seq, message", "seq"),
    "choices": ("seq, type, crc, body", "seq"),
    "calls": ("tool_call_id, message", "tool_call_id, message"),
    "labels": ("label", "label"),
    "uses": ("media", "media"),
}
_WITH_BODIES: Final = ("messages", "runs")


class WholeRows(msgspec.Struct, frozen=True):
    """The row of a conversation, and those of each table that belong to it."""

    standing: tuple[Any, ...]
    tables: dict[str, list[tuple[Any, ...]]]

    @property
    def projected_seq(self) -> int:
        """How far of the log they reach."""
        return int(self.standing[0])

    def digest(self) -> str:
        """SHA-256 of what they say: equal for equal content, whatever database they lie in, and where in it."""
        content = msgspec.msgpack.encode([self.standing[:-_COUNTED], self.tables])
        return hashlib.sha256(content).hexdigest()


async def read_rows(sql: Sql, conversation: str) -> WholeRows | None:
    """To be run in one look. None for a conversation that the ledger does not know; a damaged body is empty."""
    text = f"SELECT id, {', '.join(_COLUMNS)} FROM conversations WHERE stream_id = ?1"  # noqa: S608 - constants
    found = await sql(text, (conversation,))
    if not found:
        return None
    key, *standing = found[0]
    tables = {}
    for table, (columns, order) in _TABLES.items():
        place = ", place" if table in _WITH_BODIES else ""
        select = f"SELECT {columns}{place} FROM {table} WHERE conversation = ?1 ORDER BY {order}"  # noqa: S608 - constants
        tables[table] = await read_bodies(sql, select, (key,)) if place else sorted(await sql(select, (key,)))
    return WholeRows(tuple(standing), tables)


async def write_rows(sql: Sql, conversation: str, whole: WholeRows) -> bool:
    """To be run in one transaction. False, and nothing written, where the ledger has taken something in already."""
    await make_known(sql, conversation)
    key = await key_of(sql, conversation)
    [(projected_seq,)] = await sql("SELECT projected_seq FROM conversations WHERE id = ?1", (key,))
    if projected_seq:
        return False
    for table, (columns, _) in _TABLES.items():
        await sql(f"DELETE FROM {table} WHERE conversation = ?1", (key,))  # noqa: S608 - constants
        width = columns.count(",") + 2
        for some in pieces(whole.tables[table], width):
            values = [value for row in some for value in (key, *row)]
            text = f"INSERT INTO {table} (conversation, {columns}) VALUES {rows(len(some), width)}"  # noqa: S608 - constants
            await sql(text, values)
    changes = ", ".join(f"{name} = ?{number}" for number, name in enumerate(_COLUMNS, 2))
    await sql(f"UPDATE conversations SET {changes} WHERE id = ?1", (key, *whole.standing))  # noqa: S608 - constants
    return True
