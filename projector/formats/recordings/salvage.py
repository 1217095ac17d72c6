"""What can be read of a document in which something is broken: the lines, items and messages that are whole."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from projector.formats.format import FormatError
from projector.formats.shared.fields import FIRST_NAME, is_whole, items_of, lines_of, scan_value, whole_items
from projector.json_text import join_fields, split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from projector.formats.shared.history import History
    from projector.json_text import JsonText

    Skip = Callable[[FormatError], object]
    Read = Callable[[str], Iterator[History]]

_LINE: Final = re.compile(r"line (\d+)\b")
_MOST: Final = 1000
"""How many records are looked for one by one; a file with more of them is of something else."""
_TORN: Final = "a JSON object was expected, and it breaks off or is none"


def text_of(data: bytes, skip: Skip) -> str:
    """The lines that are UTF-8; for one that is not there is an empty one."""
    lines = []
    for number, line in enumerate(data.split(b"\n"), 1):
        try:
            lines.append(line.decode())
        except UnicodeDecodeError as error:
            skip(FormatError(f"line {number}: UTF-8 text was expected ({error.reason} at byte {error.start})"))
            lines.append("")
    return "\n".join(lines)


def whole_text(text: str, skip: Skip) -> str:
    """The document as far as it is JSON: the items of a list that breaks off, or of a list in an object; whole lines."""
    document = text.lstrip("\ufeff \t\r\n")
    if is_whole(document):
        return text
    if document.startswith("["):
        items, rest = whole_items(document)
        if rest is not None and items:
            skip(FormatError(f"item {len(items) + 1}: the list breaks off there, or is none from there on"))
            return f"[{','.join(items)}]"
        return text
    lines = list(lines_of(text))
    if any(is_whole(line) for line, _ in lines):
        return _whole_lines(text, skip)
    return _whole_object(document, skip) or text


def read_rest(text: str, read: Read, request: Callable[[str], str], lists: Sequence[str], skip: Skip) -> list[History]:
    """The histories of a list, or of an object with one, without the items that can't be read.

    `request` makes of a list what the reader takes. Raises `FormatError` where nothing is left.
    """
    try:
        return list(read(request(text)))
    except FormatError as error:
        document = text.lstrip("\ufeff \t\r\n")
        if document.startswith("["):
            kept = _readable(items_of(document, "the document"), lambda item: read(request(f"[{item}]")), "item", skip)
            rest = f"[{','.join(kept)}]"
        else:
            fields = split(document)
            name = next((name for name in lists if fields.get(name, "").startswith("[")), None)
            if name is None:
                raise
            one = {name: ""}
            items = items_of(fields[name], name)
            kept = _readable(items, lambda item: read(join_fields(one | {name: f"[{item}]"})), "message", skip)
            rest = join_fields(fields | {name: f"[{','.join(kept)}]"})
        if not kept:
            raise error from None
        return list(read(request(rest)))


def read_lines_left(text: str, read: Read, skip: Skip) -> list[History]:
    """The histories of lines that belong together, without the lines that can't be read.

    Raises `FormatError` for what is wrong with no line, or with too many.
    """
    if text.lstrip("\ufeff \t\r\n").startswith("["):
        text = "\n".join(" ".join(item.split("\n")) for item in items_of(text.lstrip("\ufeff \t\r\n"), "the document"))
    lines = text.removeprefix("\ufeff").split("\n")
    for _ in range(_MOST):
        try:
            return list(read("\n".join(lines)))
        except FormatError as error:
            found = _LINE.match(str(error))
            at = int(found.group(1)) - 1 if found is not None else -1
            if not 0 <= at < len(lines) or not lines[at]:
                raise
            skip(error)
            lines[at] = ""
    raise FormatError(f"more than {_MOST} lines of it can't be read: it is something else, or broken as a whole")


def _readable(items: Sequence[JsonText], read: Read, word: str, skip: Skip) -> list[JsonText]:
    kept = []
    for number, item in enumerate(items, 1):
        try:
            list(read(item))
        except FormatError as error:
            skip(FormatError(f"{word} {number}: {error}"))
        else:
            kept.append(item)
    return kept


def _whole_lines(text: str, skip: Skip) -> str:
    lines = text.split("\n")
    for at, line in enumerate(lines):
        said = line.strip("\ufeff \t\r")
        if said and not is_whole(said):
            skip(FormatError(f"line {at + 1}: {_TORN}"))
            lines[at] = ""
    return "\n".join(lines)


def _whole_object(document: str, skip: Skip) -> str | None:
    """An object that breaks off inside a list: with the items that are whole."""
    fields: dict[str, JsonText] = {}
    at = 1
    while (found := FIRST_NAME.match(document, at)) is not None:
        name = found.group(1)
        end = scan_value(document, found.end())
        if end is None:
            items, rest = whole_items(document[found.end() :]) if document[found.end() : found.end() + 1] == "[" else ([], "")
            if rest is None or not items:
                return None
            skip(FormatError(f'"{name}" breaks off behind its item {len(items)}'))
            return join_fields(fields | {name: f"[{','.join(items)}]"})
        fields[name] = document[found.end() : end]
        at = end
    return None
