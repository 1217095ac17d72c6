"""JSON that loses nothing: lone surrogates, 1e400 and 2**200 come back as they went in.

msgspec is fast and refuses some legal JSON; the standard library takes over where it does. Values
of free form stay JSON text (`JsonText`), so their numbers, key order and escapes are never rewritten.
"""

from __future__ import annotations

import json
import math
import re
import sys
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")
JsonText = str
"""One JSON value as text."""

NOTHING: Final = msgspec.Raw()
"""An absent field of free form; always this one object, so that it is left out when it is written."""
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SPACE: Final = " \t\n\r"
_HALVES: Final = re.compile("[\ud800-\udfff]")


def learn(*kinds: type[msgspec.Struct]) -> None:
    """Tells msgspec of structs that are read later. A module does so once, when it is imported.

    Otherwise msgspec learns a struct when it is first read, and where two threads do that at once the process crashes.
    """
    for kind in kinds:
        msgspec.json.Decoder(kind)


class InvalidJson(ValueError):
    """This is no legal JSON, or not of the form that was asked for."""


def decode(data: bytes | str, kind: Callable[..., T] | Any = Any) -> Any:
    """One JSON value as `kind` (a struct, or plain Python values). Raises `InvalidJson`."""
    try:
        _check_utf8(data)
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeEncodeError):  # a lone surrogate as it is, for one
        pass
    except UnicodeDecodeError as error:
        raise InvalidJson(f"it is no UTF-8 text ({error.reason} at byte {error.start})") from error
    except RecursionError as error:
        raise InvalidJson("it is nested too deeply") from error
    try:
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return _convert(split(data), kind)
        return msgspec.convert(json.loads(_text(data), parse_constant=_refuse), kind)
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidJson(_why(error)) from error


def decoder(kind: type[T]) -> Callable[[bytes], T]:
    """Decodes as `decode` does, sooner. For a struct without `Raw`: the text that msgspec keeps as it is isn't looked at."""
    fast = msgspec.json.Decoder(kind).decode

    def decode_one(data: bytes) -> T:
        try:
            return fast(data)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):  # or legal all the same
            return decode(data, kind)  # type: ignore[no-any-return]

    return decode_one


def split(data: bytes | str) -> dict[str, JsonText]:
    """The fields of a JSON object, each value as the text it had. Raises `InvalidJson`."""
    try:
        return {name: str(raw, "utf-8") for name, raw in _FIELDS.decode(data).items()}
    except (msgspec.MsgspecError, RecursionError):
        pass
    except UnicodeError as error:
        raise InvalidJson(f"it is no UTF-8 text ({error})") from error
    try:
        return _scan_object(_text(data))
    except (ValueError, RecursionError, IndexError) as error:
        raise InvalidJson(_why(error)) from error


def split_array(data: JsonText) -> list[JsonText]:
    """The items of a JSON array, each as the text it had. Raises `InvalidJson`."""
    try:
        if not isinstance(decode(data), list):
            raise InvalidJson("it is no JSON array")
        scan, items, at = json.JSONDecoder().raw_decode, [], _skip(data, data.index("[") + 1)
        while data[at] != "]":
            start, (_, at) = at, scan(data, at)
            items.append(data[start:at])
            at = _skip(data, at)
            at = _skip(data, at + 1) if data[at] == "," else at
    except RecursionError as error:
        raise InvalidJson(_why(error)) from error
    return items


def encode(value: Any) -> bytes:
    """A struct or plain values as compact JSON, all ASCII where msgspec refuses. Raises `InvalidJson` for NaN."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        pass
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        defaults = dict(zip(reversed(value.__struct_encode_fields__), reversed(value.__struct_defaults__), strict=False))
        fields = ((name, getattr(value, attribute)) for name, attribute in names)
        body = (f"{dump(name)}:{_text_of(field)}" for name, field in fields if not _is_default(name, field, defaults))
        return ("{" + ",".join(body) + "}").encode()
    return dump(value).encode()


def is_json(text: str) -> bool:
    """Whether this is one JSON value."""
    try:
        decode(text)
    except InvalidJson:
        return False
    return True


def dump(value: object) -> JsonText:
    """Plain Python values as JSON text. Raises `InvalidJson` for what JSON can't express."""
    try:
        return json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidJson(_why(error)) from error


def readable(value: object) -> JsonText:
    """As `dump`, with text of any writing as it is; only halves of a sign are escapes. Raises `InvalidJson`."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidJson(_why(error)) from error
    return text if text.isascii() else _HALVES.sub(lambda half: f"\\u{ord(half[0]):04x}", text)


def plain(text: JsonText) -> Any:
    """JSON text as plain values that can be written as JSON again: a number that no float holds stays its own text."""
    return json.loads(text, parse_float=_float, parse_int=_int)


def join_fields(fields: Mapping[str, JsonText]) -> JsonText:
    """Fields as one JSON object, each as the text it had; what `split` takes apart."""
    return "{" + ",".join(f"{dump(name)}:{text}" for name, text in fields.items()) + "}"


def raw(text: JsonText | None) -> msgspec.Raw:
    """JSON text as a field of free form in an event's body; empty is absent."""
    return msgspec.Raw(text) if text else NOTHING


def text_of(value: msgspec.Raw) -> JsonText | None:
    """The JSON text of such a field, or None where it is absent."""
    return bytes(value).decode() or None


def _convert(fields: dict[str, JsonText], kind: Any) -> Any:
    known = {}
    for field in msgspec.structs.fields(kind):
        if field.encode_name in fields:
            text = fields[field.encode_name]
            known[field.encode_name] = raw(text) if field.type is msgspec.Raw else json.loads(text)
    return msgspec.convert(known, kind)


def _scan_object(text: str) -> dict[str, JsonText]:
    scan = json.JSONDecoder(parse_constant=_refuse).raw_decode
    fields: dict[str, JsonText] = {}
    at = _skip(text, 0)
    if text[at : at + 1] != "{":
        raise InvalidJson("it is no JSON object")
    at = _skip(text, at + 1)
    while text[at] != "}":
        if text[at] != '"':
            raise InvalidJson(f"a name was expected at character {at}")
        name, at = scan(text, at)
        at = _skip(text, at)
        if text[at] != ":":
            raise InvalidJson(f"a colon was expected at character {at}")
        start = _skip(text, at + 1)
        _, at = scan(text, start)
        fields[name] = text[start:at]
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)
            if text[at] == "}":
                raise InvalidJson(f"a name was expected at character {at}")
        elif text[at] != "}":
            raise InvalidJson(f"a comma was expected at character {at}")
    if text[at + 1 :].strip(_SPACE):
        raise InvalidJson("something stands behind the JSON object")
    return fields


def _check_utf8(data: bytes | str) -> None:
    """Msgspec looks only at the text it decodes, not at fields of free form."""
    if isinstance(data, bytes) and not data.isascii():
        data.decode()


def _skip(text: str, at: int) -> int:
    while text[at : at + 1] in _SPACE and at < len(text):
        at += 1
    return at


def _text(data: bytes | str) -> str:
    return data if isinstance(data, str) else data.decode()


def _text_of(field: object) -> JsonText:
    return bytes(field).decode() if isinstance(field, msgspec.Raw) else dump(msgspec.to_builtins(field))


def _is_default(name: str, field: object, defaults: dict[str, Any]) -> bool:
    if isinstance(field, msgspec.Raw):
        return not bytes(field)
    return name in defaults and field == defaults[name]


def _float(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else text


def _int(text: str) -> int | str:
    return int(text) if len(text) < sys.int_info.default_max_str_digits else text


def _refuse(constant: str) -> object:
    raise InvalidJson(f"{constant} is no JSON")


def _why(error: BaseException) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
