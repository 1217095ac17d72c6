"""Recorded Anthropic streams, and a reading of them that owes nothing to the code under test."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from projector import Message

SHARED: Final = Path(__file__).parents[1].parent / "shared"
STREAMS: Final = sorted((SHARED / "data" / "vercel-ai" / "anthropic").glob("*.chunks.txt*"))
WHY_NONE: Final = "the shared recordings are not beside this repository"


class Part(NamedTuple):
    """What a block says: its text, its signature, its parsed input, what else must come back."""

    kind: str
    text: str
    signature: str
    input: Any
    payload: Any
    citations: list[Any]


def chunks_of(path: Path) -> list[str]:
    raw = path.read_bytes()
    data = gzip.decompress(raw) if path.suffix == ".gz" else raw
    return [line for line in data.decode().split("\n") if line.strip()]


def read_parts(chunks: Iterable[str]) -> list[list[Part]]:
    """The blocks of each response, by the provider's own documentation."""
    responses: list[list[dict[str, Any]]] = []
    open_blocks: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        event = json.loads(chunk)
        match event["type"]:
            case "message_start":
                open_blocks = {}
                responses.append([_block(block) for block in event["message"]["content"]])
            case "content_block_start":
                open_blocks[event["index"]] = _block(event["content_block"])
                responses[-1].append(open_blocks[event["index"]])
            case "content_block_delta":
                _grow(open_blocks[event["index"]], event["delta"])
            case "message_delta" if event["delta"]["stop_reason"] == "refusal":
                said = (event["delta"].get("stop_details") or {}).get("explanation", "")
                responses[-1].append(_block({"type": "refusal", "text": said}))
    return [[_part(block) for block in response] for response in responses if response]


def read_usage(chunks: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Input and output tokens by response: the last word counts, cached tokens lie inside the input."""
    usage: dict[str, dict[str, Any]] = {}
    current = ""
    for chunk in chunks:
        event = json.loads(chunk)
        if event["type"] == "message_start":
            current = event["message"]["id"]
            usage[current] = dict(event["message"]["usage"])
        elif event["type"] == "message_delta":
            usage[current] |= event["usage"]
    return {
        name: (
            said["input_tokens"] + (said.get("cache_read_input_tokens") or 0) + (said.get("cache_creation_input_tokens") or 0),
            said["output_tokens"],
        )
        for name, said in usage.items()
    }


def folded_parts(messages: Iterable[Message]) -> list[list[Part]]:
    """The same of messages that Tailfold holds."""
    found = []
    for message in messages:
        parts = []
        for block in message.blocks:
            payload = json.loads(block.opaque)["payload"] if block.opaque else None
            citations = [json.loads(citation)["source"] for citation in block.citations]
            is_call = block.kind in ("tool_call", "server_tool_call")
            parts.append(
                Part(block.kind, block.text, block.signature or "", block.input if is_call else None, payload, citations)
            )
        found.append(parts)
    return found


def is_prefix(parts: list[list[Part]], whole: list[list[Part]]) -> bool:
    """Each block there is says a prefix of what the recording says, in the recording's order."""
    if len(parts) > len(whole):
        return False
    for number, (some, full) in enumerate(zip(parts, whole, strict=False)):
        if len(some) > len(full) or (number < len(parts) - 1 and len(some) != len(full)):
            return False
        for part, complete in zip(some, full, strict=False):
            if part.kind != complete.kind or not complete.text.startswith(part.text):
                return False
            if part.signature not in ("", complete.signature) or part.citations != complete.citations[: len(part.citations)]:
                return False
    return True


def size(parts: list[list[Part]]) -> int:
    return sum(len(part.text) for response in parts for part in response)


def _block(block: dict[str, Any]) -> dict[str, Any]:
    text = block.get(
        {"text": "text", "thinking": "thinking", "compaction": "content", "refusal": "text"}.get(block["type"], "")
    )
    return {"given": block, "text": text or "", "signature": block.get("signature") or "", "citations": []}


def _grow(block: dict[str, Any], delta: dict[str, Any]) -> None:
    match delta["type"]:
        case "text_delta":
            block["text"] += delta["text"]
        case "thinking_delta":
            block["text"] += delta["thinking"]
        case "input_json_delta":
            block["text"] += delta["partial_json"]
        case "signature_delta":
            block["signature"] += delta["signature"]
        case "citations_delta":
            block["citations"].append(delta["citation"])


def _part(block: dict[str, Any]) -> Part:
    given = block["given"]
    kinds = {"text": "text", "thinking": "reasoning", "tool_use": "tool_call", "refusal": "refusal", "compaction": "compaction"}
    kinds |= {"server_tool_use": "server_tool_call", "mcp_tool_use": "server_tool_call"}
    kind = kinds.get(given["type"], "server_tool_result" if "tool_use_id" in given else "provider")
    is_call = kind in ("tool_call", "server_tool_call")
    try:
        arguments = (json.loads(block["text"]) if block["text"] else given["input"]) if is_call else None
    except ValueError:  # the stream broke off
        arguments = None
    known = {"text": {"text", "citations"}, "thinking": {"thinking", "signature"}, "refusal": {"text"}}
    known |= {name: {"id", "name", "input"} for name in ("tool_use", "server_tool_use")}
    payload = None if given.keys() - {"type"} <= known.get(given["type"], set()) else given
    return Part(kind, block["text"], block["signature"], arguments, payload, block["citations"])
