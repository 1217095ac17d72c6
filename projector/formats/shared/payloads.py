"""What a block keeps for the one who made it: opaque payloads, signatures, and the bytes or address of media.

A payload goes back to its maker only. What stands in our own fields wins over the same field of a payload, which may
be older: an adapter keeps the block as it began.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from msgspec.structs import replace

from projector.formats.shared.makers import ANTHROPIC
from projector.json_text import InvalidJson, JsonText, decode, dump, split
from projector.message import Block

if TYPE_CHECKING:
    from collections.abc import Mapping

    from projector.message import BlockKind

_BARE: Final = ANTHROPIC
"""Its adapter says signatures and server tools in our own fields, so that they need no payload; all others keep one."""
ADDRESSES: Final = ("data", "url", "file_id")
_INSIDE: Final = ("source", "image_url", "input_audio", "file", "inlineData", "fileData")
_DATA_URL: Final = "data:"
_BASE64: Final = ";base64"


class Media(msgspec.Struct, frozen=True):
    """Where the bytes of media are: in base64 (`data`), at an address (`url`), or with their maker (`file_id`).

    `is_image` is known of some whose type is not. `name` is that of a file.
    """

    media_type: str | None = None
    data: str | None = None
    url: str | None = None
    file_id: str | None = None
    is_image: bool = False
    name: str | None = None


def opaque(provider: str, payload: JsonText, *, signer: str | None = None) -> JsonText:
    """A payload for `Block.opaque`. `signer` names who made the block's signature, where that is another one."""
    signed = f',"signer":{dump(signer)}' if signer is not None else ""
    return f'{{"provider":{dump(provider)}{signed},"payload":{payload}}}'


def maker_of(block: Block) -> str | None:
    """Whose payload a block keeps; None where it has none."""
    return _text(_fields(block.opaque).get("provider"))


def signer_of(block: Block) -> str:
    """Who can read the signature of a block, and its form where it has no payload."""
    fields = _fields(block.opaque)
    return _text(fields.get("signer")) or _text(fields.get("provider")) or _BARE


def payload_for(block: Block, provider: str) -> JsonText | None:
    """The payload of a block as it came, if this provider made it."""
    fields = _fields(block.opaque)
    return fields.get("payload") if _text(fields.get("provider")) == provider else None


def media_of(block: Block) -> Media:
    """Where the bytes of a block of kind `media` are, whoever made it; none of it is set where nobody says.

    The block's own fields `data`, `url`, `file_id` and `name` come first, then the payload in the forms of providers.
    `provider_ref` or the payload's type may say that it is an image.
    """
    try:
        payload = decode(_fields(block.opaque).get("payload", "null"))
    except InvalidJson:
        payload = None
    said = _read(payload) if isinstance(payload, dict) else {}
    if block.fields.keys() & set(ADDRESSES):
        said |= dict.fromkeys(ADDRESSES)
    said |= block.fields | ({"name": block.name} if block.name else {})
    return _media(said, said.get("media_type") or block.media_type, is_image="image" in (block.provider_ref or ""))


def plain_media(block: Block) -> Block:
    """Media with its bytes or address in its own fields and nothing for its maker; a file id means nothing to others."""
    media = media_of(block)
    said = {"data": media.data, "url": media.url}
    return replace(
        block,
        media_type=media.media_type,
        fields={name: value for name, value in said.items() if value is not None},
        opaque=None,
        name=media.name,
        provider_ref="image" if media.is_image else None,
    )


def part_block(part: Mapping[str, Any]) -> Block:
    """A part of a tool's result as a block: `kind`, `text`, `media_type`, `name`, `type`, `opaque`, addresses of media."""
    known = {name: part[name] for name in ("text", "media_type", "name") if isinstance(part.get(name), str)}
    fields = {name: part[name] for name in ADDRESSES if isinstance(part.get(name), str)}
    made = dump(part["opaque"]) if isinstance(part.get("opaque"), dict) else None
    ref = part["type"] if isinstance(part.get("type"), str) else None
    kind = cast("BlockKind", str(part.get("kind", "text")))
    return Block(kind, sealed=True, provider_ref=ref, fields=fields, opaque=made, **known)


def _read(payload: Mapping[str, Any]) -> dict[str, Any]:
    """A payload of Anthropic (`source`), OpenAI Chat, OpenAI Responses, Gemini, the AI SDK or AG-UI."""
    inner = next((payload[name] for name in _INSIDE if name in payload), payload)
    kind = str(payload.get("type"))
    said: dict[str, Any] = {"is_image": kind.endswith(("image", "image_url")), "name": payload.get("title")}
    if isinstance(inner, str):  # Responses: "image_url": "data:…"
        return said | {"url": inner}
    if not isinstance(inner, dict):
        return said
    inside, value = inner.get("type"), inner.get("value")
    said["media_type"] = _first(inner, "media_type", "mediaType", "mimeType", "mime_type")
    said["data"] = _first(inner, "data", "file_data", "base64") or (value if inside == "data" else None)
    said["url"] = _first(inner, "url", "file_url", "fileUri") or (value if inside == "url" else None)
    said["file_id"] = inner.get("file_id")
    said["name"] = _first(inner, "filename", "name") or said["name"]
    if inside == "text" and isinstance(said["data"], str):  # Anthropic: a document of plain text
        said["data"] = base64.b64encode(said["data"].encode("utf-8", "replace")).decode()
    if inner.get("format") and kind == "input_audio":
        said["media_type"] = f"audio/{inner['format']}"
    return said


def _first(fields: Mapping[str, Any], *names: str) -> Any:
    return next((fields[name] for name in names if fields.get(name)), None)


def _media(said: Mapping[str, Any], media_type: Any, *, is_image: bool) -> Media:
    known = {name: value for name, value in said.items() if name in (*ADDRESSES, "name") and isinstance(value, str) and value}
    for name in ("data", "url"):
        head, _, body = known.get(name, "").partition(",")
        if head.startswith(_DATA_URL) and head.endswith(_BASE64):
            media_type = head.removeprefix(_DATA_URL).removesuffix(_BASE64) or media_type
            known = {"data": body} | {key: value for key, value in known.items() if key == "name"}
            break
    kind = media_type if isinstance(media_type, str) and media_type else None
    return Media(kind, is_image=is_image or bool(said.get("is_image")) or (kind or "").startswith("image/"), **known)


def _fields(text: JsonText | None) -> dict[str, JsonText]:
    try:
        return split(text) if text else {}
    except InvalidJson:
        return {}


def _text(value: JsonText | None) -> str | None:
    found = decode(value) if value else None
    return found if isinstance(found, str) else None
