"""What is said to PostgreSQL, and what to a server that only speaks its protocol.

The log and the ledger need tables, constraints, transactions and row locks: all of their rules are in the statements. What
PostgreSQL has beside that is used where it is there: it tells who listens, it lets a transaction keep the others out before it
sees anything, and it refuses foreign hands what would break a rule.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from stream.tables.moves import Move, marked

_COLLATION: Final = ' COLLATE "C"'
_ONLY_POSTGRES: Final = "\n-- Only on PostgreSQL"
"""What follows in a script is left out elsewhere."""


class ServerDialect(NamedTuple):
    """One of the two.

    `collation` has texts compared by their bytes, `telling` is what the number of a change is drawn with so that listeners
    hear of it, and `gate` keeps out those who are in the way of a transaction. `has_sizes` tells whether the server knows how
    much room its tables take.
    """

    name: str
    collation: str
    telling: str
    gate: str
    has_sizes: bool

    @property
    def tells(self) -> bool:
        """Whether the server tells those who listen; else it is asked again and again."""
        return bool(self.telling)

    def schema(self, script: str) -> str:
        """A script as this server takes it."""
        return script if self is POSTGRES else script.partition(_ONLY_POSTGRES)[0].replace(_COLLATION, "")

    def draw(self, where: str) -> str:
        """Draws the number of the next change if there is one: its lock lasts until the commit, so writers take turns.

        To be drawn before a row is locked: then nobody waits in a circle.
        """
        return f"UPDATE feed SET number = number + 1 WHERE EXISTS ({where}) RETURNING number{self.telling}"  # noqa: S608

    def move(self, move: Move) -> str:
        """The SQL of a move. Each is marked, which does no harm: there are few."""
        drawn = self.draw(f"SELECT 1 FROM streams WHERE {move.where}")  # noqa: S608 - constants
        return f"""
WITH drawn AS ({drawn}),
moved AS (
  UPDATE streams SET {move.sets}, changed = (SELECT number FROM drawn) WHERE {move.where}
  RETURNING id, changed, floor, head, origin, guard),
marked AS ({marked(move.head_before, "moved")})
SELECT floor, head, origin, guard FROM moved"""  # noqa: S608 - constants


_TELLING: Final = ", pg_notify('tailfold_' || current_schema, '')"
POSTGRES: Final = ServerDialect("postgres", _COLLATION, _TELLING, "LOCK TABLE feed IN EXCLUSIVE MODE", has_sizes=True)
PORTABLE: Final = ServerDialect("portable", "", "", "SELECT number FROM feed FOR UPDATE", has_sizes=False)
DIALECTS: Final = {each.name: each for each in (POSTGRES, PORTABLE)}


def dialect_of(version: str) -> ServerDialect:
    """By what the server says it is: Aurora says what PostgreSQL does, YugabyteDB that and its own name."""
    return POSTGRES if version.startswith("PostgreSQL") and "-YB-" not in version else PORTABLE
