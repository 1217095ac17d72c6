"""A folder of this user alone, for a while: also where its process is killed what lay in it goes, when the next one is made."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stream.sqlite.files import SIDES

if TYPE_CHECKING:
    from collections.abc import Iterator

COPY: Final = "copy.db"
"""What may lie in such a folder, with what SQLite keeps beside it; nothing else is ever taken away."""
_PREFIX: Final = "tailfold-look-"


@contextmanager
def private_folder() -> Iterator[Path]:
    """Gives an empty folder, which is gone at the end of the block. Raises `OSError` where none can be made."""
    _clear_away()
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        mark = _take(folder)
        if mark is not None:
            break
    try:
        yield folder
    finally:
        _remove(folder)
        os.close(mark)


def _clear_away() -> None:
    """What others have left that were killed: nobody holds its lock, which ends with a process."""
    with suppress(OSError):
        for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            mark = _take(folder)
            if mark is not None:
                _remove(folder)
                os.close(mark)


def _take(folder: Path) -> int | None:
    """A descriptor by which it is locked; None where somebody else has it, or it is gone or no folder of this user."""
    import fcntl  # noqa: PLC0415 - not there on Windows: `import stream` must work without it

    try:
        mark = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found, named = os.fstat(mark), folder.stat()
        if found.st_uid == os.geteuid() and (found.st_dev, found.st_ino) == (named.st_dev, named.st_ino):
            return mark
    except OSError:
        pass
    os.close(mark)
    return None


def _remove(folder: Path) -> None:
    with suppress(OSError):
        for side in ("", *SIDES):
            (folder / f"{COPY}{side}").unlink(missing_ok=True)
        folder.rmdir()
