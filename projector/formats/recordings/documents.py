"""Documents of histories: one JSON value, or lines that are each a document or a message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from projector.formats.format import FormatError
from projector.formats.recordings.salvage import read_lines_left, read_rest
from projector.formats.registry import NAMED, READERS
from projector.formats.shared.fields import is_whole, items_of, lines_of
from projector.json_text import split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from projector.formats.format import Format
    from projector.formats.shared.history import History
    from projector.json_text import JsonText

_HOLD_MESSAGES: Final = frozenset(name for each in NAMED.values() for name in each.lists)
_ENOUGH: Final = 50
"""How many values are looked at to tell a format."""


def read_document(text: str, name: str, skip: Callable[[FormatError], object] | None = None) -> Iterator[History]:
    """The histories of a document in the format `name`.

    Raises `FormatError` with the place and what was expected, behind the histories that are whole; what is wrong with a
    line, a message or a conversation goes to `skip`, if that is given, and the rest is read.
    """
    read, form = READERS[name], NAMED[name]
    text = text.removeprefix("\ufeff")
    if form.is_of_lines or not is_of_lines(text):
        if skip is None:
            yield from read(_request(text, form))
        elif form.is_of_lines:
            yield from read_lines_left(text, read, skip)
        else:
            yield from read_rest(text, read, lambda rest: _request(rest, form), form.lists, skip)
        return
    lines = list(lines_of(text))
    if is_whole(lines[0][0]) and not split(lines[0][0]).keys() & _HOLD_MESSAGES:
        for line, place in lines:
            if not is_whole(line):
                raise FormatError(f"{place}: a JSON object was expected, and it breaks off or is none")
        yield from _read_messages(lines, lambda items: read(_request(f"[{','.join(items)}]", form)), skip)
        return
    for line, place in lines:
        try:
            yield from read(line)
        except FormatError as error:
            why = FormatError(f"{place}: {error}")
            if skip is None:
                raise why from error
            skip(why)


def _read_messages(
    lines: Sequence[tuple[str, str]],
    read: Callable[[Sequence[str]], Iterator[History]],
    skip: Callable[[FormatError], object] | None,
) -> Iterator[History]:
    """The history of lines that are each a message. An error names the line."""
    try:
        yield from list(read([line for line, _ in lines]))
    except FormatError:
        kept = []
        for line, place in lines:
            try:
                list(read([line]))
                kept.append(line)
            except FormatError as error:
                why = FormatError(f"{place}: {error}")
                if skip is None:
                    raise why from error
                skip(why)
        if skip is None or not kept:
            raise
        yield from read(kept)


def _request(text: str, form: Format) -> str:
    """The document as its reader takes it: a message alone is a list of one."""
    if form.wants_list and is_whole(text) and text.lstrip().startswith("{"):
        names = split(text).keys()
        text = f"[{text}]" if "role" in names and not names & _HOLD_MESSAGES else text
    return f'{{"{form.lists[0]}":{text}}}' if form.wants_object and text.lstrip().startswith("[") else text


def first_values(text: str) -> list[JsonText]:
    """What tells the format of a document: it itself, or its first items or lines. Raises `FormatError` for an empty one."""
    document = text.lstrip("\ufeff \t\r\n")
    if not document:
        raise FormatError("the file is empty")
    if document.startswith("["):
        items = items_of(document, "the document")
        if not items:
            raise FormatError("the document is an empty list")
        return items[:_ENOUGH]
    if not is_of_lines(text):
        return [document]
    return [line for (line, _), _ in zip(lines_of(text), range(_ENOUGH), strict=False)]


def is_of_lines(text: str) -> bool:
    """Whether each line is a JSON object: the first is one, and more follow."""
    lines = lines_of(text)
    first, second = next(lines, None), next(lines, None)
    return first is not None and second is not None and first[0].lstrip("\ufeff ").startswith("{") and is_whole(first[0])
