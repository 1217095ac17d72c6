"""What the packages say of themselves: one dotted event a fact, heard by whoever configured a log and by nobody else."""

from __future__ import annotations

import logging
import sys
from typing import Any, Final

_ROOT: Final = logging.getLogger("tailfold")
_ROOT.addHandler(logging.NullHandler())  # or `logging` would print the warnings of a program that never asked for any


class Logger:
    """Says events with ids and numbers to structlog where the program configured that, else to `logging`.

    structlog prints all it is told where nobody configured it, and takes longer to import than all of this package: it
    is asked only if the program itself imported and configured it.
    """

    __slots__ = ("_name", "_plain", "_structured")

    def __init__(self, name: str) -> None:
        self._name = name
        self._plain = logging.getLogger(name)
        self._structured: Any = None

    def info(self, event: str, **fields: object) -> None:
        """A fact that is as it should be."""
        self._say("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Something was lost or passed over, and the work went on."""
        self._say("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Something could not be done."""
        self._say("error", event, fields)

    def exception(self, event: str, **fields: object) -> None:
        """An error that nobody foresaw, with the place it came from."""
        self._say("exception", event, fields)

    def _say(self, method: str, event: str, fields: dict[str, object]) -> None:
        if "structlog" in sys.modules:
            import structlog  # noqa: PLC0415 - the program has imported it

            if structlog.is_configured():
                self._structured = self._structured or structlog.get_logger(self._name)
                getattr(self._structured, method)(event, **fields)
                return
        # repr: what ids, paths and errors say was written by others, and stays on its line
        text = " ".join([event, *(f"{name}={value!r}" for name, value in fields.items())])
        getattr(self._plain, method)("%s", text, stacklevel=3)
