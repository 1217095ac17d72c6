"""Makes files that are whole and synced or not there, never over another one."""

from __future__ import annotations

import errno
import itertools
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stream.errors import StoreBusy, StoreFull, StoreUnusable, StreamError
from stream.sqlite.place import check_path

if TYPE_CHECKING:
    from collections.abc import Iterator

SIDES: Final = ("-wal", "-journal", "-shm")  # what SQLite keeps beside a database that is in use, or was not closed
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})


@contextmanager
def create_whole(target: str, *, mode: int) -> Iterator[str]:
    """Gives the path of an empty file to fill. At the end of the block it is synced and becomes `target`.

    If the block fails, nothing stays; what a kill leaves goes at the next attempt. Raises `StoreUnusable` for a target
    that is taken or can't be written, `StoreBusy` while another process fills it, `StoreFull`.
    """
    try:
        with _own(f"{target}.partial", target) as (partial, descriptor):
            os.fchmod(descriptor, mode | 0o600)
            yield partial
            os.fsync(descriptor)
            check_free(target)
            _publish(partial, target)
    except OSError as error:
        raise refusal(error, target) from error


def check_free(target: str) -> None:
    """Raises `StoreUnusable` unless the target is missing or empty, and nothing lies beside it that it would take in."""
    check_path(target)
    path = Path(target)
    try:
        if not path.absolute().parent.is_dir():
            raise StoreUnusable(target, "its folder does not exist: make it first")
        if os.path.lexists(path) and (not path.is_file() or path.stat().st_size):
            raise StoreUnusable(target, "there is something of this name: name another file, or move that one away")
        for side in SIDES:  # SQLite would replay the log of another database into this one
            if os.path.lexists(f"{target}{side}"):
                raise StoreUnusable(
                    target,
                    f"{path.name}{side} of another database lies beside it, which may be in use: "
                    "name another file, or stop what uses it and move that away",
                )
    except OSError as error:
        raise refusal(error, target) from error


def free_name(target: str) -> str:
    """`target`, or with a number behind it if that is taken."""
    names = itertools.chain([target], (f"{target}.{number}" for number in itertools.count(2)))
    return next(name for name in names if not os.path.lexists(name))


def discard(target: str) -> None:
    """Lets a file go again that nobody has seen."""
    Path(target).unlink(missing_ok=True)


def refusal(error: OSError, target: str) -> StreamError:
    """What a caller is told when the place can't take the file."""
    if error.errno in _NO_ROOM:
        return StoreFull(f"{target}: there is no room left for it, nothing was made: make room or name another place")
    return StoreUnusable(target, f"the file can't be written ({error.strerror}): name another place")


@contextmanager
def _own(partial: str, target: str) -> Iterator[tuple[str, int]]:
    """Nobody else fills the same place meanwhile; a lock ends with its process, so a kill leaves no trace of it."""
    check_free(target)
    if Path(partial).exists() and Path(partial).stat().st_nlink > 1:
        Path(partial).unlink()  # of one that was killed right after it was made: the file lives on under its own name
    import fcntl  # noqa: PLC0415 - not there on Windows: `import stream` must work without it

    descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_own = Path(partial).stat().st_ino == os.fstat(descriptor).st_ino
        except (BlockingIOError, FileNotFoundError):
            is_own = False
        if not is_own:
            raise StoreBusy(f"{target}: somebody else is making it: wait for that, or name another file")
        try:
            os.ftruncate(descriptor, 0)
            for side in SIDES:
                Path(f"{partial}{side}").unlink(missing_ok=True)
            yield partial, descriptor
        finally:
            for name in (partial, *(f"{partial}{side}" for side in SIDES)):
                with suppress(OSError):  # it is in its place already, or goes at the next attempt
                    Path(name).unlink()
    finally:
        os.close(descriptor)


def _publish(partial: str, target: str) -> None:
    try:
        if os.path.lexists(target):  # an empty file
            Path(partial).replace(target)
        else:
            os.link(partial, target)  # refuses what came into being meanwhile
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        Path(partial).replace(target)
    folder = os.open(Path(target).absolute().parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
