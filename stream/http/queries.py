"""Reads what a request asks by its query: a mistake is named, and never passed over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stream.http.problems import Problem
from stream.limits import MAX_INTEGER

if TYPE_CHECKING:
    from starlette.requests import Request


def read_number(name: str, given: str, *, least: int = 0, most: int = MAX_INTEGER) -> int:
    """A whole number in ASCII digits. Raises `Problem` (400)."""
    number = int(given) if given.isascii() and given.isdecimal() and len(given) < 20 else -1
    if not least <= number <= most:
        raise Problem(400, "invalid_number", f"{name} is a whole number from {least} to {most}, not {given[:40]!r}")
    return number


def query_number(request: Request, name: str, default: int, *, least: int = 0, most: int = MAX_INTEGER) -> int:
    """A whole number of the query. Raises `Problem` (400)."""
    given = query_text(request, name)
    return default if given is None else read_number(name, given, least=least, most=most)


def query_flag(request: Request, name: str) -> bool:
    """True or false, false where nothing is said. Raises `Problem` (400)."""
    given = query_text(request, name)
    if given not in (None, "true", "false"):
        raise Problem(400, "invalid_flag", f"{name} is true or false, not {given[:40]!r}")
    return given == "true"


def query_choice(request: Request, name: str, choices: tuple[str, ...]) -> str | None:
    """One of some words. Raises `Problem` (400)."""
    given = query_text(request, name)
    if given is not None and given not in choices:
        raise Problem(400, "invalid_choice", f"{name} is {', '.join(choices[:-1])} or {choices[-1]}, not {given[:40]!r}")
    return given


def query_text(request: Request, name: str) -> str | None:
    """What the query says, once. Raises `Problem` (400) where it says it twice, or no UTF-8."""
    given = request.query_params.getlist(name)
    if len(given) > 1:
        raise Problem(400, "invalid_query", f"{name} is given {len(given)} times: once is enough")
    if given and "\ufffd" in given[0] and b"%EF%BF%BD" not in request.scope["query_string"].upper():
        raise Problem(400, "invalid_query", f"{name} is no percent-encoded UTF-8")
    return given[0] if given else None
