"""JSON text as the plain values that a payload is made of, and what of it plain values can't hold."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from projector.json_text import plain

if TYPE_CHECKING:
    from projector.json_text import JsonText


def value_of(text: JsonText) -> Any:
    """JSON text as plain values; None for what can't be read."""
    try:
        return plain(text)
    except (ValueError, RecursionError):
        return None


def object_of(text: JsonText | None) -> dict[str, Any]:
    """JSON text as an object; an empty one for what is none."""
    value = value_of(text) if text else None
    return value if isinstance(value, dict) else {}


def numbers_as_text(text: JsonText) -> int:
    """How many numbers in JSON text no float holds; `value_of` gives them as text."""
    found: list[str] = []

    def note(number: str) -> object:
        if isinstance(plain(number), str):
            found.append(number)
        return None

    try:
        json.loads(text, parse_float=note, parse_int=note)
    except (ValueError, RecursionError):
        return 0
    return len(found)
