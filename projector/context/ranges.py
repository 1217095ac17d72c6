"""Parts of a result: some items of a JSON array, or some lines of a text."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from projector.json_text import InvalidJson, decode


class Part(msgspec.Struct, frozen=True):
    """Some items of `item_count`. `clamped`: the range went beyond the end."""

    items: list[Any]
    clamped: bool
    item_count: int


def items_of(text: str) -> list[Any]:
    """The items of a JSON array, or the lines of any other text."""
    if text.lstrip()[:1] == "[":
        try:
            found = decode(text)
        except InvalidJson:
            found = None
        if isinstance(found, list):
            return found
    return text.split("\n")


def take_range(text: str, item_range: tuple[int, int]) -> Part:
    """The items from `a` up to `b`, zero-based, `b` not included; a range beyond the end is clamped, and says so.

    Raises `ValueError` for a negative or reversed range, and for one that is not of two whole numbers.
    """
    start, end = check_range(item_range)
    items = items_of(text)
    return Part(items[start:end], end > len(items), len(items))


def check_range(item_range: object) -> tuple[int, int]:
    """The range, or `ValueError` for one that is none."""
    match item_range:
        case [start, end] if type(start) is int and type(end) is int and 0 <= start <= end:
            return start, end
    raise ValueError(f"an item range is two whole numbers with 0 <= first <= end, not {str(item_range)[:40]}")


def show_range(text: str, item_range: tuple[int, int]) -> str:
    """The part as a model sees it, under a line that says what it is of."""
    part = take_range(text, item_range)
    start, end = min(item_range[0], part.item_count), min(item_range[1], part.item_count)
    clamped = "; the range went beyond the end" if part.clamped else ""
    is_array = text.lstrip()[:1] == "[" and items_of(text) != text.split("\n")
    body = json.dumps(part.items, ensure_ascii=False) if is_array else "\n".join(part.items)
    return f"[Items {start} up to {end} of {part.item_count}{clamped}. Agent can request the rest.]\n\n{body}"
