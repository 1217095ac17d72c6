"""The one way to the terminal: tables and text for people, JSON for programs, and nothing that steers it.

What ids, types, titles, paths and errors say was written by others. Escape sequences, control characters and marks that
turn the direction of writing are shown as signs; nothing is read as markup.
"""

from __future__ import annotations

import base64
import os
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from ledger.admin.standard_error import standard_error
from ledger.admin.wrapping import wrapped
from ledger.signs import harmless_json, one_line, printable
from ledger.standard_output import writable_json
from projector.json_text import InvalidJson, readable, split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rich.console import ConsoleOptions, RenderableType
    from rich.segment import Segment

    from stream import Event

_PIPE_COLUMNS = 100_000  # nothing is folded there


def print_line(text: str, style: str = "") -> None:
    """A sentence for people: one line, or on a terminal as many as it needs."""
    width = columns_of_terminal()
    lines = [one_line(text)] if width is None else wrapped(one_line(text), width)
    make_console().print(Text("\n".join(lines), style), soft_wrap=True)


def print_record(text: str, style: str = "") -> None:
    """One line, however long: what is copied, or looked through."""
    make_console().print(Text(one_line(text), style), soft_wrap=True)


def print_view(view: Text) -> None:
    """A line of a table or a message, as wide as it is."""
    make_console().print(view, soft_wrap=True)


def print_drawing(view: RenderableType) -> None:
    """A tree, however wide: rich would cut off what is wider than the terminal, and with it ids."""
    _console(_PIPE_COLUMNS).print(view, soft_wrap=True)


def print_json(value: Any) -> None:
    """One JSON value on one line: text of any writing as it is, and as escapes what steers or has no sign there."""
    sys.stdout.write(writable_json(harmless_json(readable(value))) + "\n")
    sys.stdout.flush()


def columns_of_terminal() -> int | None:
    """How wide the terminal is; None where nobody sees what is written: what a program reads is neither cut nor wrapped."""
    return make_console().width if sys.stdout.isatty() else None


def print_warning(text: str) -> None:
    """One line on standard error."""
    sys.stderr.write(one_line(text) + "\n")


def print_total(text: str) -> None:
    """One line on standard error, if that is a terminal: what was done in all."""
    if standard_error().isatty():
        print_warning(text)


def is_terminal() -> bool:
    """Whether standard output is one."""
    return sys.stdout.isatty()


def make_console() -> Console:
    """Standard output, which shows what it can't encode as escapes."""
    # A pipe has no width: what is read by a program is not folded to 80 columns.
    return _console(None if sys.stdout.isatty() else _PIPE_COLUMNS)


def _console(width: int | None) -> Console:
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    return _Console(highlight=False, markup=False, emoji=False, width=width)


def leave_pipe() -> None:
    """Whoever read standard output has seen enough: what is still buffered must not fail again at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def progress(what: str, total: int | None = None, *, is_shown: bool = True) -> Iterator[Callable[[int], None]]:
    """Shows on standard error how far long work has come, if that is a terminal; gives what to call with each step."""
    stream = standard_error()
    if not (is_shown and stream.isatty()):
        yield lambda _: None
        return
    from rich.progress import (  # noqa: PLC0415 - nothing else needs it
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bars = Progress(
        *(column for column in columns if total is not None or not isinstance(column, MofNCompleteColumn)),
        console=_Console(file=stream),
        transient=True,
        redirect_stdout=False,  # what is printed for programs goes where it always goes
        redirect_stderr=False,
    )
    with bars:
        task = bars.add_task(one_line(what), total=total)
        yield lambda steps: bars.advance(task, steps)


def event_record(event: Event) -> dict[str, Any]:
    """An event for `--json`: `data` as the JSON text it is, or `data_base64` where it is none."""
    record: dict[str, Any] = {"seq": event.seq, "type": event.type, "at": event.at}
    try:
        split(event.data)
        return record | {"data": event.data.decode()}
    except InvalidJson:
        return record | {"data_base64": base64.b64encode(event.data).decode()}


def counted(count: int, name: str) -> str:
    """`1 run`, `2,000 runs`."""
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def moment(at_ms: int) -> str:
    """A time as a person reads it."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(" ", "seconds").removesuffix("+00:00")
    except (OverflowError, ValueError, OSError):  # an import may say anything
        return f"{at_ms} ms"


class _Console(Console):
    """Whatever it is given to print, no text of it steers the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))
