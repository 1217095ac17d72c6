"""Pydantic AI's user content as our blocks and back, and what tools return: text, files, values.

Bytes stand in the URL-safe alphabet of base64 there and in the usual one here. What our own fields do not say of an item
stays with it. Source: `pydantic-ai-slim` 2.68.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from projector.formats.shared.blocks import kept_block, part_data, part_text
from projector.formats.shared.fields import Fields, items_of
from projector.formats.shared.history import text_block
from projector.formats.shared.payloads import Media, media_of, opaque, part_block, payload_for
from projector.json_text import JsonText, decode, dump, is_json, join_fields, plain, split
from projector.message import Block

if TYPE_CHECKING:
    from collections.abc import Callable

PROVIDER: Final = "pydantic-ai"
TEXT: Final = "text-content"
BINARY: Final = "binary"
FILE: Final = "uploaded-file"
_STRUCTURED: Final = "structured-content"
_URLS: Final = ("image-url", "audio-url", "video-url", "document-url")
MEDIA: Final = (*_URLS, BINARY, FILE)
_UNTYPED: Final = "application/octet-stream"
_USUAL: Final = str.maketrans("-_", "+/")
_URL_SAFE: Final = str.maketrans("+/", "-_")
_NOTHING: Final = object()


def read_item(text: JsonText, place: str) -> Block:
    """An item of a user's prompt; one of a kind that is not known is kept as it came. Raises `FormatError`."""
    if text.startswith('"'):
        return text_block(str(decode(text)))
    item = Fields(text, place)
    kind = item.text("kind")
    if kind in MEDIA:
        return read_media(item)
    if kind == TEXT:
        rest = item.rest("kind", "content")
        return Block("text", text=item.text("content"), sealed=True, opaque=opaque(PROVIDER, join_fields(rest)))
    if kind == _STRUCTURED:
        said = item.maybe_text("content") or item.raw("value") or "null"
        return Block("text", text=said, sealed=True, opaque=opaque(PROVIDER, item.source))
    return kept_block(PROVIDER, item.source, kind)


def read_media(item: Fields) -> Block:
    """A file, or where it lies. Raises `FormatError`."""
    kind = item.text("kind")
    if kind == BINARY:
        fields = {"data": item.text("data").translate(_USUAL)}
    elif kind == FILE:
        fields = {"file_id": item.text("file_id")}
    else:
        fields = {"url": item.text("url")}
    media_type = item.text("media_type") if kind == BINARY else item.maybe_text("media_type")
    said = {*fields, *(("media_type",) if media_type is not None else ())}
    rest = {name: text for name, text in split(item.source).items() if name not in said}  # a null is a part of its digest
    kept = opaque(PROVIDER, join_fields(rest))
    ref = "image" if kind == "image-url" else None
    return Block("media", sealed=True, media_type=media_type, provider_ref=ref, fields=fields, opaque=kept)


def write_item(block: Block) -> str | dict[str, Any] | None:
    """A block of a user's message as an item of a prompt; None where there is no form for it."""
    payload = payload_for(block, PROVIDER)
    rest: dict[str, Any] = plain(payload or "{}")
    if block.kind == "text":
        if payload is None:
            return block.text
        return rest if rest.get("kind") == _STRUCTURED else {"kind": TEXT, "content": block.text} | rest
    if block.kind == "media":
        return write_media(media_of(block), rest)
    return rest if payload is not None and "kind" in rest else None


def write_media(media: Media, rest: dict[str, Any]) -> dict[str, Any] | None:
    """A file or its address; None for a file that only another maker knows."""
    kind = rest.get("kind")
    if media.data is not None:
        return rest | {"kind": BINARY, "data": media.data.translate(_URL_SAFE), "media_type": media.media_type or _UNTYPED}
    if media.url is not None:
        sort = "image" if media.is_image else (media.media_type or "").partition("/")[0]
        kind = kind if kind in _URLS else f"{sort}-url" if f"{sort}-url" in _URLS else "document-url"
        typed = {"media_type": media.media_type} if media.media_type is not None or not rest else {}
        return rest | {"kind": kind, "url": media.url} | typed
    if media.file_id is not None and kind == FILE:
        return rest | {"file_id": media.file_id} | ({"media_type": media.media_type} if media.media_type else {})
    return None


def read_result(content: JsonText | None, place: str) -> tuple[JsonText, JsonText | None]:
    """What a tool returned as parts of a result, and the form it had, where the parts do not tell it.

    A list with files in it is its items, any other value is one part. Raises `FormatError`.
    """
    if content is None:
        return "[]", dump("none")
    if content.startswith("["):
        items = items_of(content, place)
        if any(_kind_of(item) in MEDIA for item in items):
            return f"[{','.join(_read_part(item, place) for item in items)}]", dump("list")
    return f"[{_read_part(content, place)}]", None


def write_result(parts: JsonText, form: str | None, lose: Callable[[str], None]) -> Any:
    """The parts of a result as what a tool returned; what has no form is told to `lose`."""
    found = [part for part in (plain(text) for text in items_of(parts, "parts")) if isinstance(part, dict)]
    made = [value for value in (_write_part(part, lose) for part in found) if value is not _NOTHING]
    if form == "list" or len(made) > 1:
        return made
    return made[0] if made else None if form == "none" else ""


def _read_part(text: JsonText, place: str) -> JsonText:
    if text.startswith('"'):
        return part_text(str(decode(text)))
    kind = _kind_of(text)
    if kind not in MEDIA:
        return part_data(text)
    block = read_media(Fields(text, place))
    said = {"kind": dump("media")} | ({"media_type": dump(block.media_type)} if block.media_type else {})
    said |= {name: dump(value) for name, value in block.fields.items()}
    return join_fields(said | {"opaque": block.opaque or "null"})


def _write_part(part: dict[str, Any], lose: Callable[[str], None]) -> Any:
    block = part_block(part)
    if block.kind == "text":
        return block.text
    if block.kind == "data":
        return plain(block.text) if is_json(block.text) else block.text
    payload = payload_for(block, PROVIDER)
    if block.kind == "media":
        written = write_media(media_of(block), plain(payload or "{}"))
    else:
        written = plain(payload) if payload is not None else None
    if written is None:
        lose(f"Pydantic AI has no form for this in a result ({block.kind})")
        return _NOTHING
    return written


def _kind_of(text: JsonText) -> str | None:
    """What an object says that it is; None for anything else."""
    if not text.startswith("{"):
        return None
    kind = decode(text).get("kind")
    return kind if isinstance(kind, str) else None
