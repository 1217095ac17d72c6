"""Media out of events and back into messages: their bytes lie in a media store, and what is said names them.

Base64 that stands in a media block, in a part of a tool's result, or that is longer than 64 kB anywhere but in what a
provider has signed, is replaced by `tailfold:media/` and the SHA-256 of the bytes; everything around it stays as it is,
so that the same text is made again. Base64 that would not come back as it was written stays where it is.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from projector import events as ev
from projector.json_text import NOTHING, decode, dump, raw, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import msgspec

    from projector.message import Block, Message

REFERENCE: Final = "tailfold:media/"
_GONE: Final = {"kind": "text", "text": "[media that are no longer kept]"}
UNKNOWN_TYPE: Final = "application/octet-stream"
_INLINE_BYTES: Final = 64 * 1024
_SMALL: Final = 64
"""Shorter base64 in media is not worth a row."""
_SIGNED: Final = ("reasoning", "redacted_reasoning", "compaction")
_OPEN: Final = ("media", "tool_result")
_NAMED: Final = re.compile(re.escape(REFERENCE) + r"([0-9a-f]{64})")
_BASE64: Final = r"((?:data:([\w.+-]+/[\w.+-]+)?(?:;[\w=.+-]+)*;base64,)?)([A-Za-z0-9+/]{%d,}={0,2})"
_TOLD: Final = re.compile(r'"(?:media_?type|mime_?type)"\s*:\s*"([\w.+-]+/[\w.+-]+)"', re.IGNORECASE)


class Attachment(NamedTuple):
    """The bytes of media that an event carried."""

    media_id: str
    media_type: str
    data: bytes


class Detacher:
    """Takes media out of the events of a run, one after another. It remembers the kinds of blocks that are not sealed."""

    def __init__(self) -> None:
        self._blocks: dict[tuple[str, int], ev.BlockStarted] = {}

    def detach(self, body: ev.Body) -> tuple[ev.Body, list[Attachment]]:
        """The event without the bytes, and the media that belong into the store before it is appended."""
        found: list[Attachment] = []
        if isinstance(body, ev.BlockStarted):
            self._blocks[body.message_id, body.block] = body
        elif isinstance(body, ev.BlockDelta) and body.field is not None and len(body.text) >= _SMALL:
            begun = self._blocks.get((body.message_id, body.block))
            return replace(body, text=_cut_text(body.text, begun, found)), found
        elif isinstance(body, ev.BlockSealed):
            begun = self._blocks.pop((body.message_id, body.block), None)
            opaque = _cut_json(body.opaque, begun, found)
            return body if opaque is body.opaque else replace(body, opaque=opaque), found
        elif isinstance(body, ev.ToolResult):
            parts = _cut_json(body.parts, None, found, _SMALL)
            return body if parts is body.parts else replace(body, parts=parts), found
        elif isinstance(body, ev.MessageFinished):
            for key in [key for key in self._blocks if key[0] == body.message_id]:
                del self._blocks[key]
        return body, found


def names_of(messages: Iterable[Message]) -> list[str]:
    """The ids of the media that messages name, each once, in order."""
    texts = (text for message in messages for block in message.blocks for text in _texts(block))
    return list(dict.fromkeys(name for text in texts for name in _NAMED.findall(text)))


def attach(message: Message, find: Callable[[str], bytes | None]) -> Message:
    """The message with the bytes in it again. Media that `find` knows nothing of are left out, in a result as a note."""
    if not any(REFERENCE in text for block in message.blocks for text in _texts(block)):
        return message
    blocks = [_fill(block, find) for block in message.blocks]
    return replace(message, blocks=tuple(block for block in blocks if block is not None))


def _fill(block: Block, find: Callable[[str], bytes | None]) -> Block | None:
    def put(match: re.Match[str]) -> str:
        data = find(match[1])
        return match[0] if data is None else base64.b64encode(data).decode()

    fields = {name: _NAMED.sub(put, text) for name, text in block.fields.items()}
    kept = None if block.opaque is None else _NAMED.sub(put, block.opaque)
    parts = None if block.parts is None else _NAMED.sub(put, block.parts)
    if parts is not None and _NAMED.search(parts):
        given = decode(parts)
        parts = dump([_GONE if _NAMED.search(dump(part)) else part for part in given] if isinstance(given, list) else [_GONE])
    if any(_NAMED.search(text) for text in (*fields.values(), kept or "")):
        return None
    return replace(block, fields=fields, opaque=kept, parts=parts)


def _texts(block: Block) -> Iterator[str]:
    yield from block.fields.values()
    yield from (text for text in (block.opaque, block.parts) if text is not None)


def _least(begun: ev.BlockStarted | None) -> int:
    return _SMALL if begun is not None and begun.kind in _OPEN else _INLINE_BYTES


def _cut_text(text: str, begun: ev.BlockStarted | None, found: list[Attachment]) -> str:
    """The value of a field, which is all base64 or a data URL, or stays."""
    if begun is None or begun.kind != "media":
        return text
    match = re.fullmatch(_BASE64 % _SMALL, text)
    return text if match is None else _take(match, begun.media_type, found) or text


def _cut_json(
    given: msgspec.Raw, begun: ev.BlockStarted | None, found: list[Attachment], least: int | None = None
) -> msgspec.Raw:
    """JSON text; a string of it that is all base64 is found by its quotes, for none can stand inside of base64.

    In JSON that is text inside of JSON the quotes have backslashes.
    """
    text = None if given is NOTHING else text_of(given)
    least = _least(begun) if least is None else least
    if text is None or len(text) < least or (begun is not None and begun.kind in _SIGNED):
        return given

    def cut(match: re.Match[str]) -> str:
        is_text = bool(match[4]) or text[max(0, match.start() - 12) : match.start()].rstrip().endswith('"text":')
        if is_text and len(match[3]) < _INLINE_BYTES:  # a digest, a word: what somebody reads
            return match[0]
        told = None if begun is None else begun.media_type
        near: Any = (
            None
            if told
            else _TOLD.search(text, max(0, match.start() - 200), match.start())
            or _TOLD.search(text, match.end(), match.end() + 200)
        )
        said = _take(match, told or (near[1] if near else None), found)
        return match[0] if said is None else f'"{said}{match[4]}"'

    cleared = re.sub(rf'"{_BASE64 % least}(\\*)"', cut, text)
    return given if cleared == text else raw(cleared)


def _take(match: re.Match[str], media_type: str | None, found: list[Attachment]) -> str | None:
    """The name that stands for base64; None where the same text would not be made again."""
    head, said_type, text = match[1], match[2], match[3]
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    if base64.b64encode(data).decode() != text:
        return None
    media_id = hashlib.sha256(data).hexdigest()
    found.append(Attachment(media_id, said_type or media_type or UNKNOWN_TYPE, data))
    return f"{head}{REFERENCE}{media_id}"
