"""Reads files of settings: a JSON object, and errors that name the file, the line or the key, and what was expected."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

from projector.context.windows import check_limit


class SettingsError(ValueError):
    """A file of settings can't be used. `key` is its path with dots; `line` counts from 1, for what is no JSON."""

    def __init__(self, file: str, why: str, *, key: str | None = None, line: int | None = None) -> None:
        place = f", line {line}" if line is not None else f", {key}" if key is not None else ""
        super().__init__(f"{file}{place}: {why}")
        self.file, self.key, self.line = file, key, line


def read_object(text: str, file: str) -> dict[str, Any]:
    """The JSON object that a file consists of.

    Raises `SettingsError` with the line for what is no JSON, and with the key for one that is given twice: which of
    them is meant can't be known.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            counts = Counter(name for name, _ in pairs)
            twice = next(name for name, times in counts.items() if times > 1)
            raise SettingsError(file, "this key is given twice: keep one of them", key=twice)
        return found

    try:
        value = json.loads(text.removeprefix("\ufeff"), object_pairs_hook=unique, parse_float=_float, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise SettingsError(file, f"this is no JSON ({error.msg}, column {error.colno})", line=error.lineno) from error
    except RecursionError as error:
        raise SettingsError(file, "this is nested too deeply", line=1) from error
    except SettingsError:
        raise
    except ValueError as error:  # a number that Python refuses to read, or could not write again
        raise SettingsError(file, f"this can't be read ({error})", line=1) from error
    if not isinstance(value, dict):
        raise SettingsError(file, "a JSON object was expected", line=1)
    return value


def object_of(values: dict[str, Any], name: str, file: str, *, prefix: str = "") -> dict[str, Any]:
    """The object under a key, empty where there is none. Raises `SettingsError` for anything else."""
    value = values.get(name, {})
    if not isinstance(value, dict):
        raise SettingsError(file, "a JSON object was expected", key=prefix + name)
    return value


def number_of(values: dict[str, Any], name: str, file: str, *, default: Any, least: int = 1, prefix: str = "") -> Any:
    """The whole number under a key, or the default. Raises `SettingsError` for one below `least`, and for what is none."""
    if name not in values or (default is None and values[name] is None):
        return default
    try:
        return check_limit("it", values[name], least=least)
    except ValueError as error:
        raise SettingsError(file, str(error), key=prefix + name) from error


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:20]} is too large")
    return value


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON")
