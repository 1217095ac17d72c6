"""What readers of logs share: JSON whose errors name the place, times, and parents that will be there."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from projector.formats.format import FormatError
from projector.json_text import InvalidJson, JsonText, decode, is_json, split, split_array

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_SHOWN: Final = 60
_SCANNER: Final = json.JSONDecoder()
FIRST_NAME: Final = re.compile(r'[\s,]*"([^"\\]*)"\s*:\s*')
"""The next name of an object, up to its value."""
_BETWEEN: Final = re.compile(r"[\s,]*")
_CLOSED: Final = ("{", "[", '"')
_ITEMS: Final = msgspec.json.Decoder(list[msgspec.Raw])


class Fields:
    """A JSON object of a file, and where it stands. Null is as good as absent."""

    def __init__(self, text: JsonText, place: str) -> None:
        """Raises `FormatError` with the place for what is no JSON object."""
        self.source = text
        self.place = place
        try:
            self._fields = split(text)
        except InvalidJson as error:
            raise FormatError(f"{place}: a JSON object was expected, not {shown(text)} ({error})") from error

    def __contains__(self, name: object) -> bool:
        return name in self._fields and self._fields[name] != "null"

    def has(self, name: str) -> bool:
        """Whether a field is there, even if it is null."""
        return name in self._fields

    def names(self) -> set[str]:
        """The names of all fields that are not null."""
        return {name for name in self._fields if name in self}

    def raw(self, name: str) -> JsonText | None:
        """A field as JSON text."""
        return self._fields[name] if name in self else None

    def text(self, name: str) -> str:
        """A field that must be text."""
        value = self.maybe_text(name)
        if value is None:
            raise self.wrong(f'"{name}" should be text, and it is not there')
        return value

    def need_texts(self, *names: str) -> None:
        """Raises `FormatError` unless these fields are text, and not empty."""
        for name in names:
            if not self.text(name):
                raise self.wrong(f'"{name}" should say something, and it is empty')

    def maybe_text(self, name: str) -> str | None:
        """A field that is text, if it is there."""
        value = self._value(name)
        if value is not None and not isinstance(value, str):
            raise self.wrong(f'"{name}" should be text, not {shown(self._fields[name])}')
        return value

    def whole(self, name: str) -> int | None:
        """A field that is a whole number, if it is there."""
        value = self._value(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise self.wrong(f'"{name}" should be a whole number, not {shown(self._fields[name])}')
        return value

    def is_true(self, name: str) -> bool:
        """Whether a field is there and true."""
        return self._value(name) is True

    def time(self, name: str) -> int | None:
        """A time in ms, from ISO 8601 or a number of ms, if it is there."""
        value = self._value(name)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        try:
            said = datetime.fromisoformat(value)
            return round((said if said.tzinfo else said.replace(tzinfo=UTC)).timestamp() * 1000)
        except (TypeError, ValueError, OverflowError) as error:
            why = f'"{name}" should be a time such as 2025-01-31T12:00:00Z, not {shown(self._fields[name])}'
            raise self.wrong(why) from error

    def object(self, name: str) -> Fields | None:
        """A field that is an object, if it is there."""
        text = self.raw(name)
        return None if text is None else Fields(text, f'{self.place}, in "{name}"')

    def need(self, name: str) -> Fields:
        """A field that must be an object."""
        found = self.object(name)
        if found is None:
            raise self.wrong(f'"{name}" should be an object, and it is not there')
        return found

    def objects(self, name: str) -> list[Fields]:
        """A field that is a list of objects; none where it is absent."""
        return [Fields(text, place) for text, place in self.items(name)]

    def items(self, name: str) -> list[tuple[JsonText, str]]:
        """The items of a field that is a list, each with its place."""
        text = self.raw(name)
        if text is None:
            return []
        place = f'{self.place}, in "{name}"'
        return [(item, f"{place} at {number}") for number, item in enumerate(items_of(text, place))]

    def rest(self, *known: str) -> dict[str, JsonText]:
        """The fields that have no other place, to be kept as metadata."""
        return {name: text for name, text in self._fields.items() if name not in known and text != "null"}

    def wrong(self, why: str) -> FormatError:
        """An error at this place."""
        return FormatError(f"{self.place}: {why}")

    def _value(self, name: str) -> Any:
        try:
            return decode(self._fields[name]) if name in self else None
        except InvalidJson as error:
            raise self.wrong(f'"{name}" can\'t be read ({error})') from error


def items_of(text: JsonText, place: str) -> list[JsonText]:
    """The items of a JSON list as they stand. Raises `FormatError` with the place."""
    try:
        return [str(item, "utf-8") for item in _ITEMS.decode(text)]
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        pass  # some legal JSON is refused there
    try:
        return split_array(text)
    except (InvalidJson, ValueError, IndexError) as error:
        is_list = text.lstrip("\ufeff \t\r\n").startswith("[")
        what = (
            "a list was expected, and this one breaks off or is wrong" if is_list else f"a list was expected, not {shown(text)}"
        )
        raise FormatError(f"{place}: {what} ({error})") from error


def whole_items(text: str) -> tuple[list[JsonText], str | None]:
    """The items of a list that breaks off as far as they are whole, and what stands behind them; None where it is whole."""
    items: list[JsonText] = []
    at = len(text) - len(text.lstrip("\ufeff \t\r\n")) + 1
    while True:
        at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr] # it matches nothing, too
        if text[at : at + 1] == "]":
            return items, None
        end = scan_value(text, at)
        if end is None:
            return items, text[at:]
        if not text[end:].lstrip().startswith((",", "]")) and text[at] not in _CLOSED:
            return items, text[at:]  # a number may have gone on
        items.append(text[at:end])
        at = end


def scan_value(text: str, at: int) -> int | None:
    """Where the JSON value that begins at a place ends; None where it breaks off."""
    try:
        return _SCANNER.raw_decode(text, at)[1]
    except (ValueError, RecursionError):
        return None


def messages_of(text: str, expected: str) -> list[Fields] | Fields:
    """The messages of a document that is a list of them; of any other the object that it is, to be looked at.

    Raises `FormatError` with what was `expected`.
    """
    document = text.lstrip("\ufeff \t\r\n")
    if document.startswith("["):
        return [Fields(item, f"message {number}") for number, item in enumerate(items_of(document, "the document"), 1)]
    try:
        return Fields(document, "the document")
    except FormatError as error:
        raise FormatError(f"{error}: {expected}") from error


def lines_of(text: str) -> Iterator[tuple[str, str]]:
    """The lines of a document that are not blank, each with its place, counted from 1."""
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        if line.strip():
            yield line.strip("\r"), f"line {number}"


def is_whole(text: str) -> bool:
    """Whether a text, which may hold lone surrogates, is one JSON value that can be read again."""
    try:
        return is_json(text)
    except UnicodeEncodeError:
        return False


def text_of_field(fields: Mapping[str, JsonText], name: str) -> str | None:
    """A field that is text; None for anything else."""
    value = decode(fields.get(name, "null"))
    return value if isinstance(value, str) else None


def count_of(value: object) -> int | None:
    """A number of tokens; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def reason_of(text: JsonText) -> str | None:
    """Why a response stopped; some libraries write the number of a reason. None where that says nothing."""
    value = decode(text)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if value is not None and not isinstance(value, str):
        raise FormatError(f"a reason to stop should be text, not {shown(text)}")
    return value or None


def says_nothing(text: JsonText) -> bool:
    """Whether a field is as good as absent: null, or empty."""
    return text.strip() in ("null", '""', "[]", "{}")


def shown(text: str) -> str:
    """What stands somewhere, in a few words; what a terminal would obey is escaped."""
    said = text.strip()
    short = "".join(each if each.isprintable() else repr(each)[1:-1] for each in said[:_SHOWN])
    kind = {"{": "an object: ", "[": "a list: "}.get(said[:1], "")
    return f"{kind}{short}{'…' if len(said) > _SHOWN else ''}" if said else "nothing"
