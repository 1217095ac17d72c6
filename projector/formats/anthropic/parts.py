"""Blocks of Anthropic's Messages API, both ways."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from projector.formats.format import FormatError
from projector.formats.shared.fields import Fields
from projector.formats.shared.makers import ANTHROPIC
from projector.formats.shared.payloads import media_of, opaque, part_block, payload_for
from projector.formats.shared.values import value_of
from projector.json_text import JsonText, decode, dump, is_json, join_fields, split
from projector.message import Block

if TYPE_CHECKING:
    from collections.abc import Mapping

    from projector.message import BlockKind

PROVIDER: Final = ANTHROPIC
SHELL: Final = "anthropic"
"""Metadata of a message: fields of Anthropic's message or tool_result that have no other place; `content: []` where it was a
list although text would say the same; `role: system` of an instruction that stood among the messages."""
_KINDS: Final[dict[str, BlockKind]] = {
    "text": "text",
    "thinking": "reasoning",
    "redacted_thinking": "redacted_reasoning",
    "tool_use": "tool_call",
    "server_tool_use": "server_tool_call",
    "mcp_tool_use": "server_tool_call",
    "compaction": "compaction",
    "image": "media",
    "document": "media",
}
_TEXT_OF: Final = {"text": "text", "thinking": "thinking", "compaction": "content"}
_SAID_BY_US: Final = {  # fields that our own fields express in full; the rest is kept
    "text": {"type", "text"},
    "thinking": {"type", "thinking", "signature"},
    "tool_use": {"type", "id", "name", "input"},
    "server_tool_use": {"type", "id", "name", "input"},
    "image": {"type", "source"},
    "document": {"type", "source"},
}
_SERVER_CALLS: Final = ("server_tool_use", "mcp_tool_use")
_KEPT_BY_OTHERS: Final = ("text", "image", "document")
_SOURCES: Final = {"base64": ("data", {"type", "media_type", "data"}), "url": ("url", {"type", "url"})}
_IMAGES: Final = ("image/jpeg", "image/png", "image/gif", "image/webp")
_PDF: Final = "application/pdf"


def read_block(fields: Fields) -> Block:
    """A content block. Raises `FormatError` with the place for what is none."""
    kind = fields.text("type")
    ours = _KINDS.get(kind, "server_tool_result" if "tool_use_id" in fields else "provider")
    if ours == "media":
        return _read_media(kind, fields)
    is_call = ours in ("tool_call", "server_tool_call")
    if kind == "tool_use":
        fields.need_texts("id", "name")
    call = fields.maybe_text("id" if is_call else "tool_use_id")
    given = fields.raw("input") if is_call else None
    cited = fields.items("citations") if kind == "text" and (fields.raw("citations") or "").startswith("[") else []
    said = _SAID_BY_US.get(kind, set()) | ({"citations"} if cited else set())
    rest = {name: text for name, text in split(fields.source).items() if name not in said}
    kept = None
    if rest:
        kept = opaque(PROVIDER, fields.source if kind not in _SAID_BY_US else join_fields({"type": dump(kind)} | rest))
    return Block(
        kind=ours,
        text=(fields.maybe_text(_TEXT_OF[kind]) or "") if kind in _TEXT_OF else "",
        sealed=True,
        name=fields.maybe_text("name") if is_call else None,
        tool_call_id=call,
        provider_ref=None if ours in ("text", "reasoning") or call else kind,
        signature=fields.maybe_text("signature") if kind == "thinking" else None,
        opaque=kept,
        input_text=given,
        parse=("ok" if given and is_json(given) else "bad") if is_call else None,
        citations=tuple(_citation(Fields(text, place)) for text, place in cited),
    )


def known_block(block: Block) -> Block:
    """What was kept as it came although we know it, as the block it is."""
    payload = payload_for(block, PROVIDER) if block.kind == "provider" and block.sealed else None
    if payload is None or payload_of(block).get("type") not in _KEPT_BY_OTHERS:
        return block
    try:
        return replace(read_block(Fields(payload, "a payload")), number=block.number)
    except FormatError:
        return block


def write_block(block: Block) -> dict[str, Any] | None:
    """A sealed block as Anthropic takes it; None where it can't be said."""
    kept = payload_of(block)
    said: dict[str, Any] | None = None
    match block.kind:
        case "text":
            cited = [cite for citation in block.citations if (cite := _cite(citation)) is not None]
            said = {**kept, "type": "text", "text": block.text} | ({"citations": cited} if cited else {})
        case "reasoning" if block.signature:
            said = {**kept, "type": "thinking", "thinking": block.text, "signature": block.signature}
        case "tool_call" | "server_tool_call":
            given = value_of(block.input_text or block.text or "{}")
            kind = kept.get("type") if kept.get("type") in _SERVER_CALLS else "server_tool_use"
            kind = "tool_use" if block.kind == "tool_call" else kind
            said = {**kept, "type": kind, "id": block.tool_call_id, "name": block.name, "input": given}
        case "compaction" if block.text or kept.get("type") == "compaction":
            said = {**kept, "type": "compaction"} | ({"content": block.text} if block.text else {})
        case "media":
            said = _write_media(block, kept)
        case "redacted_reasoning" | "server_tool_result" | "provider" if _is_whole(block, kept):
            said = kept
    return said


def _is_whole(block: Block, kept: dict[str, Any]) -> bool:
    """Whether a payload is what its block is said to be."""
    kind = kept.get("type")
    if block.kind == "redacted_reasoning":
        return kind == "redacted_thinking" and isinstance(kept.get("data"), str) and bool(kept["data"])
    is_result = isinstance(kind, str) and kind.endswith("_result") and "tool_use_id" in kept
    if block.kind == "server_tool_result":
        return is_result and kind != "tool_result" and kept["tool_use_id"] == block.tool_call_id
    return isinstance(kind, str) and not is_result and kind not in _KINDS


def read_part(fields: Fields) -> JsonText:
    """A block of a tool's result as a part of it."""
    block = read_block(fields)
    part: dict[str, str] = {"kind": block.kind}
    part |= {name: value for name in ("text", "media_type") if (value := getattr(block, name))}
    part |= block.fields | ({"type": block.provider_ref} if block.kind == "media" and block.provider_ref else {})
    kept = block.opaque
    if block.citations or (kept is None and block.kind not in ("text", "media")):
        kept = opaque(PROVIDER, fields.source)
    return join_fields({name: dump(value) for name, value in part.items()} | ({"opaque": kept} if kept is not None else {}))


def write_part(part: Mapping[str, Any]) -> dict[str, Any] | None:
    """A part of a tool's result; None where it can't be said."""
    block = part_block(part)
    if block.kind in ("text", "media") or payload_of(block):
        return write_block(block)
    if "opaque" in part and not block.text:  # only another maker can read it
        return None
    return {"type": "text", "text": block.text or dump(part)}


def lost_citations(block: Block) -> int:
    """How many citations Anthropic has no form for."""
    return sum(_cite(citation) is None for citation in block.citations) if block.kind == "text" else 0


def payload_of(block: Block) -> dict[str, Any]:
    """What the block keeps for Anthropic."""
    payload = value_of(payload_for(block, PROVIDER) or "null")
    return payload if isinstance(payload, dict) else {}


def _citation(source: Fields) -> JsonText:
    return f'{{"kind":{dump(source.text("type"))},"source":{source.source}}}'


def _cite(citation: JsonText) -> Any:
    """A citation of Anthropic's own kind; another provider's means places in other documents."""
    said = value_of(citation)
    source = said.get("source") if isinstance(said, dict) else None
    kind = source.get("type") if isinstance(source, dict) else None
    ours = isinstance(kind, str) and kind == said.get("kind") and kind.endswith(("_location", "_result_location"))
    return source if ours else None


def _read_media(kind: str, fields: Fields) -> Block:
    """Bytes and addresses stand in fields of the block, so that they can be found whoever sent them."""
    source = fields.object("source")
    rest = {name: text for name, text in split(fields.source).items() if name not in _SAID_BY_US[kind]}
    name, said = _SOURCES.get(source.maybe_text("type") or "", ("", set[str]())) if source is not None else ("", set[str]())
    if source is None or name not in source or not isinstance(decode(source.raw(name) or ""), str):
        media_type = source.maybe_text("media_type") if source is not None else None
        return Block("media", sealed=True, media_type=media_type, provider_ref=kind, opaque=opaque(PROVIDER, fields.source))
    odd = {field: text for field, text in split(source.source).items() if field not in said}
    if odd:
        rest |= {"source": join_fields(odd)}
    return Block(
        "media",
        sealed=True,
        media_type=source.maybe_text("media_type"),
        provider_ref=kind,
        fields={name: source.text(name)},
        opaque=opaque(PROVIDER, join_fields({"type": dump(kind)} | rest)) if rest else None,
    )


def _document_text(data: str) -> dict[str, Any] | None:
    try:
        return {"type": "text", "media_type": "text/plain", "data": base64.b64decode(data, validate=True).decode()}
    except ValueError:  # no base64, or no UTF-8
        return None


def _write_media(block: Block, kept: dict[str, Any]) -> dict[str, Any] | None:
    media = media_of(block)
    kind = kept.get("type") or (block.provider_ref if block.provider_ref in ("image", "document") else None)
    kind = kind or ("image" if media.is_image else "document")
    source = kept.get("source")
    if isinstance(source, dict) and "type" in source:  # a file, or text: whole as it came
        return kept
    found: dict[str, Any] | None = None
    if media.data is not None and media.media_type in (_IMAGES if kind == "image" else (_PDF,)):
        found = {"type": "base64", "media_type": media.media_type, "data": media.data}
    elif media.data is not None and kind == "document" and (media.media_type or "").startswith("text/"):
        found = _document_text(media.data)
    elif media.url is not None:
        found = {"type": "url", "url": media.url}
    if found is None:
        return None
    return {"type": kind, **kept, "source": found | (source if isinstance(source, dict) else {})}


def is_plain(block: Block) -> bool:
    """Whether a text says all that there is of a block."""
    return block.kind == "text" and not block.opaque and not block.citations
