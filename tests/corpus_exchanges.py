"""What was recorded, taken out of its wrappings by yaml, gzip, json and struct alone: nothing here is the project's own."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections import Counter
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_YAML: Final[Any] = import_module("yaml")
_OF_FRAME: Final = (":exception-type", ":error-code", ":event-type")
_LENGTHS: Final = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}


class Sent(NamedTuple):
    """An exchange: where it went, what was asked and what came back, both as JSON values."""

    place: str
    address: str
    status: int
    request: Any
    answer: list[Any]
    is_stream: bool
    body: bytes = b""


def content_of(path: Path) -> bytes:
    """The bytes of a file, unpacked; of a torn one what there is."""
    held = path.read_bytes()
    return unpacked(held) if path.name.endswith(".gz") else held


def unpacked(data: bytes) -> bytes:
    try:
        return zlib.decompressobj(wbits=31).decompress(data)
    except zlib.error:
        return data


def is_cassette(path: Path) -> bool:
    return path.name.removesuffix(".gz").endswith((".yaml", ".yml"))


def exchanges_of(path: Path) -> list[Sent]:
    """The HTTP exchanges of a cassette, in whichever of its layouts."""
    document = _load(path)
    pairs = document.get("interactions")
    if pairs is None:
        pairs = [
            {"request": asked, "response": said}
            for asked, said in zip(document["requests"], document["responses"], strict=True)
        ]
    return [_sent(number, pair["request"], pair["response"]) for number, pair in enumerate(pairs, 1) if "request" in pair]


def _load(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = _YAML.load(content_of(path), _YAML.CSafeLoader)
    return found


def frames_of(path: Path) -> Counter[str]:
    """How many messages went over a websocket, by their direction."""
    document = _load(path)
    pairs = document.get("interactions") or []
    return Counter(str(pair.get("direction")) for pair in pairs if pair.get("kind") == "message")


def events_of(data: bytes) -> tuple[list[Any], bool]:
    """The JSON values of a body and whether it was streamed: one document, lines, server-sent events or AWS frames."""
    if data[:1] in (b"\0", b"\1"):
        return list(_of_frames(data)), True
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        pass
    else:
        return (whole, True) if isinstance(whole, list) else ([whole], False)
    if text.lstrip()[:1] in ("{", "["):
        return [value for line in text.split("\n") if (value := load(line)) is not None], True
    events = list(_of_sse(text))
    return events, bool(events)


def load(text: str) -> Any:
    """JSON, or None for what is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _sent(number: int, request: dict[str, Any], response: dict[str, Any]) -> Sent:
    status: Any = response.get("status", response.get("status_code"))
    body = unpacked(_bytes_of(response))
    asked = load(unpacked(_bytes_of(request)).decode("utf-8", "replace"))
    answer, is_stream = events_of(body) if body.strip() else ([], False)
    code = int(status["code"] if isinstance(status, dict) else status)
    return Sent(f"interaction {number}", str(request["uri"]), code, asked, answer, is_stream, body)


def _bytes_of(side: dict[str, Any]) -> bytes:
    body = side.get("parsed_body", side.get("body", side.get("content")))
    if isinstance(body, dict) and body.keys() <= {"string", "base64_string", "encoding"}:
        body = base64.b64decode(body["base64_string"]) if "base64_string" in body else body.get("string")
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode("utf-8", "surrogatepass")
    return b"" if body is None else json.dumps(body).encode()


def _of_sse(text: str) -> Iterator[Any]:
    data: list[str] = []
    for line in [*text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), ""]:
        if line.startswith("data:"):
            data.append(line.removeprefix("data:").removeprefix(" "))
        elif not line and data:
            if (value := load("\n".join(data))) is not None:
                yield value
            data = []


def _of_frames(data: bytes) -> Iterator[Any]:
    """Each frame as `{its type: its payload}`; a chunk of an invoked model is the JSON inside. A torn one ends it."""
    at = 0
    while len(data) - at >= 16:
        size, headers = struct.unpack_from(">II", data, at)
        frame = data[at : at + size]
        if len(frame) < size:
            return
        name = _name_of(frame[12 : 12 + headers])
        body: Any = load(frame[12 + headers : -4].decode("utf-8", "replace"))
        yield json.loads(base64.b64decode(body["bytes"])) if name == "chunk" and isinstance(body, dict) else {name: body}
        at += size


def _name_of(headers: bytes) -> str:
    found: dict[str, str] = {}
    at = 0
    while at < len(headers):
        end = at + 1 + headers[at]
        name, kind = headers[at + 1 : end].decode(), headers[end]
        if kind in _LENGTHS:
            at = end + 1 + _LENGTHS[kind]
            continue
        (size,) = struct.unpack_from(">H", headers, end + 1)
        found[name] = headers[end + 3 : end + 3 + size].decode("utf-8", "replace")
        at = end + 3 + size
    return next((found[name] for name in _OF_FRAME if name in found), "")
