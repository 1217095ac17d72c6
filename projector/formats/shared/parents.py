"""Records of a file in an order in which each stands behind the one it hangs on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from projector.json_text import InvalidJson, decode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from projector.formats.shared.fields import Fields


def behind_parents(records: Sequence[Fields], own: str, *parents: str) -> Iterator[Fields]:
    """The records as they stand, but for those whose parent stands later: they come right behind it.

    `own` is the field that names a record, `parents` those that name what it hangs on, the first that is there. Records
    that hang on each other in a circle come last. Programs write what runs beside an answer before the record that it
    names as its parent.
    """
    there = {name for record in records if (name := _text(record, own))}
    gone: set[str] = set()
    waiting: dict[str, list[Fields]] = {}
    for record in records:
        on = next((name for field in parents if (name := _text(record, field))), "")
        if on and on in there and on not in gone:
            waiting.setdefault(on, []).append(record)
            continue
        ready = [record]
        while ready:
            next_one = ready.pop()
            yield next_one
            name = _text(next_one, own)
            if name:
                gone.add(name)
                ready += reversed(waiting.pop(name, []))
    for left in waiting.values():
        yield from left


def _text(record: Fields, name: str) -> str:
    """What a field says, "" where that is no text: whoever takes the record in says so."""
    try:
        value = decode(record.raw(name) or "null")
    except InvalidJson:
        return ""
    return value if isinstance(value, str) else ""
