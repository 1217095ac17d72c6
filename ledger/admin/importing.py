"""The command `import`: takes in what others have kept or streamed, and what `export` wrote, once, however often it is run."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Final, NamedTuple, TypeVar

import anyio
import msgspec
import typer

from ledger.admin.options import AsJson, ProblemsFound, with_ledger
from ledger.admin.output import make_console, print_json, progress
from ledger.errors import LedgerError
from ledger.transfer.adoption import Imported, place_of
from ledger.transfer.files import FileError, open_lines
from ledger.transfer.importing import import_history
from ledger.transfer.jsonl import TAILFOLD, Section, look_through
from ledger.transfer.sources import AUTO, FORMATS, base_of, is_tailfold, name_of, read_file
from stream import InvalidEvent, StreamError
from stream.limits import check_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from ledger.ledger import Ledger
    from ledger.transfer.recorded import Recorded

Files = Annotated[
    list[Path],
    typer.Argument(help="Files, gzipped or not, or folders of them, in any format that is known.", metavar="FILE..."),
]
Into = Annotated[str | None, typer.Option(help="Take it in under this id; for files of one conversation.")]
Format = Annotated[str, typer.Option("--format", help=f"The format: {AUTO}, {TAILFOLD}, {', '.join(FORMATS)}.")]
T = TypeVar("T")
R = TypeVar("R")
_SHOWN_LOSSES: Final = 3
_AT_ONCE: Final = 8


class TakenIn(msgspec.Struct, frozen=True):
    """What became of a conversation of another format: what was added, the messages that were there, what has no place."""

    file: str
    conversation: str
    added: int
    runs: int
    known: int
    head: int
    losses: list[str]


class Source(NamedTuple):
    """A file that was looked through: the sections of an export, or conversations of another format."""

    path: Path
    base: str
    sections: Sequence[Section]
    recorded: Sequence[Recorded]

    @property
    def needs_database(self) -> bool:
        """Whether there must be a database already: an export whose beginning is gone goes on from one."""
        return any(section.header.floor > section.header.origin for section in self.sections)


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
    if format_name not in (AUTO, TAILFOLD, *FORMATS):
        raise ValueError(f"{format_name!r} is no format: use one of {AUTO}, {TAILFOLD}, {', '.join(FORMATS)}")
    if into is not None:
        check_id("conversation id", into)
        if any(path.is_dir() for path in files):
            raise ValueError("--into is for files of one conversation, not for a folder: leave it out")
    with ExitStack() as stack:
        sources = {path: _open(stack, path, base_of(path), format_name, into) for path in files if not path.is_dir()}

        async def job(ledger: Ledger) -> None:
            done: list[Imported | TakenIn] = []
            refused: list[str] = []
            for path in files:
                if path.is_dir():
                    await _import_folder(ledger, path, Path(context.obj.data), format_name, done, refused)
                else:
                    done += await _import(ledger, sources[path], into)
            _tell(done, refused, as_json=as_json, is_short=any(path.is_dir() for path in files))
            if refused:
                raise ProblemsFound

        is_new = not sources or any(not source.needs_database for source in sources.values())
        with_ledger(context, job, create=is_new)


async def _import_folder(
    ledger: Ledger, folder: Path, data: Path, format_name: str, done: list[Imported | TakenIn], refused: list[str]
) -> None:
    """Every file below a folder, in the order of their names; one that can't be taken in does not stop the others."""
    paths = _files_below(folder, data)
    with progress(f"importing {folder}", len(paths)) as advance:

        async def import_file(path: Path) -> list[Imported | TakenIn]:
            try:
                with ExitStack() as stack:
                    return await _import(ledger, _open(stack, path, base_of(path, folder), format_name, None), None)
            finally:
                advance(1)

        for outcome in await _each(import_file, paths):
            if isinstance(outcome, Exception):
                refused.append(str(outcome))
            else:
                done += outcome


def _files_below(folder: Path, data: Path) -> list[Path]:
    """But for hidden files, and for the database, which may lie there too."""
    own = data.resolve()
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".") and not str(path.resolve()).startswith(str(own))
    ]


def _open(stack: ExitStack, path: Path, base: str, format_name: str, into: str | None) -> Source:
    with progress(f"reading {path}", is_shown=into is not None):
        file = stack.enter_context(open_lines(path))
        source = _look_through(file, path, base, format_name)
    count = len(source.sections) + len(source.recorded)
    if into is not None and count > 1:
        raise FileError(f"{path}: --into is for files of one conversation, this one holds {count}: leave it out")
    return source


def _look_through(file: IO[bytes], path: Path, base: str, format_name: str) -> Source:
    if format_name == TAILFOLD or (format_name == AUTO and is_tailfold(file, path)):
        return Source(path, base, look_through(file, path), ())
    return Source(path, base, (), read_file(file, path, format_name))


async def _import(ledger: Ledger, source: Source, into: str | None) -> list[Imported | TakenIn]:
    places = [await place_of(ledger, section, into or section.header.conversation) for section in source.sections]
    done: list[Imported | TakenIn] = [await place.take_in(ledger) for place in places]
    names = name_of(source.base, source.recorded) if into is None else [into]

    async def import_one(named: tuple[str, Recorded]) -> TakenIn:
        name, recorded = named
        try:
            with progress(f"importing {name}", is_shown=into is not None) as advance:
                taken = await import_history(ledger.engine, name, recorded, advance)
        except InvalidEvent as error:
            raise FileError(f"{source.path}: conversation {name!r} can't be stored: {error.why}") from error
        except LedgerError as error:
            raise FileError(f"{source.path}: {error}") from error
        losses = () if recorded.history is None else recorded.history.losses
        told = [loss.what for loss in losses]
        return TakenIn(str(source.path), name, taken.events, taken.runs, taken.known, taken.head, told)

    for outcome in await _each(import_one, list(zip(names, source.recorded, strict=False))):
        if isinstance(outcome, Exception):
            raise outcome
        done.append(outcome)
    return done


async def _each(work: Callable[[T], Awaitable[R]], given: Sequence[T]) -> list[R | Exception]:
    """What `work` makes of each, or has failed with, in their order; several at once, for they share their commits."""
    outcomes: list[R | Exception] = [FileError("it was not looked at")] * len(given)
    left = iter(enumerate(given))

    async def worker() -> None:
        for at, one in left:
            try:
                outcomes[at] = await work(one)
            except (FileError, LedgerError, StreamError) as error:
                outcomes[at] = error

    async with anyio.create_task_group() as tasks:
        for _ in range(min(_AT_ONCE, len(given))):
            tasks.start_soon(worker)
    return outcomes


def _tell(done: Sequence[Imported | TakenIn], refused: Sequence[str], *, as_json: bool, is_short: bool) -> None:
    if as_json:
        conversations = [msgspec.to_builtins(imported) for imported in done]
        print_json({"conversations": conversations, "refused": list(refused)} if is_short else conversations)
        return
    console = make_console()
    for line in _summary(done) if is_short else _lines(done):
        console.print(line, markup=False, soft_wrap=True)
    for why in refused:
        sys.stderr.write(f"refused: {why.encode('ascii', 'backslashreplace').decode()}\n")


def _lines(done: Sequence[Imported | TakenIn]) -> Iterator[str]:
    for one in done:
        if isinstance(one, Imported):
            told = f"{one.added:,} events added, {one.skipped:,} were there, it ends at {one.head}"
        else:
            told = f"{one.added:,} events of {one.runs:,} runs added, {one.known:,} messages were there, it ends at {one.head}"
        yield f"{one.conversation}: {told}"
        losses = one.losses if isinstance(one, TakenIn) else []
        yield from (f"  has no place: {what}" for what in losses[:_SHOWN_LOSSES])
        if len(losses) > _SHOWN_LOSSES:
            yield f"  and {len(losses) - _SHOWN_LOSSES:,} more (--json tells all)"


def _summary(done: Sequence[Imported | TakenIn]) -> Iterator[str]:
    files = len({one.file for one in done})
    runs = sum(one.runs for one in done if isinstance(one, TakenIn))
    known = sum(one.known if isinstance(one, TakenIn) else one.skipped for one in done)
    added = sum(one.added for one in done)
    yield (
        f"{files:,} files: {len(done):,} conversations, {runs:,} runs and {added:,} events added, "
        f"{known:,} messages or events were there"
    )
