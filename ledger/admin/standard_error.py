"""What is told on standard error: lines for people, and nothing that steers the terminal."""

from __future__ import annotations

import logging
import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING, TextIO, cast

from ledger.signs import one_line, printable

if TYPE_CHECKING:
    from collections.abc import Iterable


def print_failure(error: BaseException) -> None:
    """Why a command could not be done, in one line."""
    sys.stderr.write(one_line(f"tailfold: {error}") + "\n")


def guard_standard_error() -> TextIO:
    """From here on nothing steers the terminal from there, whoever writes it: warnings, logs and other libraries, too."""
    if isinstance(sys.stderr, TextIOWrapper):
        sys.stderr.reconfigure(errors="backslashreplace")
    if not isinstance(sys.stderr, _Guarded):
        sys.stderr = cast("TextIO", _Guarded(sys.stderr))
    return cast("TextIO", sys.stderr)


def standard_error() -> TextIO:
    """The stream itself, which may be a terminal."""
    return sys.stderr.stream if isinstance(sys.stderr, _Guarded) else sys.stderr


def tell_errors(stream: TextIO) -> None:
    """What the packages say to have gone wrong is told there from now on, and nothing else of it."""
    teller = logging.StreamHandler(stream)
    teller.setLevel(logging.ERROR)
    teller.setFormatter(logging.Formatter("[%(levelname)s] %(message)s"))  # a traceback in it shows no variables
    logger = logging.getLogger("tailfold")
    logger.handlers, logger.propagate = [teller], False


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
