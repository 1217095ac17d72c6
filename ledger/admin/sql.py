"""The command that asks the database a question in SQL."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ledger.admin.options import AsJson, Settings, check_text, is_read_only
from ledger.admin.output import leave_pipe, print_json
from ledger.admin.tables import Rows, print_rows
from ledger.tables.inspection import show_bodies
from ledger.upkeep.backup import place_of
from stream.sqlite.inspection import column_names, open_inspection

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_ROWS_AT_ONCE: Final = 500


def sql(
    context: typer.Context,
    statement: Annotated[str, typer.Argument(help="One statement that reads.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Ask the database in SQL; nothing can be changed by it.

    What is kept compressed is shown as it was: `messages` and `runs` have a `body` in JSON, wherever that lies. Bytes that
    are no text are shown as x'…'. `main.messages` is the table as it lies; for what is in there SQL has two functions:
    unzip(data), and page_item(data, slot) for a body of a page of `pages`. What is damaged is NULL. With --log the tables
    of both files are there. --json prints an object a row, one a line.

    tailfold sql "SELECT id, json_extract(body, '$.role') AS role FROM messages WHERE body LIKE '%train%'"
    """
    check_text("the statement", statement)
    settings: Settings = context.obj
    log = None if settings.log is None else place_of(settings.log, "psql")
    is_touched = not is_read_only(settings)
    try:
        with open_inspection(place_of(settings.data, "psql"), log, prepare=show_bodies, is_touched=is_touched) as connection:
            cursor = connection.execute(statement)
            columns = column_names(cursor)
            if not columns:
                raise ValueError("this gives no rows: ask with SELECT")
            show = _as_json(columns) if as_json else _as_table(columns)
            while rows := cursor.fetchmany(_ROWS_AT_ONCE):
                show(rows)
    except BrokenPipeError:
        leave_pipe()


def _as_json(columns: Sequence[str]) -> Callable[[Sequence[Sequence[Any]]], None]:
    twice = {name for name in columns if columns.count(name) > 1}
    if twice:
        raise ValueError(f"two columns are called {min(twice)}: name one of them with AS")

    def show(rows: Sequence[Sequence[Any]]) -> None:
        for row in rows:
            print_json(dict(zip(columns, map(_shown, row), strict=True)))

    return show


def _as_table(columns: Sequence[str]) -> Callable[[Sequence[Sequence[Any]]], None]:
    def show(rows: Sequence[Sequence[Any]]) -> None:
        cells = [[_shown(cell) for cell in row] for row in rows]
        texts = [name for at, name in enumerate(columns) if any(isinstance(row[at], str) for row in cells)]
        print_rows(Rows("", columns, cells, prose=texts))

    return show


def _shown(value: Any) -> Any:
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"x'{value.hex()}'"
