"""Which log this is the ledger of, where that lies elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stream.database import Sql

KNOWN: Final = "SELECT incarnation FROM logs"
REPLACE: Final = "UPDATE logs SET incarnation = ?1"


async def know_log(sql: Sql, incarnation: str, *, take_over: bool) -> str:
    """The incarnation of the log that this ledger is of; of one that knows none yet, or is to take it over, this one."""
    if take_over:
        await sql("DELETE FROM logs")
    await sql("INSERT INTO logs (incarnation) SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM logs)", (incarnation,))
    return str((await sql(KNOWN))[0][0])
