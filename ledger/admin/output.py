"""What the commands print: tables and text for people, JSON for programs."""

from __future__ import annotations

import base64
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from projector.json_text import InvalidJson, dump, plain, split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ledger.records import ConversationInfo
    from projector import Message
    from stream import Event

_PIPE_COLUMNS = 240
_NEVER_FOLDED = ("run", "status", "messages", "from", "to", "runs", "last active")  # what is copied, or read at a glance
_ROLE_STYLE = {"user": "bold cyan", "assistant": "bold green", "tool": "bold yellow", "system": "bold magenta"}


def make_console() -> Console:
    """Standard output, which shows what it can't encode as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    # A pipe has no width: what is read by a program is not folded to 80 columns.
    return Console(highlight=False, width=None if sys.stdout.isatty() else _PIPE_COLUMNS)


def print_json(value: Any) -> None:
    """One JSON value on one line, all ASCII, so that any reader gets it as it is."""
    sys.stdout.write(dump(value) + "\n")
    sys.stdout.flush()


@contextmanager
def progress(what: str, total: int | None = None, *, is_shown: bool = True) -> Iterator[Callable[[int], None]]:
    """Shows on standard error how far long work has come, if that is a terminal; gives what to call with each step."""
    if not (is_shown and sys.stderr.isatty()):
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bars = Progress(
        *(column for column in columns if total is not None or not isinstance(column, MofNCompleteColumn)),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,  # what is printed for programs goes where it always goes
        redirect_stderr=False,
    )
    with bars:
        task = bars.add_task(printable(what), total=total)
        yield lambda steps: bars.advance(task, steps)


def printable(text: str) -> str:
    """Control characters become visible signs: what a model said must not steer the terminal."""
    return "".join(
        chr(0x2400 + ord(sign)) if ord(sign) < 32 and sign not in "\n\t" else "␡" if "\x7f" <= sign <= "\x9f" else sign
        for sign in text
    )


def make_table(title: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> Table:
    """A table whose cells are shown as they are, never read as markup."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in _NEVER_FOLDED)
    for row in rows:
        table.add_row(*(Text(printable("" if cell is None else str(cell))) for cell in row))
    return table


def describe_message(message: Message, *, note: str = "") -> Text:
    """A message as a person reads it."""
    text = Text()
    text.append(f"{message.role}", style=_ROLE_STYLE.get(message.role, "bold"))
    state = " (partial)" if message.status == "partial" else ""
    text.append(printable(f"  {message.id}{state}{note}\n"), style="dim")
    for block in message.blocks:
        style = "dim italic" if block.kind in ("reasoning", "redacted_reasoning") else ""
        label = "" if block.kind == "text" else f"[{block.kind}{' ' + block.name if block.name else ''}] "
        body = block.text or block.input or block.parts or (block.opaque if block.kind != "reasoning" else None) or ""
        marks = "  ✓ signed" if block.signature else ""
        marks += f"  {len(block.citations)} citations" if block.citations else ""
        text.append(printable(label + body), style=style)
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


def conversation_record(info: ConversationInfo) -> dict[str, Any]:
    """A conversation for `--json`, its metadata as plain values."""
    record: dict[str, Any] = msgspec.to_builtins(info)
    return record | {"labels": info.labels, "metadata": {name: plain(text) for name, text in info.metadata.items()}}


def moment(at_ms: int) -> str:
    """A time as a person reads it."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(" ", "seconds").removesuffix("+00:00")
    except (OverflowError, ValueError, OSError):  # an import may say anything
        return f"{at_ms} ms"
