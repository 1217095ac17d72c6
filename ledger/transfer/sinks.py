"""Where a command writes what may be long: standard output, or a file that is whole or absent."""

from __future__ import annotations

import gzip
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ledger.signs import harmless_json
from ledger.standard_output import writable_json
from stream.sqlite.files import create_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_IN_MEMORY: Final = 4 * 1024 * 1024
_ONLY_OWNER: Final = 0o600  # what was said is nobody else's


@contextmanager
def whole_or_nothing(write: Callable[[str], Any]) -> Iterator[Callable[[str], Any]]:
    """Takes lines, and hands them on once the block has ended well; of one that raises nothing is written."""
    with tempfile.SpooledTemporaryFile(_IN_MEMORY, mode="w+", encoding="utf-8", newline="\n") as kept:
        yield lambda line: kept.write(line + "\n")
        kept.seek(0)
        for line in kept:
            write(line.removesuffix("\n"))


@contextmanager
def open_sink(output: Path | None) -> Iterator[Callable[[str], Any]]:
    """Takes lines of JSON; a file is whole or absent, and the same lines make the same bytes.

    On a terminal, which is nobody's file, the same JSON is written so that it steers nothing.
    """
    if output is None:
        shown = harmless_json if sys.stdout.isatty() else str
        yield lambda line: sys.stdout.write(writable_json(shown(line)) + "\n")
        sys.stdout.flush()
        return
    with create_whole(str(output), mode=_ONLY_OWNER) as partial, Path(partial).open("r+b") as file:
        if output.suffix != ".gz":
            yield lambda line: file.write(line.encode() + b"\n")
            return
        with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0) as packed:
            yield lambda line: packed.write(line.encode() + b"\n")
