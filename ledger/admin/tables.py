"""Rows as a person reads them: a table where there is room for one, else a record a block. Ids and numbers are never cut."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Final, NamedTuple

from rich.cells import cell_len
from rich.text import Text

from ledger.admin.output import columns_of_terminal, print_line, print_view
from ledger.admin.wrapping import wrapped
from ledger.signs import one_line
from ledger.standard_output import drawn

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

TABLES_FROM: Final = 100
"""On narrower terminals each record is a block of its own."""
_LEAST_PROSE: Final = 16
_GAP: Final = 2


class Rows(NamedTuple):
    """What is shown: the name of each column, and a cell of each in every row. Columns of `prose` may be wrapped."""

    title: str
    columns: Sequence[str]
    cells: Sequence[Sequence[object]]
    prose: Collection[str] = ()


def print_rows(rows: Rows, *, without: str = "") -> None:
    """Prints them; where there are none the line `without`, if there is one."""
    width = columns_of_terminal()
    if not rows.cells and without:
        print_line(without)
        return
    if rows.title:
        print_line(rows.title, "bold")
    widths = _widths(rows, width)
    if widths is None:
        _print_records(rows, width)
    else:
        _print_table(rows, widths)


def print_pairs(title: str, pairs: Iterable[tuple[str, object]]) -> None:
    """A few facts, one a line, each behind its name."""
    width, shown = columns_of_terminal(), [(name, cell) for name, cell in pairs if cell is not None]
    if title:
        print_line(title, "bold")
    _print_record(shown, width, max((cell_len(name) for name, _ in shown), default=0), frozenset())


def _widths(rows: Rows, width: int | None) -> list[int] | None:
    """How wide each column is; None where a table has no room. What may be wrapped shares what the others leave."""
    longest = [max(map(cell_len, [name, *(_shown(row[at]) for row in rows.cells)])) for at, name in enumerate(rows.columns)]
    if width is None:
        return longest
    prose = sorted((at for at, name in enumerate(rows.columns) if name in rows.prose), key=lambda at: longest[at])
    left = width - _GAP * (len(longest) - 1) - sum(size for at, size in enumerate(longest) if at not in prose)
    for number, at in enumerate(prose):
        share = left // (len(prose) - number)
        if longest[at] > share < _LEAST_PROSE:
            return None
        longest[at] = min(longest[at], share)
        left -= longest[at]
    return longest if left >= 0 and width >= TABLES_FROM else None


def _print_table(rows: Rows, widths: Sequence[int]) -> None:
    numbers = {at for at in range(len(widths)) if all(isinstance(row[at], int | None) for row in rows.cells)}
    print_view(Text(_joined(rows.columns, widths, numbers), "bold"))
    print_view(Text(_joined([drawn("─", "-") * width for width in widths], widths, numbers), "dim"))
    for row in rows.cells:
        cells = [
            wrapped(_shown(cell), width) if name in rows.prose else [_shown(cell)]
            for cell, width, name in zip(row, widths, rows.columns, strict=True)
        ]
        for pieces in zip_longest(*cells, fillvalue=""):
            print_view(Text(_joined(pieces, widths, numbers)))


def _joined(cells: Sequence[str], widths: Sequence[int], numbers: Collection[int]) -> str:
    gaps = [" " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True)]
    padded = [gap + cell if at in numbers else cell + gap for at, (cell, gap) in enumerate(zip(cells, gaps, strict=True))]
    return (" " * _GAP).join(padded).rstrip()


def _print_records(rows: Rows, width: int | None) -> None:
    names = max(map(cell_len, rows.columns))
    for number, row in enumerate(rows.cells):
        if number or rows.title:
            print_line("")
        told = [(name, cell) for name, cell in zip(rows.columns, row, strict=True) if _shown(cell)]
        _print_record(told, width, names, rows.prose)


def _print_record(pairs: Sequence[tuple[str, object]], width: int | None, names: int, prose: Collection[str]) -> None:
    for name, cell in pairs:
        text, indent = _shown(cell), names + _GAP
        is_long = name in prose and width is not None
        lines = wrapped(text, max((width or 0) - indent, _LEAST_PROSE)) if is_long else [text]
        line = Text.assemble((one_line(name).ljust(indent), "dim"), f"\n{' ' * indent}".join(lines))
        print_view(line)


def _shown(cell: object) -> str:
    return one_line("" if cell is None else str(cell))
