"""Parts of a UIMessage as blocks and back. What our own fields do not say of a part stays with its block.

Provider metadata of the AI SDK is kept as it came; signatures in it are also ours, with their maker, so that they can
go back to it. What other makers keep travels under our own name in that metadata. Source: the published types of the
AI SDK 7.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec.structs import replace

from projector.formats.format import FormatError
from projector.formats.outgoing.display import HINT
from projector.formats.shared.blocks import kept_block, media_block, part_data
from projector.formats.shared.fields import Fields, items_of
from projector.formats.shared.history import text_block, text_parts
from projector.formats.shared.makers import ANTHROPIC, BEDROCK, GOOGLE
from projector.formats.shared.payloads import maker_of, media_of, opaque, part_block, payload_for, signer_of
from projector.json_text import JsonText, decode, dump, join_fields, plain, split
from projector.message import Block

if TYPE_CHECKING:
    from collections.abc import Mapping

    from projector.message import BlockKind

PROVIDER: Final = "ai-sdk"
SHELL: Final = "ai-sdk"
"""Metadata of a message that came from the AI SDK: the id there, whether a step begins with it, and what else it had."""
STEP: Final = "step-start"
TOOL: Final = "tool-"
DYNAMIC: Final = "dynamic-tool"
DATA: Final = "data-"
WHOLE: Final = ("source-url", "source-document", "file", "reasoning-file", "custom", "steering-message")
"""Parts that are chunks as they are."""
_SIGNATURES: Final = {
    "anthropic": (ANTHROPIC, "signature"),
    "bedrock": (BEDROCK, "signature"),
    "google": (GOOGLE, "thoughtSignature"),
    "vertex": (GOOGLE, "thoughtSignature"),
}
"""Where the SDK keeps whose signature; the first of a maker is where it is written."""
_OF_CALLS: Final = {
    "type", "toolName", "toolCallId", "state", "input", "output", "errorText", "providerExecuted", "resultProviderMetadata",
    "preliminary", "rawInput",
}  # fmt: skip


class ToolOutcome:
    """What became of a call: its status, the parts of its result, and what is only for the AI SDK."""

    def __init__(self, status: str, parts: JsonText, rest: dict[str, JsonText]) -> None:
        self.status, self.parts, self.rest = status, parts, rest


def said_block(part: Fields, role: str) -> Block:
    """A part of text or reasoning. The state is said by whether it is sealed."""
    state = part.maybe_text("state")
    sealed = state != "streaming"
    rest = part.rest("type", "text", "citations", "state")
    wanted = state_of(role, sealed=sealed)
    rest |= {"state": dump(state)} if state != wanted else {}
    kind, text = part.text("type"), part.text("text")
    ref = rest.pop("id", None) if kind == "reasoning" else None
    block = Block(
        cast("BlockKind", kind),
        text=text,
        sealed=sealed,
        provider_ref=decode(ref) if ref is not None else None,
        citations=tuple(citation(item) for item, _ in part.items("citations")),
    )
    return with_metadata(block, rest, "providerMetadata")


def state_of(role: str, *, sealed: bool) -> str | None:
    """The state that a part of text has; a user's has none."""
    return None if role != "assistant" else "done" if sealed else "streaming"


def with_metadata(block: Block, rest: dict[str, JsonText], name: str) -> Block:
    """A block with what came with it. A maker's signature and what was ours before are put back in their place."""
    metadata = Fields(rest[name], name) if rest.get(name, "").startswith("{") else None
    if metadata is None:
        return replace(block, opaque=opaque(PROVIDER, join_fields(rest))) if rest else block
    ours = metadata.object(HINT)
    if ours is not None:
        others = metadata.rest(HINT)
        rest = {key: text for key, text in rest.items() if key != name} | ({name: join_fields(others)} if others else {})
        signer, kept = ours.maybe_text("signer"), ours.maybe_text("opaque")
        if kept is None and (rest or signer is not None):
            kept = opaque(PROVIDER, join_fields(rest), signer=signer)
        block = replace(block, signature=ours.maybe_text("signature"), opaque=kept)
    elif rest.keys() == {name} and (data := _redacted(block, metadata)) is not None:
        payload = f'{{"type":"redacted_thinking","data":{data}}}'
        block = replace(block, kind="redacted_reasoning", opaque=opaque(ANTHROPIC, payload))
    else:
        signature, signer = _signature(metadata)
        block = replace(block, signature=signature, opaque=opaque(PROVIDER, join_fields(rest), signer=signer))
    if block.kind == "reasoning" and not block.text and block.signature is None:
        return replace(block, kind="redacted_reasoning")  # nothing to be shown, something to be sent
    return block


def metadata_of(block: Block, name: str = "providerMetadata") -> dict[str, Any]:
    """What only the AI SDK knows of a block; or its signature and payload in a form that the SDK keeps."""
    kept = payload_for(block, PROVIDER)
    known: dict[str, Any] = plain(kept) if kept is not None else {}
    signer = signer_of(block)
    if block.kind == "redacted_reasoning" and maker_of(block) == ANTHROPIC:
        return {name: {"anthropic": {"redactedData": plain(payload_for(block, ANTHROPIC) or "{}").get("data")}}}
    if name in known or (block.opaque is None and block.signature is None):
        return known
    if signer in _SIGNATURES and block.opaque is None:
        return {name: {signer: {_SIGNATURES[signer][1]: block.signature}}}
    ours = {"opaque": block.opaque} if kept is None else {}
    ours |= {"signature": block.signature, "signer": signer} if block.signature is not None else {}
    return known | ({name: {HINT: ours}} if ours else {})


def call_block(part: Fields) -> Block:
    """The call of a tool part, as far as it came. One that is not finished keeps its text only."""
    kind, values = part.text("type"), split(part.source)
    name = part.text("toolName") if kind == DYNAMIC else kind.removeprefix(TOOL)
    own: BlockKind = "server_tool_call" if part.is_true("providerExecuted") else "tool_call"
    dynamic = DYNAMIC if kind == DYNAMIC else None
    written, given = values.get("rawInput", "null"), values.get("input")
    text = decode(written) if written.startswith('"') else "" if written == "null" else written
    block = Block(own, text=text, name=name, tool_call_id=part.text("toolCallId"), provider_ref=dynamic)
    rest = part.rest(*_OF_CALLS)
    if part.text("state") == "input-streaming":
        rest |= {"input": given} if given not in (None, "null") else {}
        return with_metadata(block, rest, "callProviderMetadata")
    rest |= {"rawInput": written} if written != "null" else {}
    if given is not None:
        block = replace(block, text="", input_text=given)
    return with_metadata(replace(block, sealed=True, parse="bad" if given is None else "ok"), rest, "callProviderMetadata")


def outcome_of(part: Fields) -> ToolOutcome | None:
    """The result in a tool part, if there is one."""
    values = split(part.source)
    rest = {name: values[name] for name in ("resultProviderMetadata", "preliminary") if name in part}
    match part.text("state"):
        case "output-available":
            return ToolOutcome("ok", output_parts(values.get("output")), rest)
        case "output-error":
            return ToolOutcome("error", text_parts(part.maybe_text("errorText") or ""), rest)
        case "output-denied":
            return ToolOutcome("denied", denial_parts(part.raw("approval")), rest)
    return None


def denial_parts(approval: JsonText | None) -> JsonText:
    """What is said of a call that a person has denied: their reason."""
    given = decode(approval) if approval is not None else None
    reason = given.get("reason") if isinstance(given, dict) else None
    return text_parts(reason) if isinstance(reason, str) else "[]"


def settled(approval: dict[str, Any] | None, outcome: dict[str, Any], ref: str) -> dict[str, Any] | None:
    """The approval that goes with what became of a call: what was denied has one, what has run was approved."""
    state = outcome.get("state")
    if state == "output-denied":
        said: dict[str, Any] = outcome.pop("approval", {})
        return {"id": ref} | (approval or {}) | {"approved": False} | said
    if approval is None or state is None:
        return approval
    return approval | {"approved": True}


def output_parts(output: JsonText | None) -> JsonText:
    """What a tool gave, as parts of a result."""
    if output is None:
        return "[]"
    return text_parts(decode(output)) if output.startswith('"') else f"[{part_data(output)}]"


def server_block(tool_call_id: str, outcome: ToolOutcome) -> Block:
    """The result of a tool that the provider has run itself, in the message that calls."""
    payload = join_fields({"status": dump(outcome.status), "parts": outcome.parts} | outcome.rest)
    return Block("server_tool_result", sealed=True, tool_call_id=tool_call_id, opaque=opaque(PROVIDER, payload))


def other_block(part: Fields) -> Block:
    """A part that is neither text nor a tool."""
    kind = part.text("type")
    if kind in ("file", "reasoning-file") and (url := part.maybe_text("url")) is not None:
        media_type = part.maybe_text("mediaType")
        head, _, data = url.partition(",")
        is_plain = head == f"data:{media_type};base64" and data
        media = media_block(media_type, data=data) if is_plain else media_block(media_type, url=url)
        rest = part.rest("type", "mediaType", "url", "filename")
        named = {"name": part.text("filename")} if "filename" in part else {}
        kept = opaque(PROVIDER, join_fields(rest)) if rest else None
        ref = kind if kind != "file" else None
        return replace(media, fields=media.fields | named, opaque=kept, provider_ref=ref)
    if kind.startswith("source-"):
        return replace(kept_block(PROVIDER, part.source), kind="source")
    if kind.startswith(DATA):
        return replace(kept_block(PROVIDER, part.source), kind="data", name=kind.removeprefix(DATA))
    return kept_block(PROVIDER, part.source, kind)


def write_media(block: Block) -> dict[str, Any] | None:
    """Media as a file; None where nobody says where its bytes are."""
    media = media_of(block)
    kind = media.media_type or "application/octet-stream"
    url = f"data:{kind};base64,{media.data}" if media.data is not None else media.url
    if url is None:
        return None
    rest: dict[str, Any] = plain(payload_for(block, PROVIDER) or "{}")
    part = {"type": "reasoning-file" if block.provider_ref == "reasoning-file" else "file", "mediaType": kind, "url": url}
    return part | ({"filename": media.name} if media.name else {}) | rest


def write_output(parts: JsonText) -> tuple[dict[str, Any], bool]:
    """The output that parts of a result stand for, for there must be one, and whether it says all."""
    found = [_part(item) for item in items_of(parts, "parts")]
    if len(found) > 1:
        return {"output": [part for part, _ in found]}, False
    if not found:
        return {"output": None}, True
    [(value, is_whole)] = found
    return {
        "output": value["text"] if isinstance(value, dict) and value.get("type") == "text" and is_whole else value
    }, is_whole


def text_of_parts(parts: JsonText) -> str:
    """What a result says in words."""
    return "".join(part["text"] for part, _ in map(_part, items_of(parts, "parts")) if _is_text(part))


def citation(source: JsonText) -> JsonText:
    """A citation of a text part in our form."""
    return f'{{"kind":"{PROVIDER}","source":{source}}}'


def write_citation(text: JsonText, ref: str) -> dict[str, Any] | None:
    """A citation as the AI SDK has it; of another maker what names an address."""
    given = plain(text)
    source = given.get("source") if isinstance(given, dict) else None
    if not isinstance(source, dict):
        return None
    if given.get("kind") == PROVIDER:
        return source
    inner = next((source[name] for name in ("url_citation", "web") if isinstance(source.get(name), dict)), source)
    url = inner.get("url") or inner.get("uri")
    if not isinstance(url, str):
        return None
    title = {"title": inner["title"]} if isinstance(inner.get("title"), str) else {}
    quoted = {"citedText": inner["cited_text"]} if isinstance(inner.get("cited_text"), str) else {}
    places = {"startIndex": inner.get("start_index"), "endIndex": inner.get("end_index")}
    kept = {name: at for name, at in places.items() if isinstance(at, int)}
    return {"source": {"type": "source", "sourceType": "url", "id": ref, "url": url} | title} | kept | quoted


def approval_of(block: Block, kept: Mapping[str, Any]) -> dict[str, Any] | None:
    """The newest that is known of an approval: our own word, and what only the AI SDK knows."""
    known: dict[str, Any] = dict(kept)
    ours = plain(block.approval) if block.approval is not None else {}
    known |= {"id": ours["approval_id"]} if "approval_id" in ours else {}
    known |= {"approved": ours["approved"]} if ours.get("approved") is not None else {}
    return known or None


def _part(text: JsonText) -> tuple[Any, bool]:
    part = plain(text)
    block = part_block(part) if isinstance(part, dict) else text_block(part if isinstance(part, str) else text)
    if block.kind == "text":
        return {"type": "text", "text": block.text}, True
    if block.kind == "data":
        return plain(block.text), True
    media = media_of(block)
    found = {"data": media.data, "url": media.url, "mediaType": media.media_type}
    return {"type": "file"} | {name: value for name, value in found.items() if value is not None}, False


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)


def _signature(metadata: Fields) -> tuple[str | None, str | None]:
    for place, (signer, name) in _SIGNATURES.items():
        with suppress(FormatError):
            found = metadata.object(place)
            value = found.maybe_text(name) if found is not None else None
            if value:
                return value, signer
    return None, None


def _redacted(block: Block, metadata: Fields) -> JsonText | None:
    found = metadata.object("anthropic") if metadata.names() == {"anthropic"} else None
    is_alone = found is not None and found.names() == {"redactedData"}
    return (
        found.raw("redactedData") if found is not None and is_alone and block.kind == "reasoning" and not block.text else None
    )
