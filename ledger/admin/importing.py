"""The command `import`: takes in what others have kept or streamed, and what `export` wrote, once, however often it is run."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from ledger.admin.options import AsJson, ProblemsFound, with_ledger
from ledger.admin.output import print_json, print_line, print_warning, progress
from ledger.errors import LedgerError
from ledger.kinds import check_conversation_id
from ledger.transfer.adoption import ImportedLog, without_beginning
from ledger.transfer.file_import import ImportedHistory, ImportReport, check_format, import_source, open_source
from ledger.transfer.files import FileError
from ledger.transfer.jsonl import TAILFOLD
from ledger.transfer.sources import AUTO, FORMATS, base_of
from stream.opening import MEMORY, sqlite_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ledger.admin.options import Settings
    from ledger.ledger import Ledger
    from ledger.transfer.file_import import RefusedFile, Source

Files = Annotated[
    list[Path],
    typer.Argument(help="Files, gzipped or not, or folders of them, in any format that is known.", metavar="FILE..."),
]
Into = Annotated[str | None, typer.Option(help="Take it in under this id; for files of one conversation.")]
Format = Annotated[str, typer.Option("--format", help=f"The format: {AUTO}, {TAILFOLD}, {', '.join(FORMATS)}.")]
_SHOWN_LOSSES: Final = 3


def import_(
    context: typer.Context,
    files: Files,
    into: Into = None,
    format_name: Format = AUTO,
    *,
    as_json: AsJson = False,
) -> None:
    """Take in files of other programs and providers, or what `export` wrote. What is there already is not added again.

    Files that are named are looked through before anything is stored; of a folder each is taken in or refused.
    """
    check_format(format_name)
    if into is not None:
        check_conversation_id(into)
        if any(path.is_dir() for path in files):
            raise ValueError("--into is for files of one conversation, not for a folder: leave it out")
    with ExitStack() as stack:
        sources = {path: _open(stack, path, format_name, into) for path in files if not path.is_dir()}

        async def job(ledger: Ledger) -> None:
            reports = []
            for path in files:
                if path.is_dir():
                    reports.append(await ledger.import_file(path, format=format_name, progress=progress))
                else:
                    with _named(path):
                        reports.append(ImportReport(tuple(await import_source(ledger.engine, sources[path], into, progress))))
            done = [one for report in reports for one in report.conversations]
            refused = [_why(one) for report in reports for one in report.refused]
            _tell(done, refused, as_json=as_json, is_short=any(path.is_dir() for path in files))
            if refused:
                raise ProblemsFound

        cut = [source.without_beginning for source in sources.values()]
        needed = cut[0] if cut and None not in cut else None
        if needed is not None and _is_missing(context.obj):
            raise without_beginning(needed, into or needed.header.conversation)
        with_ledger(context, job, create=needed is None)


def _is_missing(settings: Settings) -> bool:
    if settings.data == MEMORY:
        return False
    file = Path(sqlite_path(settings.data))
    return not file.exists() or (file.is_file() and not file.stat().st_size)


def _open(stack: ExitStack, path: Path, format_name: str, into: str | None) -> Source:
    with progress(f"reading {path}", is_shown=into is not None):
        return open_source(stack, path, base_of(path), format_name, into)


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


def _tell(done: Sequence[ImportedLog | ImportedHistory], refused: Sequence[str], *, as_json: bool, is_short: bool) -> None:
    if as_json:
        conversations = list(map(_record, done))
        print_json({"conversations": conversations, "refused": list(refused)} if is_short else conversations)
        return
    for line in _summary(done) if is_short else _lines(done):
        print_line(line)
    for why in refused:
        print_warning(f"refused: {why}")


def _record(one: ImportedLog | ImportedHistory) -> dict[str, Any]:
    record: dict[str, Any] = msgspec.to_builtins(one)
    return record if isinstance(one, ImportedLog) else record | {"losses": [loss.what for loss in one.losses]}


def _lines(done: Sequence[ImportedLog | ImportedHistory]) -> Iterator[str]:
    for one in done:
        if isinstance(one, ImportedLog):
            told = f"{one.added:,} events added, {one.skipped:,} were there, it ends at {one.head}"
        else:
            told = f"{one.added:,} events of {one.runs:,} runs added, {one.known:,} messages were there, it ends at {one.head}"
        yield f"{one.conversation}: {told}"
        losses = one.losses if isinstance(one, ImportedHistory) else ()
        yield from (f"  has no place: {loss.what}" for loss in losses[:_SHOWN_LOSSES])
        if len(losses) > _SHOWN_LOSSES:
            yield f"  and {len(losses) - _SHOWN_LOSSES:,} more (--json tells all)"


def _summary(done: Sequence[ImportedLog | ImportedHistory]) -> Iterator[str]:
    files = len({one.file for one in done})
    runs = sum(one.runs for one in done if isinstance(one, ImportedHistory))
    known = sum(one.known if isinstance(one, ImportedHistory) else one.skipped for one in done)
    added = sum(one.added for one in done)
    yield (
        f"{files:,} files: {len(done):,} conversations, {runs:,} runs and {added:,} events added, "
        f"{known:,} messages or events were there"
    )
