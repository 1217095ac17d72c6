"""The command `import`: takes in what others have kept or streamed, and what `export` wrote, once, however often it is run."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec
import typer

from ledger.admin.long_work import LongWork, stoppable
from ledger.admin.options import AsJson, ProblemsFound, with_ledger
from ledger.admin.output import counted, print_json, print_line, print_warning, progress
from ledger.errors import LedgerError
from ledger.kinds import check_conversation_id
from ledger.transfer.adoption import ImportedLog, without_beginning
from ledger.transfer.file_import import ImportedHistory, ImportReport, check_format, import_source, open_source
from ledger.transfer.files import FileError
from ledger.transfer.formats import AUTO, FORMATS, TAILFOLD
from ledger.transfer.sources import bases_of
from stream.checks import check_path
from stream.opening import MEMORY, sqlite_path
from stream.urls import is_postgres

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ledger.admin.options import Settings
    from ledger.ledger import Ledger
    from ledger.transfer.file_import import Look, RefusedFile, Source

Files = Annotated[
    list[str],
    typer.Argument(help="Files, gzipped or not, or folders of them, in any format that is known.", metavar="FILE..."),
]
Into = Annotated[str | None, typer.Option(help="Take it in under this id; for files of one conversation.", metavar="ID")]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        help=f"The format: {AUTO}, {TAILFOLD}, {', '.join(FORMATS)}.",
        metavar="FORMAT",
        autocompletion=lambda: [AUTO, TAILFOLD, *FORMATS],
    ),
]
SkipBroken = Annotated[
    bool, typer.Option("--skip-broken", help="Pass over what can't be read, name it, and take in the rest; exit code 1.")
]
_SHOWN_LOSSES: Final = 3


def import_(
    context: typer.Context,
    named: Files,
    into: Into = None,
    format_name: Format = AUTO,
    *,
    skip_broken: SkipBroken = False,
    as_json: AsJson = False,
) -> None:
    """Take in files of other programs and providers, or what `export` wrote. What is there already is not added again.

    Files that are named are looked through before anything is stored; of a folder each is taken in or refused. With
    --skip-broken the rest of a file is taken in where a part of it can't be read; that is told, and the exit code is 1.
    """
    check_format(format_name)
    files = [check_path("FILE", name) for name in named]
    if into is not None:
        check_conversation_id(into)
        if any(path.is_dir() for path in files):
            raise ValueError("--into is for files of one conversation, not for a folder: leave it out")
    work, reports = LongWork(), list[ImportReport]()

    def where_it_stands() -> str:
        done = f"{len(reports):,} of {len(files):,} files are in" if reports else "no file is in whole"
        now = f", {work.what} had come to {work.so_far}" if work.what else ""
        return f"{done}{now}; the same command goes on, and adds nothing twice"

    with stoppable(where_it_stands), ExitStack() as stack:
        bases = bases_of(list(dict.fromkeys(path for path in files if not path.is_dir())))
        look = partial(open_source, format_name=format_name, into=into, skip_broken=skip_broken)
        sources = {path: _open(stack, path, bases[path], look) for path in bases}

        async def job(ledger: Ledger) -> None:
            for path in files:
                if path.is_dir():
                    report = await ledger.import_file(path, format=format_name, skip_broken=skip_broken, progress=work)
                    reports.append(report)
                else:
                    with _named(path):
                        done = await import_source(ledger.engine, sources[path], into, work)
                        reports.append(ImportReport(tuple(done), broken=sources[path].broken))
            told = _Told(
                [one for report in reports for one in report.conversations],
                [_why(one) for report in reports for one in report.refused],
                [one for report in reports for one in report.broken],
            )
            _tell(told, as_json=as_json, is_short=any(path.is_dir() for path in files))
            if told.refused or told.broken:
                raise ProblemsFound

        cut = [source.without_beginning for source in sources.values()]
        needed = cut[0] if cut and None not in cut else None
        if needed is not None and _is_missing(context.obj):
            raise without_beginning(needed, into or needed.header.conversation)
        with_ledger(context, job, create=needed is None)


def _is_missing(settings: Settings) -> bool:
    if settings.data == MEMORY or is_postgres(settings.data):
        return False
    file = Path(sqlite_path(settings.data))
    return not file.exists() or (file.is_file() and not file.stat().st_size)


class _Told(NamedTuple):
    """What became of all that was named."""

    done: Sequence[ImportedLog | ImportedHistory]
    refused: Sequence[str]
    broken: Sequence[str]


def _open(stack: ExitStack, path: Path, base: str, look: Look) -> Source:
    with progress(f"reading {path}"):
        return look(stack, path, base)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Says of what the ledger refuses which file it is of."""
    try:
        yield
    except FileError:
        raise
    except LedgerError as error:
        raise FileError(f"{path}: {error}") from error


def _why(refused: RefusedFile) -> str:
    is_told = not isinstance(refused.error, LedgerError) or isinstance(refused.error, FileError)
    return str(refused.error) if is_told else f"{refused.file}: {refused.error}"


def _tell(told: _Told, *, as_json: bool, is_short: bool) -> None:
    if as_json:
        conversations = list(map(_record, told.done))
        others = {"refused": list(told.refused)} | ({"broken": list(told.broken)} if told.broken else {})
        print_json({"conversations": conversations} | others if is_short or told.broken else conversations)
        return
    for line in () if is_short else _lines(told.done):
        print_line(line)
    if is_short or len(told.done) > 1:
        print_line(_summary(told.done))
    for why in told.refused:
        print_warning(f"refused: {why}")
    for why in told.broken:
        print_warning(f"passed over: {why}")


def _record(one: ImportedLog | ImportedHistory) -> dict[str, Any]:
    record: dict[str, Any] = msgspec.to_builtins(one)
    return record if isinstance(one, ImportedLog) else record | {"losses": [loss.what for loss in one.losses]}


def _lines(done: Sequence[ImportedLog | ImportedHistory]) -> Iterator[str]:
    for one in done:
        if isinstance(one, ImportedLog):
            told = f"{counted(one.added, 'event')} added, {one.skipped:,} were there, it ends at {one.head}"
        else:
            made = f"{counted(one.added, 'event')} of {counted(one.runs, 'run')}"
            told = f"{made} added, {counted(one.known, 'message')} there before, it ends at {one.head}"
        yield f"{one.conversation}: {told}"
        losses = one.losses if isinstance(one, ImportedHistory) else ()
        yield from (f"  has no place: {loss.what}" for loss in losses[:_SHOWN_LOSSES])
        if len(losses) > _SHOWN_LOSSES:
            yield f"  and {len(losses) - _SHOWN_LOSSES:,} more (--json tells all)"


def _summary(done: Sequence[ImportedLog | ImportedHistory]) -> str:
    """In all."""
    files, conversations = len({one.file for one in done}), len({one.conversation for one in done})
    runs = sum(one.runs for one in done if isinstance(one, ImportedHistory))
    known = sum(one.known if isinstance(one, ImportedHistory) else one.skipped for one in done)
    added = sum(one.added for one in done)
    return (
        f"{counted(files, 'file')}: {counted(conversations, 'conversation')}, {counted(runs, 'run')} and "
        f"{counted(added, 'event')} added, "
        f"{known:,} messages or events were there"
    )
