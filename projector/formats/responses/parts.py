"""Blocks as items of the Responses API: what `shared.openai_items` reads, written again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from projector.formats.shared.fields import items_of
from projector.formats.shared.openai_items import PART, PROVIDER
from projector.formats.shared.payloads import media_of, payload_for
from projector.json_text import JsonText, decode, dump, plain, split
from projector.message import Block

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from projector.message import BlockKind

SAID: Final = ("text", "refusal")
REASONING: Final = ("reasoning", "redacted_reasoning")
_CITATIONS: Final = ("url_citation", "file_citation", "container_file_citation", "file_path")
_PREFIXES: Final = {"message": "msg", "reasoning": "rs", "function_call": "fc"}
"""How OpenAI's ids of these items begin; it refuses others."""


def groups(blocks: Sequence[Block]) -> Iterator[list[Block]]:
    """The blocks of each item: the parts of a message are those with its id."""
    group: list[Block] = []
    for block in blocks:
        is_part = block.kind in SAID and block.provider_ref is not None
        if group and not (is_part and group[-1].kind in SAID and group[-1].provider_ref == block.provider_ref):
            yield group
            group = []
        group.append(block)
    if group:
        yield group


def item_of(group: Sequence[Block]) -> dict[str, Any]:
    """The item that these blocks are, with its id if it has one."""
    block = group[0]
    if block.kind in SAID:
        return _message_item(group)
    if block.kind in REASONING:
        return _reasoning_item(block)
    if block.kind == "tool_call":
        return _call_item(block)
    item: dict[str, Any] = plain(payload_for(block, PROVIDER) or "{}")
    return item


def item_rest(block: Block) -> dict[str, Any]:
    """What the item says beyond the block's own fields."""
    rest: dict[str, Any] = plain(payload_for(block, PROVIDER) or "{}").get("item", {})
    return rest


def type_of_call(block: Block) -> str:
    """The type of the item that a tool call of the client is."""
    return str(item_rest(block).get("type", "function_call"))


def output_of(call_type: str) -> str:
    """The type of the item that answers such a call."""
    return "tool_search_output" if call_type == "tool_search_call" else f"{call_type}_output"


def without_id(item: dict[str, Any]) -> dict[str, Any]:
    """The item without its id; a message is then written in its easy form."""
    rest = {name: value for name, value in item.items() if name != "id"}
    if item.get("type") != "message":
        return rest
    rest = {name: value for name, value in rest.items() if name != "type" and (name, value) != ("status", "completed")}
    content = [part if part.get("annotations") else _without_notes(part) for part in item["content"]]
    is_plain = [set(part) for part in content] == [{"type", "text"}]
    return rest | {"content": content[0]["text"] if is_plain else content}


def has_own_id(item: dict[str, Any]) -> bool:
    """Whether the id of an item is one that OpenAI gave."""
    return str(item.get("id") or "").startswith(_PREFIXES.get(item["type"], "")) and bool(item.get("id"))


def is_sound(item: dict[str, Any]) -> bool:
    """Whether what names an item, and what only its maker can read of it, is text that can be sent."""
    names = (item.get(name) for name in ("id", "call_id", "approval_request_id", "role", "encrypted_content"))
    return all(name is None or (isinstance(name, str) and name.isprintable()) for name in names)


def write_part(block: Block) -> dict[str, Any] | None:
    """A part of what the client says or a tool gives back; None where there is no form for it."""
    payload = payload_for(block, PROVIDER)
    if block.kind == "text":
        return {"type": "input_text", "text": block.text} | _rest_of_part(block)
    if payload is not None and (_has_source(block) or (block.provider_ref or "").startswith(PART)):
        own: dict[str, Any] = plain(payload)
        return own
    return _media_part(block) if block.kind == "media" else None


def _has_source(block: Block) -> bool:
    media = media_of(block)
    return block.kind == "media" and bool(media.data or media.url or media.file_id)


def _media_part(block: Block) -> dict[str, Any] | None:
    media = media_of(block)
    kind = media.media_type or ""
    data = f"data:{kind};base64,{media.data}" if media.data and kind else None
    if (url := media.url or data) and (kind.startswith("image/") or not kind):
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    if data:
        return {"type": "input_file", "filename": block.name or "file", "file_data": data}
    return {"type": "input_file", "file_url": media.url} if media.url else None


def result_parts(parts: JsonText | None) -> list[Block]:
    """The parts of a tool's result as blocks."""
    found = []
    for part in items_of(parts or "[]", "parts"):
        fields = split(part)
        kind, said, media_type, ref = (decode(fields.get(name, "null")) for name in ("kind", "text", "media_type", "type"))
        own: dict[str, str] = {name: str(decode(text)) for name, text in fields.items() if name in ("data", "url", "file_id")}
        known = Block(
            cast("BlockKind", str(kind or "data")),
            text=said if isinstance(said, str) else dump(plain(part)) if kind not in ("media", "provider") else "",
            sealed=True,
            media_type=media_type,
            provider_ref=ref,
            fields=own,
            opaque=fields.get("opaque"),
        )
        found.append(known)
    return found


def result_item(block: Block, call_type: str) -> dict[str, Any] | None:
    """The output of a call of this type; None where what came back can't be one."""
    parts = result_parts(block.parts)
    for part in parts:
        own = payload_for(part, PROVIDER) if part.kind == "provider" else None
        if own is not None and decode(split(own).get("type", "null")) == output_of(call_type):
            item: dict[str, Any] = plain(own)
            return item | {"call_id": block.tool_call_id}
    text = "".join(part.text for part in parts)
    is_ok = block.status in (None, "ok")
    rest: dict[str, Any] | None
    match call_type:
        case "local_shell_call":
            rest = {"output": text}
        case "apply_patch_call":
            rest = {"status": "completed" if is_ok else "failed", "output": text}
        case "shell_call":
            rest = {"output": [{"stdout": text, "stderr": "", "outcome": {"type": "exit", "exit_code": 0 if is_ok else 1}}]}
        case "tool_search_call":
            rest = {"execution": "client", "status": "completed", "tools": []}
        case "computer_call":
            rest = _screenshot(parts)
        case _:
            written = [part for part in map(write_part, parts) if part is not None]
            is_plain = len(written) < 2 and all(set(part) == {"type", "text"} for part in written)
            rest = {"output": text if is_plain else written}
    return None if rest is None else {"type": output_of(call_type), "call_id": block.tool_call_id} | rest


def _screenshot(parts: Sequence[Block]) -> dict[str, Any] | None:
    shown = next((write_part(part) for part in parts if part.kind == "media"), None)
    image = shown.get("image_url") if shown else None
    return {"output": {"type": "computer_screenshot", "image_url": image}} if image else None


def write_citation(citation: JsonText) -> dict[str, Any] | None:
    """A citation as an annotation; None for one of another provider."""
    source = plain(citation).get("source")
    if not isinstance(source, dict) or source.get("type") not in _CITATIONS:
        return None
    inner = source.get(source["type"])  # Chat Completions has the fields inside
    found: dict[str, Any] = {"type": source["type"]} | inner if isinstance(inner, dict) else source
    return found


def _message_item(group: Sequence[Block]) -> dict[str, Any]:
    block = group[0]
    item = {"type": "message", "id": block.provider_ref, "role": "assistant", "status": "completed"}
    return item | item_rest(block) | {"content": [_said_part(part) for part in group]}


def _said_part(block: Block) -> dict[str, Any]:
    rest = _rest_of_part(block)
    if block.kind == "refusal":
        return {"type": "refusal", "refusal": block.text} | rest
    notes = [note for note in map(write_citation, block.citations) if note is not None]
    return {"type": "output_text", "text": block.text, "annotations": notes} | rest


def _rest_of_part(block: Block) -> dict[str, Any]:
    rest: dict[str, Any] = plain(payload_for(block, PROVIDER) or "{}").get("part", {})
    return rest


def _reasoning_item(block: Block) -> dict[str, Any]:
    rest = item_rest(block)
    summary = [{"type": "summary_text", "text": block.text}] if block.text and "content" not in rest else []
    item = {"type": "reasoning", "id": block.provider_ref, "summary": summary}
    return item | ({"encrypted_content": block.signature} if block.signature else {}) | rest


def _call_item(block: Block) -> dict[str, Any]:
    rest = item_rest(block)
    kind = rest.pop("type", "function_call")
    ids = {"id": block.provider_ref} if block.provider_ref else {}
    item = {"type": kind} | ids | {"call_id": block.tool_call_id}
    if kind == "function_call":
        return item | {"name": block.name, "arguments": block.input_text or block.text} | rest
    if kind == "custom_tool_call":
        return item | {"name": block.name, "input": block.text} | rest
    given: dict[str, Any] = plain(block.input_text or "{}")
    return item | given | {"status": "completed"} | rest


def _without_notes(part: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name != "annotations"}
