"""LangChain's content blocks as ours and back: the standard ones of version 1, and those of providers that are older.

What our own fields do not say of a block (`extras`, `index`) stays with it. A signature in `extras` is ours too, with
the maker that the message names. Source: `langchain-core` 1.8.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from projector.formats.shared.blocks import kept_block
from projector.formats.shared.makers import ANTHROPIC, BEDROCK, GOOGLE, OPENAI
from projector.formats.shared.payloads import Media, maker_of, media_of, opaque, payload_for, signer_of
from projector.json_text import JsonText, decode, is_json, join_fields, plain
from projector.message import Block

if TYPE_CHECKING:
    from collections.abc import Callable

    from projector.formats.shared.fields import Fields
    from projector.message import BlockKind

PROVIDER: Final = "langchain"
SHELL: Final = "langchain"
"""Metadata of a message that came from LangChain: its id there, and what our fields do not say of it."""
MAKERS: Final = {
    "anthropic": ANTHROPIC, "openai": OPENAI, "azure": OPENAI, "google_genai": GOOGLE, "google_vertexai": GOOGLE,
    "bedrock": BEDROCK, "bedrock_converse": BEDROCK,
}  # fmt: skip
"""Whom `model_provider` means; what is written for a maker is the first name."""
TEXT_PLAIN: Final = "text-plain"
_MEDIA: Final = ("image", "audio", "video", "file", TEXT_PLAIN, "image_url", "input_audio", "document")
"""The kinds of version 1, and older ones."""
_PLACES: Final = (
    "url",
    "base64",
    "file_id",
    "mime_type",
    "source_type",
    "data",
    "image_url",
    "input_audio",
    "source",
    "text",
    "title",
)


def read_block(block: Fields, maker: str) -> Block | None:
    """One content block; None for a fragment that is said elsewhere. Raises `FormatError`."""
    kind = block.text("type")
    if kind in _MEDIA:
        return _media(block, kind)
    read = _READERS.get(kind)
    if read is not None:
        return read(block, maker)
    if kind.endswith("_tool_result") and "tool_use_id" in block:
        result = kept_block(maker, block.source, kind)
        return replace(result, kind="server_tool_result", tool_call_id=block.maybe_text("tool_use_id"))
    return None if kind == "input_json_delta" else kept_block(maker, block.source, kind)


def call(name: str, tool_call_id: str | None, arguments: JsonText, rest: dict[str, JsonText], maker: str) -> Block:
    """A tool call; `arguments` are its JSON text, whole or not."""
    parse = "ok" if is_json(arguments) and arguments.lstrip().startswith("{") else "bad"
    block = Block("tool_call", text=arguments, sealed=True, name=name, tool_call_id=tool_call_id, parse=parse)
    return _with_rest(block, rest, maker)


def read_call(call: Fields, maker: str) -> Block:
    """One of the calls in the lists of a message, where `args` are an object, or text that is broken or not whole."""
    return _invalid(call, maker) if "error" in call or call.raw("type") == '"invalid_tool_call"' else _call(call, maker)


def write_block(block: Block) -> dict[str, Any] | None:
    """A content block of version 1; None where there is no form for it."""
    rest: dict[str, Any] = plain(payload_for(block, PROVIDER) or "{}")
    writer = _WRITERS.get(block.kind)
    return writer(block, rest) if writer is not None else None


def write_call(block: Block) -> dict[str, Any]:
    """A call as the lists of a message have it: a broken one has its arguments as text."""
    text = block.input_text or block.text or "{}"
    known = {"id": block.tool_call_id, "name": block.name or ""}
    if block.parse == "bad" or not text.lstrip().startswith("{"):
        return {"type": "invalid_tool_call"} | known | {"args": text, "error": block.fields.get("error")}
    return {"type": block.kind} | known | {"args": plain(text)}


def is_plain(block: Block) -> bool:
    """Whether text alone says all of a block."""
    return block.kind == "text" and not block.citations and block.signature is None and payload_for(block, PROVIDER) is None


def _text(block: Fields, maker: str) -> Block:
    cited = [f'{{"kind":"{PROVIDER}","source":{text}}}' for text, _ in block.items("annotations")]
    cited += [f'{{"kind":{found.raw("type") or "null"},"source":{found.source}}}' for found in block.objects("citations")]
    made = Block("text", text=block.maybe_text("text") or "", sealed=True, citations=tuple(cited))
    return _with_rest(made, block.rest("type", "text", "annotations", "citations"), maker)


def _reasoning(block: Fields, maker: str) -> Block:
    if "summary" in block:  # an item of OpenAI's Responses as it came
        said = "\n\n".join(part.maybe_text("text") or "" for part in block.objects("summary"))
        kind: BlockKind = "reasoning" if said else "redacted_reasoning"
        return Block(kind, text=said, sealed=True, opaque=opaque(OPENAI, block.source))
    text = block.maybe_text("reasoning") or ""
    made = _with_rest(Block("reasoning", text=text, sealed=True), block.rest("type", "reasoning"), maker)
    if text or made.signature is not None:
        return made
    return Block("redacted_reasoning", sealed=True, opaque=opaque(PROVIDER, block.source))  # nothing to be shown


def _thinking(block: Fields, maker: str) -> Block:
    made = Block("reasoning", text=block.maybe_text("thinking") or "", sealed=True, signature=block.maybe_text("signature"))
    return _signed(made, {}, maker)


def _bedrock_reasoning(block: Fields, maker: str) -> Block:
    inner = block.need("reasoning_content")
    made = Block("reasoning", text=inner.maybe_text("text") or "", sealed=True, signature=inner.maybe_text("signature"))
    return _signed(made, {}, maker if maker != PROVIDER else BEDROCK)


def _redacted(block: Fields, maker: str) -> Block:  # noqa: ARG001 - one shape
    return Block("redacted_reasoning", sealed=True, opaque=opaque(ANTHROPIC, block.source))


def _non_standard(block: Fields, maker: str) -> Block:
    value = block.object("value") if (block.raw("value") or "").startswith("{") else None
    if value is not None and value.raw("type") == '"redacted_thinking"' and block.names() == {"type", "value"}:
        return _redacted(value, maker)
    return kept_block(PROVIDER, block.source, "non_standard")


def _refusal(block: Fields, maker: str) -> Block:
    made = Block("refusal", text=block.maybe_text("refusal") or "", sealed=True)
    return _with_rest(made, block.rest("type", "refusal"), maker)


def _call(block: Fields, maker: str) -> Block:
    given = block.raw("args")
    arguments = block.text("args") if given is not None and given.startswith('"') else given or "{}"
    rest = block.rest("type", "id", "name", "args", "error")
    return call(block.maybe_text("name") or "", block.maybe_text("id"), arguments, rest, maker)


def _invalid(block: Fields, maker: str) -> Block:
    error = block.maybe_text("error")
    return replace(_call(block, maker), parse="bad", fields={"error": error} if error is not None else {})


def _tool_use(block: Fields, maker: str) -> Block:
    streamed = block.maybe_text("partial_json")  # then the input is still empty
    return call(block.text("name"), block.maybe_text("id"), streamed or block.raw("input") or "{}", {}, maker)


def _function_call(block: Fields, maker: str) -> Block:
    return call(block.text("name"), block.maybe_text("call_id"), block.maybe_text("arguments") or "{}", {}, maker)


def _server_call(block: Fields, maker: str) -> Block:
    given = block.raw("args") or block.raw("input") or "{}"
    made = replace(call(block.maybe_text("name") or "", block.maybe_text("id"), given, {}, maker), kind="server_tool_call")
    return _with_rest(made, block.rest("type", "id", "name", "args", "input"), maker)


def _server_result(block: Fields, maker: str) -> Block:  # noqa: ARG001 - one shape
    made = kept_block(PROVIDER, block.source)
    return replace(made, kind="server_tool_result", tool_call_id=block.text("tool_call_id"))


_READERS: Final[dict[str, Callable[[Fields, str], Block]]] = {
    "text": _text,
    "reasoning": _reasoning,
    "thinking": _thinking,
    "redacted_thinking": _redacted,
    "reasoning_content": _bedrock_reasoning,
    "non_standard": _non_standard,
    "refusal": _refusal,
    "tool_call": _call,
    "tool_call_chunk": _call,
    "invalid_tool_call": _invalid,
    "tool_use": _tool_use,
    "function_call": _function_call,
    "server_tool_call": _server_call,
    "server_tool_use": _server_call,
    "server_tool_result": _server_result,
}


def _with_rest(block: Block, rest: dict[str, JsonText], maker: str) -> Block:
    """The block with what our own fields do not say; its id is a reference, a signature is of the maker."""
    rest = dict(rest)
    ref = rest.pop("id", None) if block.kind not in ("tool_call", "server_tool_call") else None
    extras = rest.get("extras", "")
    given = decode(extras) if extras.startswith("{") else {}
    signature = given.get("signature") if isinstance(given.get("signature"), str) else None
    named = replace(block, provider_ref=decode(ref) if ref is not None else None, signature=signature)
    if not rest and ref is None:
        return named
    return _signed(named, rest, maker)


def _signed(block: Block, rest: dict[str, JsonText], maker: str) -> Block:
    signer = maker if block.signature is not None else None
    return (
        replace(block, opaque=opaque(PROVIDER, join_fields(rest), signer=signer))
        if rest or signer or block.provider_ref
        else block
    )


def _media(block: Fields, kind: str) -> Block:
    """Media of version 1 (`url`, `base64`, `file_id`), of version 0 (`source_type`), or as OpenAI or Anthropic have it."""
    if kind == TEXT_PLAIN and "text" in block:
        data = base64.b64encode(block.text("text").encode("utf-8", "surrogatepass")).decode()
        found = Media("text/plain", data=data, name=block.maybe_text("title"))
    else:
        found = media_of(Block("media", opaque=opaque(PROVIDER, block.source), fields=_version_0(block)))
    fields = {"data": found.data, "url": found.url, "file_id": found.file_id, "name": found.name}
    rest = block.rest("type", *_PLACES)
    sort = {"image_url": "image", "input_audio": "audio", "document": "file"}.get(kind, kind)
    return Block(
        "media",
        sealed=True,
        media_type=block.maybe_text("mime_type") or found.media_type,
        provider_ref=sort,
        fields={name: value for name, value in fields.items() if value is not None},
        opaque=opaque(PROVIDER, join_fields(rest)) if rest else None,
    )


def _version_0(block: Fields) -> dict[str, str]:
    names = {"base64": "data", "data": "data", "url": "url", "file_id": "file_id"}
    found = {ours: block.raw(theirs) for theirs, ours in names.items()}
    return {name: decode(text) for name, text in found.items() if text is not None and text.startswith('"')}


def _write_text(block: Block, rest: dict[str, Any]) -> dict[str, Any]:
    cited = [_write_citation(text) for text in block.citations]
    return {"type": "text", "text": block.text} | ({"annotations": cited} if cited else {}) | _named(block) | rest


def _write_reasoning(block: Block, rest: dict[str, Any]) -> dict[str, Any]:
    is_known = block.signature is not None and signer_of(block) in MAKERS.values()
    signed = {"extras": {"signature": block.signature}} if is_known else {}
    return {"type": "reasoning", "reasoning": block.text} | _named(block) | signed | rest


def _write_refusal(block: Block, rest: dict[str, Any]) -> dict[str, Any]:
    return {"type": "refusal", "refusal": block.text} | _named(block) | rest


def _write_call(block: Block, rest: dict[str, Any]) -> dict[str, Any]:
    return write_call(block) | rest


def _write_kept(block: Block, rest: dict[str, Any]) -> dict[str, Any] | None:
    """What came from LangChain as it came; what Anthropic hides, as LangChain has it."""
    if maker_of(block) == PROVIDER:
        return rest
    maker = maker_of(block)
    if maker not in MAKERS.values() or (block.kind == "redacted_reasoning" and maker != ANTHROPIC):
        return None
    return {"type": "non_standard", "value": plain(payload_for(block, maker or "") or "{}")}


def _named(block: Block) -> dict[str, Any]:
    return {"id": block.provider_ref} if block.provider_ref is not None and maker_of(block) == PROVIDER else {}


def _write_media(block: Block, rest: dict[str, Any]) -> dict[str, Any] | None:
    media = media_of(block)
    sort = (media.media_type or "").partition("/")[0]
    guessed = sort if sort in ("image", "audio", "video") else "image" if media.is_image else "file"
    kind = block.provider_ref if block.provider_ref in _MEDIA[:5] else guessed
    typed = {"mime_type": media.media_type} if media.media_type is not None else {}
    if kind == TEXT_PLAIN and media.data is not None:
        try:
            text = base64.b64decode(media.data).decode("utf-8", "replace")
        except (ValueError, binascii.Error):
            return None
        return {"type": kind, "text": text} | typed | ({"title": media.name} if media.name else {}) | rest
    for name, place in (("base64", media.data), ("url", media.url), ("file_id", media.file_id)):
        if place is not None:
            return {"type": kind, name: place} | typed | rest
    return None


def _write_server_result(block: Block, rest: dict[str, Any]) -> dict[str, Any] | None:
    if maker_of(block) == PROVIDER:
        return rest
    given = plain(block.opaque or "{}").get("payload")
    output = given.get("content", given) if isinstance(given, dict) else given
    return {"type": "server_tool_result", "tool_call_id": block.tool_call_id or "", "status": "success", "output": output}


def _write_citation(text: JsonText) -> dict[str, Any]:
    given = plain(text)
    source = given.get("source") if isinstance(given, dict) else given
    if isinstance(given, dict) and given.get("kind") == PROVIDER and isinstance(source, dict):
        return source
    if isinstance(source, dict) and isinstance(source.get("url"), str):
        known = {name: source[name] for name in ("url", "title", "start_index", "end_index", "cited_text") if name in source}
        return {"type": "citation"} | known
    return {"type": "non_standard_annotation", "value": source if isinstance(source, dict) else {"value": source}}


_WRITERS: Final[dict[str, Callable[[Block, dict[str, Any]], dict[str, Any] | None]]] = {
    "text": _write_text,
    "reasoning": _write_reasoning,
    "refusal": _write_refusal,
    "tool_call": _write_call,
    "server_tool_call": _write_call,
    "server_tool_result": _write_server_result,
    "media": _write_media,
    "redacted_reasoning": _write_kept,
    "provider": _write_kept,
}


def signers(blocks: tuple[Block, ...]) -> set[str]:
    """Who has signed something of these blocks."""
    return {signer_of(block) for block in blocks if block.signature is not None}
