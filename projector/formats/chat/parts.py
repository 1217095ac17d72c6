"""Content of Chat Completions messages as blocks and back, with the parts that its dialects have added."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from projector.formats.shared.fields import items_of, says_nothing, text_of_field
from projector.formats.shared.payloads import media_of, opaque, payload_for
from projector.json_text import JsonText, decode, dump, join_fields, learn, plain, split
from projector.message import Block

if TYPE_CHECKING:
    from collections.abc import Mapping


PROVIDER: Final = "chat"
"""Whose payloads these are: of whatever speaks Chat Completions, for its messages do not say who made them."""
EXTRA: Final = "chat"
"""Under this name a message's metadata holds the fields of it that have no other place."""
DETAILS: Final = "reasoning_details"
THINKING: Final = "thinking"
PLAIN_REASONING: Final = ("reasoning_content", "reasoning")
"""Fields of a message in which dialects send reasoning as text; who sends both says the same in both."""
_MEDIA: Final = ("image_url", "input_audio", "file", "video_url", "document_url", "image")
_OPENAI_MEDIA: Final = ("image_url", "input_audio", "file")
_DETAIL_TEXT: Final = {"reasoning.text": "text", "reasoning.summary": "summary"}
_AUDIO_FORMATS: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


def keep(fields: Mapping[str, JsonText]) -> JsonText | None:
    """What our own fields do not say, as a payload; None where that is nothing."""
    said = {name: text for name, text in fields.items() if not says_nothing(text)}
    return opaque(PROVIDER, join_fields(said)) if said else None


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None
    input: str | None = None


class _Call(msgspec.Struct):
    id: str | None = None
    function: _Function | None = None
    custom: _Function | None = None


class _Audio(msgspec.Struct):
    data: str | None = None
    transcript: str | None = None


class _Delta(msgspec.Struct):
    content: str | list[dict[str, Any]] | None = None
    refusal: str | None = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: list[dict[str, Any]] | None = None
    tool_calls: list[_Call] | None = None
    function_call: _Function | None = None
    audio: _Audio | None = None
    annotations: list[dict[str, Any]] | None = None
    images: list[dict[str, Any]] | None = None


def check_delta(fields: Mapping[str, JsonText]) -> None:
    """Raises `InvalidJson` or `FormatError` for a delta or message that is not of the shape that it should be."""
    decode(join_fields(fields), _Delta)
    for name in ("content", "images"):
        text = fields.get(name, "null")
        if text.lstrip().startswith("["):
            for part in items_of(text, name):
                part_block(part)


def part_block(text: JsonText, place: str = "a part") -> Block:
    """One part of a message's content, sealed. Raises `InvalidJson` or `FormatError` for what is no part."""
    fields = split(text)
    kind = text_of_field(fields, "type") or "text"
    if kind == "text":
        rest = {name: value for name, value in fields.items() if name not in ("type", "text")}
        return Block("text", text=_said(fields, "text"), sealed=True, opaque=keep(rest))
    if kind == "refusal":
        return Block("refusal", text=_said(fields, "refusal"), sealed=True)
    if kind == THINKING:
        rest = {name: value for name, value in fields.items() if name not in ("type", THINKING)}
        said = thinking_text(fields.get(THINKING, "null"), place)
        return Block("reasoning", text=said, sealed=True, provider_ref=THINKING, opaque=keep(rest))
    if kind in _MEDIA:
        return _media_block(kind, fields, text)
    return Block("provider", sealed=True, provider_ref=kind, opaque=opaque(PROVIDER, text))


def thinking_text(text: JsonText, place: str) -> str:
    """What Mistral's thinking says: text, or a list of parts."""
    value = decode(text)
    if isinstance(value, str) or value is None:
        return value or ""
    return "".join(_said(split(part), "text") for part in items_of(text, place))


def detail_block(fields: Mapping[str, JsonText]) -> Block:
    """One of OpenRouter's reasoning details: text or a summary that can be read, or data that can't."""
    kind = _said(fields, "type")
    name = _DETAIL_TEXT.get(kind)
    rest = {key: value for key, value in fields.items() if key not in (name, "signature")}
    return Block(
        "redacted_reasoning" if name is None else "reasoning",
        text=_said(fields, name) if name else "",
        sealed=True,
        provider_ref=DETAILS,
        signature=_said(fields, "signature") or None,
        opaque=keep(rest),
    )


def grow_detail(known: dict[str, JsonText], more: Mapping[str, JsonText]) -> None:
    """A detail that comes in pieces: text and data are joined, what else there is replaces what was."""
    for name, value in more.items():
        if name in ("text", "summary", "data") and name in known and not says_nothing(value):
            known[name] = dump((decode(known[name]) or "") + decode(value))
        elif name not in known or not says_nothing(value):
            known[name] = value


def write_detail(block: Block) -> dict[str, Any]:
    """A detail as OpenRouter wants it back."""
    detail: dict[str, Any] = plain(payload_for(block, PROVIDER) or "{}")
    if block.kind == "reasoning":
        kind = detail.setdefault("type", "reasoning.text")
        detail[_DETAIL_TEXT.get(kind, "text")] = block.text
    if block.signature:
        detail["signature"] = block.signature
    return detail


def write_text(block: Block) -> dict[str, Any]:
    """A block of text as a part, with what else came with it."""
    rest: dict[str, Any] = plain(payload_for(block, PROVIDER) or "{}")
    return {"type": "text", "text": block.text} | rest


def write_media(block: Block, *, is_plain: bool) -> dict[str, Any] | None:
    """A block of media as a part; None where there is no form for it. `is_plain`: only parts that OpenAI itself takes."""
    own = payload_for(block, PROVIDER)
    media = media_of(block)
    if own is not None and (media.data or media.url or media.file_id) and (not is_plain or block.provider_ref in _OPENAI_MEDIA):
        given: dict[str, Any] = plain(own)
        return given
    kind = media.media_type or ""
    url = media.url or (f"data:{kind};base64,{media.data}" if media.data and kind else None)
    if kind.startswith("image/") and url:
        return {"type": "image_url", "image_url": {"url": url}}
    if kind in _AUDIO_FORMATS and media.data:
        return {"type": "input_audio", "input_audio": {"data": media.data, "format": _AUDIO_FORMATS[kind]}}
    if media.data and url:
        return {"type": "file", "file": {"filename": block.name or "file", "file_data": url}}
    return {"type": "image_url", "image_url": {"url": url}} if url and not kind else None


def _media_block(kind: str, fields: Mapping[str, JsonText], text: JsonText) -> Block:
    block = Block("media", sealed=True, provider_ref=kind, opaque=opaque(PROVIDER, text))
    media_type = media_of(block).media_type
    if media_type is None and kind == "input_audio":
        audio_format = _said(split(fields[kind]), "format")
        media_type = f"audio/{audio_format}" if audio_format else None
    return replace(block, media_type=media_type)


def _said(fields: Mapping[str, JsonText], name: str) -> str:
    return text_of_field(fields, name) or ""


learn(_Call, _Delta, _Function)
