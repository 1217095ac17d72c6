"""What a command shows, run in this process: on a terminal of so many columns, or into a pipe."""

from __future__ import annotations

import contextlib
import functools
import io
import shlex
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest
import typer.main

from ledger.admin.app import run_app

if TYPE_CHECKING:
    from pathlib import Path

_command_of = functools.cache(typer.main.get_command)  # it takes longer than most commands


class Shown(NamedTuple):
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str


class _Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def shown(line: str, folder: Path, *, columns: int | None = None, colours: bool = False) -> Shown:
    """Runs `tailfold …` in a folder; without `columns` what it writes goes into pipes."""
    out, err = (_Terminal() if columns else io.StringIO()), io.StringIO()  # how far long work has come is shown on the other
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(typer.main, "get_command", _command_of)
        patch.setattr(sys, "argv", shlex.split(line))
        patch.setattr(sys.modules["__main__"], "__package__", "", raising=False)  # or a usage says how pytest was called
        patch.chdir(folder)
        for name in ("TAILFOLD_DATA", "TAILFOLD_LOG", "TAILFOLD_PLUGINS", "NO_COLOR", "FORCE_COLOR", "COLORTERM", "COLUMNS"):
            patch.delenv(name, raising=False)
        patch.setenv("TERM", "xterm-256color")
        patch.setenv("LINES", "40")
        if columns:
            patch.setenv("COLUMNS", str(columns))
        if not colours:
            patch.setenv("NO_COLOR", "1")
        code = run_app()
    return Shown(code, out.getvalue(), err.getvalue())
