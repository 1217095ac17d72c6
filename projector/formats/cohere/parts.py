"""Content of Cohere's messages as blocks: text, thinking, the plan of a call, images, calls, citations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from projector.formats.shared.blocks import kept_block, part_data, part_kept, part_text
from projector.formats.shared.fields import Fields, is_whole, says_nothing
from projector.formats.shared.history import call_block, text_block
from projector.formats.shared.payloads import media_of, opaque
from projector.json_text import JsonText, join_fields
from projector.message import Block

if TYPE_CHECKING:
    from projector.message import BlockKind


PROVIDER: Final = "cohere"
EXTRA: Final = "cohere"
"""Under this name a message's metadata holds the fields of it that have no other place."""
PLAN: Final = "tool_plan"
TEXT_OF: Final = {"text": "text", "thinking": "thinking"}
KIND_OF: Final[dict[str, BlockKind]] = {"text": "text", "thinking": "reasoning"}
_OF_CALL: Final = ("id", "type", "index", "function")


def plan_block(text: str) -> Block:
    """What the model says it is about to do with its tools."""
    return Block("reasoning", text=text, sealed=True, provider_ref=PLAN)


def answer_blocks(message: Fields) -> list[Block]:
    """What an assistant's message says, its citations with what they belong to. Raises `FormatError`."""
    plan = message.maybe_text(PLAN)
    content = content_blocks(message)
    blocks = ([plan_block(plan)] if plan else []) + content
    for source in message.objects("citations"):
        at = cited_place(source, blocks, len(blocks) - len(content))
        if at is not None:
            blocks[at] = replace(blocks[at], citations=(*blocks[at].citations, citation(source.source)))
    return blocks + [read_call(call) for call in message.objects("tool_calls")]


def cited_place(source: Fields, blocks: list[Block], first: int) -> int | None:
    """The place of the block that a citation belongs to; the contents begin at `first`."""
    if source.maybe_text("type") == "PLAN":
        return 0 if first else None
    named = source.whole("content_index")
    if named is not None and 0 <= named < len(blocks) - first:
        return first + named
    return next((at for at in reversed(range(len(blocks))) if blocks[at].kind == "text"), None)


def citation(source: JsonText) -> JsonText:
    """A citation as a block keeps it."""
    return f'{{"kind":"citation","source":{source}}}'


def content_blocks(message: Fields) -> list[Block]:
    """The content of a message: text, or a list of parts. Raises `FormatError`."""
    if (message.raw("content") or "").startswith("["):
        return [read_part(part) for part in message.objects("content")]
    text = message.maybe_text("content")
    return [text_block(text)] if text else []


def read_part(part: Fields) -> Block:
    """One part of a message's content. Raises `FormatError`."""
    kind = part.maybe_text("type") or "text"
    rest = part.rest("type", kind)
    if kind in TEXT_OF:
        kept = opaque(PROVIDER, join_fields(rest)) if rest else None
        return Block(KIND_OF[kind], text=part.text(kind), sealed=True, opaque=kept)
    image = part.object(kind) if kind == "image_url" else None
    if image is None:
        return kept_block(PROVIDER, part.source, kind)
    more = rest | ({kind: join_fields(fields)} if (fields := image.rest("url")) else {})
    kept = opaque(PROVIDER, join_fields(more)) if more else None
    block = Block("media", sealed=True, provider_ref=kind, fields={"url": image.text("url")}, opaque=kept)
    return replace(block, media_type=media_of(block).media_type)


def read_call(call: Fields) -> Block:
    """A call of a tool. Raises `FormatError`."""
    function = call.need("function")
    text = function.maybe_text("arguments") or ""
    rest = call.rest(*_OF_CALL)
    block = call_block(function.text("name"), call.text("id"), text, is_json=is_whole(text))
    return replace(block, opaque=opaque(PROVIDER, join_fields(rest))) if rest else block


def result_parts(message: Fields) -> JsonText:
    """The content of a tool's message as the parts of a result. Raises `FormatError`."""
    if not (message.raw("content") or "").startswith("["):
        return f"[{part_text(message.maybe_text('content') or '')}]"
    return "[" + ",".join(map(_result_part, message.objects("content"))) + "]"


def extra(message: Fields, *known: str) -> dict[str, JsonText]:
    """Metadata of the fields that have no other place."""
    rest = {name: text for name, text in message.rest(*known).items() if not says_nothing(text)}
    return {EXTRA: join_fields(rest)} if rest else {}


def _result_part(part: Fields) -> JsonText:
    kind = part.maybe_text("type") or "text"
    if kind == "text":
        return part_text(part.text("text"))
    document = part.raw("document")
    return part_data(document) if kind == "document" and document is not None else part_kept(PROVIDER, part.source)
