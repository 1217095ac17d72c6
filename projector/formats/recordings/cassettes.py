"""Cassettes: HTTP exchanges and websocket frames as VCR libraries record them, in YAML or JSON.

YAML is read by PyYAML, which comes with the extra `formats`: `pip install "tailfold[formats]"`.
"""

from __future__ import annotations

import itertools
import json
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import msgspec

from projector.formats.format import FormatError
from projector.formats.recordings.bodies import Body, headers_of, read_body
from projector.formats.recordings.framing import BOM, MAX_EVENT_BYTES
from projector.formats.shared.fields import shown
from projector.json_text import InvalidJson, JsonText, dump, is_json, split

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_INSTALL: Final = 'cassettes need PyYAML: pip install "tailfold[formats]"'
_EXPECTED: Final = 'a cassette was expected: a YAML document with "interactions", or with "requests" and "responses"'
_LISTS: Final = ("interactions", "http_interactions", "requests", "responses")
_HEAD: Final = 64 * 1024
"""How far the first name of a list is looked for."""
_BEGINNINGS: Final = tuple(f"{name}:".encode() for name in _LISTS)


class Exchange(msgspec.Struct, frozen=True):
    """A request and its response. `request` is JSON text, None where there was no JSON; `body` is unpacked.

    `is_torn` where the body ends too early, `why` where it can't be read; `error_type` is what a header calls an error.
    """

    method: str
    uri: str
    status: int
    request: JsonText | None
    body: bytes
    content_type: str = ""
    place: str = ""
    is_torn: bool = False
    why: str = ""
    error_type: str = ""


class Frame(msgspec.Struct, frozen=True):
    """A websocket message; `is_sent` if the client sent it."""

    is_sent: bool
    data: JsonText
    place: str = ""


class Cassette(msgspec.Struct, frozen=True):
    """What was recorded, in its order."""

    exchanges: tuple[Exchange, ...] = ()
    frames: tuple[Frame, ...] = ()


def is_cassette(head: bytes, name: str) -> bool:
    """Whether a file is one, by its name and by how it begins; of what may be JSON only the whole tells."""
    body = head.removeprefix(BOM).lstrip()
    return name.removesuffix(".gz").endswith((".yaml", ".yml")) or body.startswith(_BEGINNINGS)


def is_json_cassette(document: JsonText) -> bool:
    """Whether a JSON document is one."""
    if not any(f'"{name}"' in document[:_HEAD] for name in _LISTS):
        return False
    try:
        fields = split(document)
    except InvalidJson:
        return False
    lists = {name for name in _LISTS if fields.get(name, "").startswith("[")}
    return bool(lists & {"interactions", "http_interactions"}) or {"requests", "responses"} <= lists


def read_cassette(text: bytes | str, skip: Callable[[FormatError], object] | None = None) -> Cassette:
    """The exchanges and frames of a cassette, as lists of both beside each other, too.

    Raises `FormatError` with the place for what is no cassette, and without PyYAML; what is wrong with one exchange goes
    to `skip`, if that is given, and the others are read.
    """
    exchanges: list[Exchange] = []
    frames: list[Frame] = []
    for number, item in enumerate(_interactions(text), 1):
        try:
            found = _read(item, f"interaction {number}")
        except FormatError as error:
            if skip is None:
                raise
            skip(error)
            continue
        if isinstance(found, Exchange):
            exchanges.append(found)
        elif found is not None:
            frames.append(found)
    return Cassette(tuple(exchanges), tuple(frames))


def _read(item: Any, place: str) -> Exchange | Frame | None:
    if not isinstance(item, dict):
        raise FormatError(f"{place}: an exchange or a frame was expected, not {shown(repr(item))}")
    if "request" in item:
        return _exchange(item, place)
    if item.get("kind") == "message" and "data" in item:
        return Frame(item.get("direction") == "sent", _json(item["data"], place), place)
    if item.get("kind") != "close":
        raise FormatError(f'{place}: "request", or "kind" and "data", were expected, not {sorted(map(str, item))}')
    return None


def _interactions(text: bytes | str) -> list[Any]:
    document = _document(text)
    if not isinstance(document, dict):
        raise FormatError(f"{_EXPECTED}, not {shown(repr(document))}")
    found = next((document[name] for name in ("interactions", "http_interactions") if name in document), None)
    asked, answered = document.get("requests"), document.get("responses")
    if found is None and isinstance(asked, list) and isinstance(answered, list):
        return [{"request": one, "response": other} for one, other in itertools.zip_longest(asked, answered)]
    if not isinstance(found, list):
        raise FormatError(f"{_EXPECTED}, not {shown(repr(document))}")
    return found


def _document(text: bytes | str) -> Any:
    if text.lstrip()[:1] in (b"{", "{"):
        try:
            return json.loads(text)  # what YAML makes of escapes in JSON is something else
        except ValueError:
            pass
    try:
        yaml: Any = import_module("yaml")
    except ImportError as error:
        raise FormatError(_INSTALL) from error
    try:
        found = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        size = _size(found, {})
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}: " if mark is not None else ""
        raise FormatError(f"{place}this is no YAML ({getattr(error, 'problem', None) or error})") from error
    if size > max(len(text), MAX_EVENT_BYTES):
        raise FormatError(f"its aliases (*) unfold to more than {MAX_EVENT_BYTES:,} characters: write them out")
    return found


def _size(value: Any, known: dict[int, int | None]) -> int:
    """How many characters a value has at least when it is written out; what is named by aliases is looked at once."""
    if isinstance(value, str | bytes):
        return len(value)
    if not isinstance(value, dict | list | tuple | set):
        return 1
    if id(value) not in known:
        known[id(value)] = None
        items = [*value.keys(), *value.values()] if isinstance(value, dict) else value
        known[id(value)] = 2 + sum(_size(item, known) for item in items)
    size = known[id(value)]
    if size is None:
        raise FormatError("an alias (*) in it stands inside of what it names: no JSON does that")
    return size


def _exchange(item: Mapping[str, Any], place: str) -> Exchange:
    request: Any = item["request"]
    response: Any = item.get("response")
    try:
        headers = headers_of(response.get("headers"))
        body = _body(response, headers, place)
        return Exchange(
            method=str(request.get("method", "")),
            uri=str(request["uri"] if "uri" in request else request["url"]),
            status=_status(response),
            request=_request(request, place),
            body=body.data,
            content_type=headers.get("content-type", ""),
            place=place,
            is_torn=body.is_torn,
            why=body.why,
            error_type=headers.get("x-amzn-errortype", "").partition(":")[0],
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FormatError(f'{place}: "request" with a "uri" and "response" with a "status" were expected') from error


def _status(response: Mapping[str, Any]) -> int:
    if "status_code" in response:
        return int(response["status_code"])
    status = response["status"]
    return int(status["code"] if isinstance(status, dict) else str(status).partition(" ")[0])


def _request(request: Mapping[str, Any], place: str) -> JsonText | None:
    if "parsed_body" in request:
        return _json(request["parsed_body"], place)
    body = read_body(request.get("body"), headers_of(request.get("headers")))
    text = body.data.decode(errors="replace")
    return text if is_json(text) else None


def _body(response: Mapping[str, Any], headers: Mapping[str, str], place: str) -> Body:
    if "parsed_body" in response:
        return Body(_json(response["parsed_body"], place).encode())
    given = response.get("body", response.get("content"))
    if isinstance(given, dict) and "string" in given and not isinstance(given["string"], str | bytes):
        given = given["string"]
    return read_body(given, headers)


def _json(value: Any, place: str) -> JsonText:
    try:
        return value if isinstance(value, str) and is_json(value) else dump(value)
    except InvalidJson as error:
        raise FormatError(f"{place}: its body can't be written as JSON ({error})") from error
