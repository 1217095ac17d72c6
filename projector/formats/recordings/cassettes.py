"""Cassettes: HTTP exchanges and websocket frames as VCR libraries record them, in YAML.

YAML is read by PyYAML, which comes with the extra `formats`: `pip install "tailfold[formats]"`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import msgspec

from projector.formats.format import FormatError
from projector.formats.shared.fields import shown
from projector.json_text import InvalidJson, JsonText, dump, is_json

if TYPE_CHECKING:
    from collections.abc import Mapping

_INSTALL: Final = 'cassettes need PyYAML: pip install "tailfold[formats]"'


class Exchange(msgspec.Struct, frozen=True):
    """A request and its response. `request` is JSON text, None where there was no JSON; `body` as it came."""

    method: str
    uri: str
    status: int
    request: JsonText | None
    body: bytes
    content_type: str = ""
    place: str = ""


class Frame(msgspec.Struct, frozen=True):
    """A websocket message; `is_sent` if the client sent it."""

    is_sent: bool
    data: JsonText
    place: str = ""


class Cassette(msgspec.Struct, frozen=True):
    """What was recorded, in its order."""

    exchanges: tuple[Exchange, ...] = ()
    frames: tuple[Frame, ...] = ()


def read_cassette(text: bytes | str) -> Cassette:
    """The exchanges and frames of a cassette.

    Raises `FormatError` with the place for what is no cassette, and without PyYAML.
    """
    exchanges: list[Exchange] = []
    frames: list[Frame] = []
    for number, item in enumerate(_interactions(text), 1):
        place = f"interaction {number}"
        if not isinstance(item, dict):
            raise FormatError(f"{place}: an exchange or a frame was expected, not {shown(repr(item))}")
        if "request" in item:
            exchanges.append(_exchange(item, place))
        elif item.get("kind") == "message" and "data" in item:
            frames.append(Frame(item.get("direction") == "sent", _json(item["data"], place), place))
        elif item.get("kind") != "close":
            raise FormatError(f'{place}: "request", or "kind" and "data", were expected, not {sorted(map(str, item))}')
    return Cassette(tuple(exchanges), tuple(frames))


def _interactions(text: bytes | str) -> list[Any]:
    try:
        yaml: Any = import_module("yaml")
    except ImportError as error:
        raise FormatError(_INSTALL) from error
    try:
        document = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}: " if mark is not None else ""
        raise FormatError(f"{place}this is no YAML ({getattr(error, 'problem', None) or error})") from error
    found = document.get("interactions") if isinstance(document, dict) else None
    if not isinstance(found, list):
        raise FormatError(f'a cassette was expected: a YAML document with "interactions", not {shown(repr(document))}')
    return found


def _exchange(item: Mapping[str, Any], place: str) -> Exchange:
    request: Any = item["request"]
    response: Any = item.get("response")
    try:
        headers = {str(name).lower(): value for name, value in (response.get("headers") or {}).items()}
        kind = headers.get("content-type", "")
        return Exchange(
            method=str(request.get("method", "")),
            uri=str(request["uri"]),
            status=int(response["status"]["code"]),
            request=_request(request, place),
            body=_body(response, place),
            content_type=str(kind[0] if isinstance(kind, list) and kind else kind),
            place=place,
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        why = '"request" with a "uri" and "response" with a "status" were expected'
        raise FormatError(f"{place}: {why} ({type(error).__name__}: {error})") from error


def _request(request: Mapping[str, Any], place: str) -> JsonText | None:
    if "parsed_body" in request:
        return _json(request["parsed_body"], place)
    body = request.get("body")
    text = body.decode(errors="replace") if isinstance(body, bytes) else body
    return text if isinstance(text, str) and is_json(text) else None


def _body(response: Mapping[str, Any], place: str) -> bytes:
    if "parsed_body" in response:
        return _json(response["parsed_body"], place).encode()
    body = response.get("body")
    if isinstance(body, dict):
        body = body.get("string", body.get("base64_string"))
    return body if isinstance(body, bytes) else (body or "").encode("utf-8", "surrogatepass")


def _json(value: Any, place: str) -> JsonText:
    try:
        return value if isinstance(value, str) and is_json(value) else dump(value)
    except InvalidJson as error:
        raise FormatError(f"{place}: its body can't be written as JSON ({error})") from error
