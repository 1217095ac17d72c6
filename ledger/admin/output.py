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
from typing import TYPE_CHECKING, Any, TextIO, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from ledger.signs import harmless_json, one_line, printable
from projector.json_text import InvalidJson, dump, split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rich.console import ConsoleOptions, RenderableType
    from rich.segment import Segment

    from projector import Message
    from stream import Event

_PIPE_COLUMNS = 240
_NEVER_FOLDED = ("run", "status", "messages", "from", "to", "runs", "last active")  # what is copied, or read at a glance
_ROLE_STYLE = {"user": "bold cyan", "assistant": "bold green", "tool": "bold yellow", "system": "bold magenta"}


def print_line(text: str, style: str = "") -> None:
    """One line for people, however long."""
    make_console().print(Text(one_line(text), style), soft_wrap=True)


def print_view(view: RenderableType) -> None:
    """A table, a tree or a message."""
    make_console().print(view, soft_wrap=not isinstance(view, Table))


def print_json(value: Any) -> None:
    """One JSON value on one line, all of it printable ASCII, so that any reader gets it as it is."""
    sys.stdout.write(harmless_json(dump(value)) + "\n")
    sys.stdout.flush()


def print_warning(text: str) -> None:
    """One line on standard error."""
    sys.stderr.write(one_line(text) + "\n")


def print_total(text: str) -> None:
    """One line on standard error, if that is a terminal: what was done in all."""
    stream = sys.stderr.stream if isinstance(sys.stderr, _Guarded) else sys.stderr
    if stream.isatty():
        print_warning(text)


def is_terminal() -> bool:
    """Whether standard output is one."""
    return sys.stdout.isatty()


def make_console() -> Console:
    """Standard output, which shows what it can't encode as escapes."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    # A pipe has no width: what is read by a program is not folded to 80 columns.
    return _Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else _PIPE_COLUMNS)


def guard_standard_error() -> TextIO:
    """From here on nothing steers the terminal from there, whoever writes it: warnings, logs and other libraries, too."""
    if isinstance(sys.stderr, TextIOWrapper):
        sys.stderr.reconfigure(errors="backslashreplace")
    if not isinstance(sys.stderr, _Guarded):
        sys.stderr = cast("TextIO", _Guarded(sys.stderr))
    return cast("TextIO", sys.stderr)


def leave_pipe() -> None:
    """Whoever read standard output has seen enough: what is still buffered must not fail again at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def progress(what: str, total: int | None = None, *, is_shown: bool = True) -> Iterator[Callable[[int], None]]:
    """Shows on standard error how far long work has come, if that is a terminal; gives what to call with each step."""
    stream = sys.stderr.stream if isinstance(sys.stderr, _Guarded) else sys.stderr
    if not (is_shown and stream.isatty()):
        yield lambda _: None
        return
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


def make_table(title: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> Table:
    """A table whose cells are shown as they are, never read as markup."""
    table = Table(title=Text(one_line(title)), title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in _NEVER_FOLDED)
    for row in rows:
        table.add_row(*(Text(one_line("" if cell is None else str(cell))) for cell in row))
    return table


def describe_message(message: Message, *, note: str = "") -> Text:
    """A message as a person reads it."""
    text = Text()
    text.append(one_line(message.role), style=_ROLE_STYLE.get(message.role, "bold"))
    state = " (partial)" if message.status == "partial" else ""
    text.append(one_line(f"  {message.id}{state}{note}") + "\n", style="dim")
    for block in message.blocks:
        style = "dim italic" if block.kind in ("reasoning", "redacted_reasoning") else ""
        label = "" if block.kind == "text" else f"[{block.kind}{' ' + block.name if block.name else ''}] "
        body = block.text or block.input_text or block.parts or (block.opaque if block.kind != "reasoning" else None) or ""
        marks = "  ✓ signed" if block.signature else ""
        marks += f"  {len(block.citations)} citations" if block.citations else ""
        text.append(one_line(label) + printable(body), style=style)
        text.append(printable(marks + "\n"), style="dim")
    return text


def event_record(event: Event) -> dict[str, Any]:
    """An event for `--json`: `data` as the JSON text it is, or `data_base64` where it is none."""
    record: dict[str, Any] = {"seq": event.seq, "type": event.type, "at": event.at}
    try:
        split(event.data)
        return record | {"data": event.data.decode()}
    except InvalidJson:
        return record | {"data_base64": base64.b64encode(event.data).decode()}


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


class _Guarded:
    """A text stream that is no terminal, so that nobody colours what is written to it."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.encoding = stream.encoding
        self.errors = stream.errors

    def write(self, text: str) -> int:
        self.stream.write(printable(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        self.stream.flush()

    def fileno(self) -> int:
        return self.stream.fileno()

    def isatty(self) -> bool:
        return False
