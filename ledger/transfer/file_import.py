"""A file, or a folder of files, taken in: looked through first, then stored, each conversation once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import anyio
import anyio.to_thread
import msgspec

from ledger.errors import LedgerError
from ledger.kinds import check_conversation_id
from ledger.transfer.adoption import ImportedLog, place_of
from ledger.transfer.files import FileError, open_lines, telling
from ledger.transfer.formats import AUTO, FORMATS, TAILFOLD
from ledger.transfer.importing import import_history
from ledger.transfer.jsonl import Section, look_through
from ledger.transfer.progress import untold
from ledger.transfer.sources import base_of, bases_of, is_tailfold, name_of, read_file
from projector.formats.shared.history import Loss
from stream import InvalidEvent, InvalidId, StreamError
from stream.checks import check_path, shown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence
    from os import PathLike

    from ledger.engine import Engine
    from ledger.transfer.progress import Progress
    from ledger.transfer.recorded import Recorded

Look = Callable[[ExitStack, Path, str], "Source"]
T = TypeVar("T")
R = TypeVar("R")
IMPORTS: Final = (AUTO, TAILFOLD, *FORMATS)
"""What `format` may be."""
_AT_ONCE: Final = 8


class ImportedHistory(msgspec.Struct, frozen=True):
    """What became of a conversation that others have kept: events and runs that were added, messages that were there.

    `head` is the last event of its log now, `losses` what has no place in it.
    """

    file: str
    conversation: str
    added: int
    runs: int
    known: int
    head: int
    losses: tuple[Loss, ...]


class RefusedFile(NamedTuple):
    """A file of a folder that was not taken in, or only the conversations before the one that `error` is about."""

    file: str
    error: LedgerError | StreamError


class ImportReport(NamedTuple):
    """What became of a file or a folder: its conversations in order, and the files of a folder that were refused.

    `broken` is what could not be read and was passed over, each with its file and its place.
    """

    conversations: tuple[ImportedHistory | ImportedLog, ...]
    refused: tuple[RefusedFile, ...] = ()
    broken: tuple[str, ...] = ()


class Source(NamedTuple):
    """A file that was looked through: the sections of an export, or conversations of another format."""

    path: Path
    base: str
    sections: Sequence[Section]
    recorded: Sequence[Recorded]
    broken: tuple[str, ...] = ()
    """What could not be read and was passed over."""

    @property
    def without_beginning(self) -> Section | None:
        """What needs a database that is there already: an export whose beginning is gone goes on from one."""
        return next((section for section in self.sections if section.header.floor > section.header.origin), None)


async def import_file(
    ledger: Engine,
    path: str | PathLike[str],
    *,
    format: str = AUTO,  # noqa: A002 - the word users know from the command line
    into: str | None = None,
    skip_broken: bool = False,
    progress: Progress = untold,
) -> ImportReport:
    """Takes in a file, or every file below a folder; see `Ledger.import_file`."""
    check_format(format)
    path = check_path("path", path)
    ledger = ledger.writing
    with telling(path):
        is_folder = await anyio.Path(path).is_dir()
    if is_folder:
        if into is not None:
            raise ValueError("`into` is for files of one conversation, not for a folder: leave it out")
        look = partial(open_source, format_name=format, skip_broken=skip_broken)
        return await _import_folder(ledger, path, look, progress)
    if into is not None:
        check_conversation_id(into)
    look = partial(open_source, format_name=format, into=into, skip_broken=skip_broken)
    done, broken = await _open_and_import(ledger, path, base_of(path), look, into, progress)
    return ImportReport(tuple(done), broken=broken)


async def import_source(
    ledger: Engine, source: Source, into: str | None = None, progress: Progress = untold
) -> list[ImportedHistory | ImportedLog]:
    """Stores the conversations of a file; under the id `into`, if one is given."""
    places = [await place_of(ledger, section, into or section.header.conversation) for section in source.sections]
    done: list[ImportedHistory | ImportedLog] = [await place.take_in(ledger, progress) for place in places]
    names = name_of(source.base, source.recorded) if into is None else [into]
    is_one = len(source.recorded) == 1

    async def import_one(named: tuple[str, Recorded]) -> ImportedHistory:
        name, recorded = named
        try:
            with (progress if is_one else untold)(f"importing {name}") as advance:
                taken = await import_history(ledger, name, recorded, advance)
                next_one(1)
        except InvalidEvent as error:
            raise FileError(f"{source.path}: conversation {name!r} can't be stored: {error.why}") from error
        first = source.broken if recorded is source.recorded[0] else ()
        losses = (*recorded.told, *(Loss(f"passed over: {why}") for why in first))
        return ImportedHistory(str(source.path), name, taken.events, taken.runs, taken.known, taken.head, losses)

    several = progress if len(source.recorded) > 1 else untold
    with several(f"importing {source.path}", len(source.recorded)) as next_one:
        outcomes = await _each(import_one, list(zip(names, source.recorded, strict=False)))
    for outcome in outcomes:
        if isinstance(outcome, LedgerError | StreamError):
            raise outcome
        done.append(outcome)
    return done


def open_source(
    stack: ExitStack,
    path: Path,
    base: str,
    format_name: str = AUTO,
    into: str | None = None,
    *,
    skip_broken: bool = False,
) -> Source:
    """Looks a file through, which stays open as long as `stack`. Raises `FileError`."""
    file = stack.enter_context(open_lines(path))
    broken: list[str] = []

    def passed_over(error: Exception) -> None:
        told = str(error)
        broken.append(told if told.startswith(str(path)) else f"{path}: {told}")

    skip = passed_over if skip_broken else None
    if format_name == TAILFOLD or (format_name == AUTO and is_tailfold(file, path)):
        sections, recorded = look_through(file, path, skip), []
    else:
        sections, recorded = [], read_file(stack, file, path, format_name, skip)
    source = Source(path, base, sections, recorded, tuple(broken))
    count = len(source.sections) + len(source.recorded)
    if into is not None and count > 1:
        raise FileError(f"{path}: --into is for files of one conversation, this one holds {count}: leave it out")
    if into is None:
        _check_names(source)
    return source


def _check_names(source: Source) -> None:
    """Raises `FileError` for a conversation that would have an id which is none of a conversation."""
    for name in (*(each.header.conversation for each in source.sections), *name_of(source.base, source.recorded)):
        try:
            check_conversation_id(name)
        except InvalidId as error:
            raise FileError(f"{source.path}: {error}, with --into where the file holds one conversation") from error


def check_format(name: str) -> None:
    """Raises `ValueError` for what is no format to import."""
    if name not in IMPORTS:
        raise ValueError(f"format {shown(name)} is no format: use one of {', '.join(IMPORTS)}")


async def _import_folder(ledger: Engine, folder: Path, look: Look, progress: Progress) -> ImportReport:
    """Every file below a folder, in the order of their names; one that can't be taken in does not stop the others."""
    paths = await anyio.to_thread.run_sync(_files_below, folder, Path(ledger.tables.database.path))
    bases = bases_of(paths, folder)
    claims: dict[str, Path] = {}
    done: list[ImportedHistory | ImportedLog] = []
    refused: list[RefusedFile] = []
    broken: list[str] = []
    with progress(f"importing {folder}", len(paths)) as advance:

        async def import_one(path: Path) -> tuple[list[ImportedHistory | ImportedLog], tuple[str, ...]]:
            try:
                return await _open_and_import(ledger, path, bases[path], look, None, untold, claims)
            finally:
                advance(1)

        for path, outcome in zip(paths, await _each(import_one, paths), strict=True):
            if isinstance(outcome, LedgerError | StreamError):
                refused.append(RefusedFile(str(path), outcome))
            else:
                done += outcome[0]
                broken += outcome[1]
    return ImportReport(tuple(done), tuple(refused), tuple(broken))


async def _open_and_import(
    ledger: Engine,
    path: Path,
    base: str,
    look: Look,
    into: str | None,
    progress: Progress,
    claims: dict[str, Path] | None = None,
) -> tuple[list[ImportedHistory | ImportedLog], tuple[str, ...]]:
    with ExitStack() as stack:  # in a thread, so that the loop serves others while a large file is looked through
        source = await anyio.to_thread.run_sync(look, stack, path, base)
        if claims is not None:
            _claim(source, claims)
        return await import_source(ledger, source, into, progress), source.broken


def _claim(source: Source, claims: dict[str, Path]) -> None:
    """Raises `FileError` for a conversation that has the name of another file's."""
    names = name_of(source.base, source.recorded)
    for name, one in zip(names, source.recorded, strict=True):
        other = claims.setdefault(name, source.path) if one.kept is None else source.path
        if other != source.path:
            raise FileError(f"{source.path}: its conversation {name!r} would be that of {other}: import it alone with --into")


def _files_below(folder: Path, data: Path) -> list[Path]:
    """But for hidden files, and for the database, which may lie there too."""
    own = data.resolve()
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".") and not str(path.resolve()).startswith(str(own))
    ]


async def _each(work: Callable[[T], Awaitable[R]], given: Sequence[T]) -> list[R | LedgerError | StreamError]:
    """What `work` makes of each, or has failed with, in their order; several at once, for they share their commits."""
    outcomes: list[R | LedgerError | StreamError] = [FileError("it was not looked at")] * len(given)
    left = iter(enumerate(given))

    async def worker() -> None:
        for at, one in left:
            try:
                outcomes[at] = await work(one)
            except (LedgerError, StreamError) as error:
                outcomes[at] = error

    async with anyio.create_task_group() as tasks:
        for _ in range(min(_AT_ONCE, len(given))):
            tasks.start_soon(worker)
    return outcomes
