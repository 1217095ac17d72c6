"""Pieces of SQL that several statements share."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

T = TypeVar("T")

KEY: Final = "(SELECT id FROM conversations WHERE stream_id = ?1)"
"""The key of the conversation that is the first parameter."""
EVERY: Final = 2**63 - 1
"""A limit, a depth or a seq that leaves nothing out."""
PAGE_ROWS: Final = 200
_INDEXED: Final = 200  # letters, as `postgres/schema.sql` has it
_PARAMETERS: Final = 900  # every SQLite takes 999


@cache
def marks(count: int, first: int = 1) -> str:
    """Numbered parameters from `first` on: `?2, ?3`."""
    return ", ".join(f"?{number}" for number in range(first, first + count))


@cache
def rows(count: int, width: int, first: int = 1) -> str:
    """Rows of numbered parameters: `(?1, ?2), (?3, ?4)`."""
    return ", ".join(f"({marks(width, first + row * width)})" for row in range(count))


@cache
def among(column: str, count: int, first: int) -> str:
    """Whether a name that others gave is one of the numbered parameters, however long it is.

    Its beginning is asked for besides: an index of a server has room for that, and not for all of it.
    """
    beginnings = ", ".join(f"substr(?{number}, 1, {_INDEXED})" for number in range(first, first + count))
    return f"{column} IN ({marks(count, first)}) AND substr({column}, 1, {_INDEXED}) IN ({beginnings})"


def is_text(value: str) -> bool:
    """Whether a database takes it: half a pair of surrogates is none."""
    return not any("\ud800" <= character <= "\udfff" for character in value)


def pieces(items: Sequence[T], width: int = 1) -> Iterator[Sequence[T]]:
    """The items in as many statements as their parameters need, `width` each."""
    size = _PARAMETERS // width
    for first in range(0, len(items), size):
        yield items[first : first + size]
