"""How one stream is changed: its bounds move, the change gets its number, and where its head stood before is marked."""

from __future__ import annotations

from typing import Final, NamedTuple

MARKED_BITS: Final = 10
"""Of 2 ** this many changes in a row the first one of each stream is marked; one that is marked beside it does no harm."""
MARK_GUARD: Final = "3 * ({stream} % 1000003) + 5 * ({number} % 1000003) + 7 * ({head} % 1000003)"


class Move(NamedTuple):
    """An UPDATE of one stream: what is set beside its number, which one, and by what of its row then its head stood before.

    It gives floor, head, origin and guard of the stream, if it was moved.
    """

    sets: str
    where: str
    head_before: str = "head"


def marked(head_before: str, moved: str) -> str:
    """The INSERT of marks for the rows of `moved`, which say their id and the number of their change as `changed`."""
    guard = MARK_GUARD.format(stream="id", number="changed", head=head_before)
    return f"INSERT INTO marks (stream, number, head, guard) SELECT id, changed, {head_before}, {guard} FROM {moved}"  # noqa: S608
