"""What somebody's own SQL sees of the tables: bodies that lie in pages are shown as if they lay in their rows."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from ledger.tables.bodies import unpack_page
from stream.sqlite.inspection import shadow

if TYPE_CHECKING:
    import sqlite3

_BODY: Final = """
CASE WHEN place IS NULL THEN CAST(row_body AS TEXT)
ELSE page_item((SELECT packed FROM pages WHERE id = place / 64), place % 64) END AS body"""


def show_bodies(connection: sqlite3.Connection) -> None:
    """`messages` and `runs` have a column `body`, wherever that lies; in `main.messages` they are as they lie.

    In SQL `page_item(packed, slot)` gives one of the bodies of a page, counted from 0; NULL for what is damaged or not there.
    """
    connection.create_function("page_item", 2, page_item, deterministic=True)
    shadow(connection, "pages", {"data": "data AS packed"})  # in version 6
    for table in ("messages", "runs"):
        shadow(connection, table, {"row_body": _BODY, "place": ""})
        shadow(connection, table, {"body": "CAST(body AS TEXT) AS body"})  # until version 5


def page_item(data: object, slot: object) -> str | None:
    """One of the bodies of a page."""
    bodies = _bodies_of(data) if isinstance(data, bytes) else []
    found = bodies[slot] if isinstance(slot, int) and 0 <= slot < len(bodies) else b""
    return found.decode(errors="backslashreplace") or None


@lru_cache(maxsize=4)
def _bodies_of(data: bytes) -> list[bytes]:
    """Neighbours lie in one page, and are asked for one after the other."""
    try:
        return unpack_page(data)
    except ValueError:
        return []
