"""Streams of several answers at once, taken apart: each answer as the stream it would be alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from projector.formats.format import FormatError
from projector.formats.shared.fields import Fields
from projector.json_text import InvalidJson, JsonText, decode, join_fields, split

if TYPE_CHECKING:
    from collections.abc import Sequence

_OTHERS: Final = re.compile(r'"index"\s*:\s*[1-9]')
_OBJECT: Final = "{"


def take_apart(text: JsonText, name: str, told_once: Sequence[str]) -> list[tuple[int, JsonText]]:
    """A chunk as one for each of the answers that it lists under `name`, by their numbers.

    What is said of all of them once stays with the first.
    """
    if _OTHERS.search(text) is None or not text.lstrip().startswith(_OBJECT):
        return [(0, text)]
    try:
        fields = split(text)
        answers = [(split(item), item) for item, _ in Fields(text, "a chunk").items(name) if item.lstrip().startswith(_OBJECT)]
    except (InvalidJson, FormatError):
        return [(0, text)]  # its adapter says what is wrong with it
    numbered: dict[int, list[JsonText]] = {}
    for place, (answer, source) in enumerate(answers):
        given = decode(answer.get("index", "null"))
        number = given if isinstance(given, int) else place
        numbered.setdefault(number, []).append(source if not number else join_fields(answer | {"index": "0"}))
    rest = {key: value for key, value in fields.items() if key not in told_once}
    found = []
    for number, own in sorted(numbered.items()):
        said = rest if number else fields
        found.append((number, join_fields(said | {name: f"[{','.join(own)}]"})))
    is_told = any(fields.get(key, "null") != "null" for key in told_once)
    return found if 0 in numbered or not is_told else [(0, join_fields(fields | {name: "[]"})), *found]
