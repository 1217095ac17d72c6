"""Documents with one value replaced by another kind of value, for readers that must refuse it or read it."""

from __future__ import annotations

from typing import Any, Final

WRONGS: Final[tuple[Any, ...]] = (7, "x", [], {}, None, [[]], [None], True, 1.5)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    return ([at] if at else []) + [place for key, child in inner for place in places(child, (*at, key))][:120]


def put(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    if not place:
        return new
    made = dict(value) if isinstance(value, dict) else list(value)
    made[place[0]] = put(value[place[0]], place[1:], new)
    return made
