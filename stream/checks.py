"""What a caller may give: each check names the parameter, what it takes, and what it got instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stream.urls import is_meant_as_server, shown_url

if TYPE_CHECKING:
    from collections.abc import Collection

_SHOWN: Final = 42
_DIGITS: Final = 128  # bits of a number that is shown


def check_text(what: str, value: object) -> str:
    """Returns `value`, or raises `ValueError` unless it is text, whatever it says."""
    if not isinstance(value, str):
        raise refusal(what, "text", value)
    return value


def check_name(what: str, value: object) -> str:
    """Returns `value`, or raises `ValueError` unless it is text that can be said as UTF-8."""
    try:
        check_text(what, value).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} must be UTF-8 text, and {shown(value)} holds a lone surrogate") from error
    return str(value)


def check_flag(what: str, value: object) -> bool:
    """Returns `value`, or raises `ValueError` unless it is True or False."""
    if not isinstance(value, bool):
        raise refusal(what, "True or False", value)
    return value


def check_choice(what: str, value: object, choices: Collection[str]) -> None:
    """Raises `ValueError` unless `value` is one of these texts."""
    if not isinstance(value, str) or value not in choices:
        raise refusal(what, f"one of {', '.join(choices)}", value)


def check_kind(what: str, value: object, kind: Any, said: str) -> Any:
    """Returns `value`, or raises `ValueError` unless it is of this class; `said` is how that is called in the error."""
    if not isinstance(value, kind):
        raise refusal(what, said, value)
    return value


def check_path(what: str, value: object) -> Path:
    """Returns what is named. Raises `ValueError` for what is no path; the empty one would be all of the current folder."""
    named = check_kind(what, value, str | PathLike, "a path")
    if named == "":
        raise ValueError(f"{what} must name a file or a folder, and it is empty: '.' is the folder you are in")
    if is_meant_as_server(str(named)):
        raise ValueError(f"{what} must name a file or a folder, and {shown_url(str(named))} is a server")
    return Path(named)


def check_list(what: str, value: object, said: str) -> Sequence[Any]:
    """Returns `value`, or raises `ValueError` unless it is a list or tuple; a text is no list of its characters."""
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, str | bytes | bytearray | memoryview) or not isinstance(value, Sequence):
        raise refusal(what, f"a list of {said}", value)
    return value


def check_mapping(what: str, value: object, said: str) -> Mapping[Any, Any]:
    """Returns `value`, or raises `ValueError` unless it maps something to something; `said` is what."""
    if not isinstance(value, Mapping):
        raise refusal(what, f"a dict of {said}", value)
    return value


def check_store(what: str, value: object) -> None:
    """Raises `ValueError` for what is no `EventStore`, a path or a ledger say: only what is asked of it would tell."""
    if not callable(getattr(value, "bounds", None)):
        raise refusal(what, "an EventStore, such as open_store gives and a ledger has as its `store`", value)


def refusal(what: str, takes: str, value: object) -> ValueError:
    """What is raised for a parameter that `takes` something else: always a `ValueError`, so that callers catch one."""
    return ValueError(f"{what} must be {takes}, not {shown(value)}")


def shown(value: object) -> str:
    """A value in a few characters, whatever it is: plain ones as they are written, of others their type."""
    if isinstance(value, str | bytes):
        said = repr(value[:_SHOWN])
        return said if len(value) <= _SHOWN and len(said) <= _SHOWN else said[: _SHOWN - 1] + "…"
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if isinstance(value, int):
        return repr(value) if value.bit_length() <= _DIGITS else f"a number of {value.bit_length()} bits"
    return f"{type(value).__name__}"
