"""Blocks as the content blocks of Converse."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

from projector.formats.bedrock.media import write_media
from projector.formats.bedrock.stream_reader import PROVIDER
from projector.formats.shared.payloads import part_block, payload_for
from projector.formats.shared.values import object_of, value_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from projector.json_text import JsonText
    from projector.message import Block

_CALL: Final = "toolUse"
_RESULT: Final = "toolResult"
_THOUGHT: Final = "reasoningContent"
_CITED: Final = "citationsContent"
_MEDIA: Final = ("image", "document", "video", "audio")
_SAID: Final = ("guardContent", "cachePoint", "searchResult", _CITED, *_MEDIA)
"""Blocks that are kept as they came, whatever kind of block is theirs with us."""
_OF_RESULT: Final = ("json", "text", "image", "document", "video", "searchResult")
_CITATION: Final = {"title", "source", "sourceContent", "location"}
_SERVER: Final = "server_tool_use"


def write_block(block: Block) -> dict[str, Any] | None:
    """A sealed block as a content block; None where it can't be said."""
    kept = payload_of(block)
    said: dict[str, Any] | None = None
    match block.kind:
        case "text":
            said = kept if any(isinstance(kept.get(name), dict) for name in _SAID) else _text(block)
        case "reasoning" if block.text or block.signature:
            signed = {"signature": block.signature} if block.signature else {}
            said = {_THOUGHT: {"reasoningText": {"text": block.text} | signed}}
        case "redacted_reasoning" if _is_hidden(kept):
            said = kept
        case "tool_call":
            rest = kept.get(_CALL)
            said = {
                _CALL: _call(block, {name: rest[name] for name in rest if name != "type"} if isinstance(rest, dict) else {})
            }
        case "server_tool_call" if _is_of_server(block, kept):
            said = {_CALL: _call(block, kept[_CALL] | {"type": _SERVER})}
        case "server_tool_result" if isinstance(kept.get(_RESULT), dict) and kept[_RESULT].get("toolUseId"):
            said = kept
        case "media" | "provider" if any(isinstance(kept.get(name), dict) for name in _SAID):
            said = kept
        case "media":
            said = write_media(block)
    return said


def payload_of(block: Block) -> dict[str, Any]:
    """What a block keeps for Bedrock, the pieces of a stream put together; an empty one where that is nothing."""
    payload = value_of(payload_for(block, PROVIDER) or "null")
    if isinstance(payload, list):
        payload = _joined([piece for piece in payload if isinstance(piece, dict)])
    return payload if isinstance(payload, dict) else {}


def cited(block: Block) -> list[dict[str, Any]]:
    """The citations of Bedrock's own kind; another provider's mean places in other documents."""
    found = (object_of(citation) for citation in block.citations)
    sources = (one.get("source") for one in found if one.get("kind") == "citation")
    return [source for source in sources if isinstance(source, dict) and source and source.keys() <= _CITATION]


def write_result(part: Mapping[str, Any]) -> dict[str, Any] | None:
    """A part of a tool's result; None where it can't be said."""
    block = part_block(part)
    kept = payload_of(block)
    if any(kept.get(name) is not None for name in _OF_RESULT):
        return kept
    if block.kind == "media":
        media = write_media(block)
        return None if media is None or "audio" in media else media
    if block.kind == "data" and isinstance(value := value_of(block.text), dict):
        return {"json": value}
    if block.text or block.kind == "text":
        return {"text": block.text}
    return None if "opaque" in part else {"json": dict(part)}


def _text(block: Block) -> dict[str, Any]:
    citations = cited(block)
    return {_CITED: {"content": [{"text": block.text}], "citations": citations}} if citations else {"text": block.text}


def _call(block: Block, rest: Mapping[str, Any]) -> dict[str, Any]:
    said = {"toolUseId": block.tool_call_id, "name": block.name, "input": _input_of(block.input_text or block.text or "{}")}
    return {**rest, **said}


def _is_of_server(block: Block, kept: Mapping[str, Any]) -> bool:
    call = kept.get(_CALL)
    named = (call.get("toolUseId"), call.get("name")) if isinstance(call, dict) else ("", "")
    return all(named) and named == (block.tool_call_id, block.name)


def _input_of(text: JsonText) -> Any:
    value = value_of(text)
    return {} if value is None else value


def _is_hidden(kept: Mapping[str, Any]) -> bool:
    thought = kept.get(_THOUGHT)
    return isinstance(thought, dict) and isinstance(thought.get("redactedContent"), str) and bool(thought["redactedContent"])


def _joined(pieces: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The pieces of hidden reasoning, or of a result, that came one by one."""
    hidden = [piece[_THOUGHT]["redactedContent"] for piece in pieces if _is_hidden(piece)]
    if hidden and len(hidden) == len(pieces):
        try:
            data = b"".join(base64.b64decode(piece, validate=True) for piece in hidden)
        except ValueError:
            return {}
        return {_THOUGHT: {"redactedContent": base64.b64encode(data).decode()}}
    results = [piece.get(_RESULT) for piece in pieces]
    if not results or not isinstance(results[0], dict) or not all(isinstance(result, list) for result in results[1:]):
        return {}
    content = [part for result in results[1:] if isinstance(result, list) for part in result]
    return {_RESULT: results[0] | {"content": content}}
