"""Packages that only some parts need: who lacks one is told which extra brings it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_OURS: Final = ("stream", "projector", "ledger")


class MissingExtra(ModuleNotFoundError):
    """A part was imported without the packages it needs; the message says what to install."""


@contextmanager
def needs(extra: str, part: str) -> Iterator[None]:
    """Around the imports of `part`: raises `MissingExtra` where a package is missing that the extra brings."""
    try:
        yield
    except MissingExtra:
        raise
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not package or package in _OURS:
            raise
        raise MissingExtra(f"{part} needs {package}: pip install 'tailfold[{extra}]'", name=package) from None
