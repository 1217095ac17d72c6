"""The values of a vector file: expanded before a case runs, compared after it."""

from __future__ import annotations

import math
from typing import Any


class NotThereError(Exception):
    """The code a case needs is not written yet: the case is skipped."""


class ErrorNames(frozenset[str]):
    """What a raised error may be called: the names of its class and of its bases."""

    __slots__ = ()

    @classmethod
    def of(cls, error: BaseException) -> ErrorNames:
        return cls(kind.__name__ for kind in type(error).__mro__)


def expand(value: Any) -> Any:
    """Replaces `$repeat`, `$join`, `$float`, `$count`, `$texts` and `$hex` at any depth; gives new containers."""
    if isinstance(value, list):
        return [expand(item) for item in value]
    if not isinstance(value, dict):
        return value
    expanded = {key: expand(item) for key, item in value.items()}
    match expanded:
        case {"$repeat": [text, n], **rest} if not rest:
            return text * n
        case {"$join": [*texts], **rest} if not rest:
            return "".join(texts)
        case {"$float": text, **rest} if not rest:
            return float(text)
        case {"$count": n, **rest} if not rest:
            return list(range(1, n + 1))
        case {"$texts": n, **rest} if not rest:
            return [str(number) for number in range(1, n + 1)]
        case {"$hex": digits, **rest} if not rest:
            return bytes.fromhex(digits)
    return expanded


def holds(expected: Any, result: Any) -> bool:
    """True if the result is what was expected; an object may hold more, and an absent flag is false."""
    if isinstance(result, ErrorNames):
        return isinstance(expected, str) and (expected == "any" or expected in result)
    if isinstance(expected, bool) or isinstance(result, bool):
        return type(expected) is type(result) and expected == result
    if isinstance(expected, dict):
        return isinstance(result, dict) and all(
            holds(item, result[key]) if key in result else item is False for key, item in expected.items()
        )
    if isinstance(expected, list):
        return isinstance(result, list | tuple) and len(expected) == len(result) and all(map(holds, expected, result))
    if isinstance(expected, float) and math.isnan(expected):
        return isinstance(result, float) and math.isnan(result)
    return bool(expected == result)
