"""What a message of a ChatGPT export says: each type of content as blocks, a call of a tool, and what it gave back.

Bytes of images and files are not in an export, only the names it has for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from projector.formats.shared.blocks import kept_block, part_kept, part_text
from projector.formats.shared.fields import Fields, is_whole, says_nothing
from projector.formats.shared.history import call_block, text_block
from projector.formats.shared.payloads import opaque
from projector.json_text import decode, dump
from projector.message import Block

if TYPE_CHECKING:
    from projector.json_text import JsonText

PROVIDER: Final = "chatgpt"
_TEXTS: Final = {
    "text": ("text",),
    "code": ("text",),
    "execution_output": ("text",),
    "reasoning_recap": ("content",),
    "user_editable_context": ("user_profile", "user_instructions"),
    "tether_quote": ("title", "text"),
    "tether_browsing_display": ("summary", "result"),
    "sonic_webpage": ("title", "text"),
    "system_error": ("name", "text"),
}
"""Where contents that are text have it, if not in `parts`."""
_TEXT_ALONE: Final = ({"content_type", "parts"}, {"content_type", "text"})
_POINTER: Final = "asset_pointer"


class Said(NamedTuple):
    """The blocks of a message, and what of it is not in the file or not understood."""

    blocks: tuple[Block, ...]
    losses: tuple[str, ...] = ()


def read_content(message: Fields) -> Said:
    """What a message says, with the files that are attached to it. Raises `FormatError`."""
    content = message.object("content")
    if content is None:
        return Said(())
    kind = content.maybe_text("content_type") or "text"
    blocks: list[Block] = []
    losses: list[str] = []
    if kind == "thoughts":
        blocks = [_thoughts(content)]
    elif "parts" in content:
        for item, place in content.items("parts"):
            blocks += [_part(item, place)] if item != '""' else []
    elif kind in _TEXTS:
        blocks = _text(content, kind)
    else:
        blocks = [kept_block(PROVIDER, content.source, kind)]
    blocks += _attachments(message, blocks)
    losses += [f"content of the type {block.provider_ref} is kept as it came" for block in blocks if block.kind == "provider"]
    missing = sum(block.kind == "media" for block in blocks)
    losses += [f"the bytes of {missing} images or files are not in the export"] if missing else []
    return Said(tuple(blocks), tuple(losses))


def read_call(message: Fields, recipient: str, ref: str) -> Said:
    """A message that is for a tool, as a call of it; a text that is no JSON stands inside an object, too."""
    said = read_content(message)
    text = "".join(block.text for block in said.blocks)
    rest = tuple(block for block in said.blocks if block.kind != "text")
    if is_whole(text) and isinstance(decode(text), dict):
        return Said((*rest, call_block(recipient, ref, text, is_json=True)), said.losses)
    given = dump({"input": text})
    call = Block("tool_call", text=text, sealed=True, name=recipient, tool_call_id=ref, input_text=given, parse="ok")
    return Said((*rest, call), said.losses)


def left_of(message: Fields, *, is_text: bool) -> dict[str, JsonText]:
    """The fields of a content that its blocks do not keep: those of a text are kept with it, those of a call or result not."""
    content = message.object("content")
    kind = (content.maybe_text("content_type") or "text") if content is not None else ""
    if content is None or kind == "thoughts":
        return {}
    if "parts" in content:
        placed: tuple[str, ...] = ("parts",)
    elif kind in _TEXTS and not is_text:
        placed = _TEXTS[kind]
    else:
        return {}
    return {name: text for name, text in content.rest("content_type", *placed).items() if not says_nothing(text)}


def result_parts(blocks: tuple[Block, ...]) -> JsonText:
    """What a tool said as the parts of its result."""
    return "[" + ",".join(map(_result_part, blocks)) + "]"


def _result_part(block: Block) -> JsonText:
    if block.kind == "text":
        return part_text(block.text)
    if block.kind == "media":
        known = {"kind": "media", "media_type": block.media_type, "name": block.name, **block.fields}
        return dump({name: value for name, value in known.items() if value is not None})
    return part_kept(PROVIDER, (block.opaque and Fields(block.opaque, "a payload").raw("payload")) or dump(block.text))


def _text(content: Fields, kind: str) -> list[Block]:
    said = "\n\n".join(text for name in _TEXTS[kind] if (text := content.maybe_text(name)))
    if not said:
        return []
    if content.names() in _TEXT_ALONE:
        return [text_block(said)]
    return [Block("text", text=said, sealed=True, opaque=opaque(PROVIDER, content.source))]


def _thoughts(content: Fields) -> Block:
    """What ChatGPT shows of its reasoning; it is not signed, so it is not sent back."""
    texts = []
    for thought in content.objects("thoughts"):
        texts += [text for name in ("summary", "content") if (text := thought.maybe_text(name))]
    return Block("reasoning", text="\n\n".join(texts), sealed=True, opaque=opaque(PROVIDER, content.source))


def _part(item: JsonText, place: str) -> Block:
    if item.startswith('"'):
        return text_block(str(decode(item)))
    part = Fields(item, place)
    kind = part.maybe_text("content_type") or "part"
    if (pointer := part.maybe_text(_POINTER)) is not None:
        return _media(pointer, kind, part.source)
    if (text := part.maybe_text("text")) is not None:
        return Block("text", text=text, sealed=True, opaque=opaque(PROVIDER, part.source))
    return kept_block(PROVIDER, part.source, kind)


def _attachments(message: Fields, blocks: list[Block]) -> list[Block]:
    """The files of a message that none of its parts points at."""
    about = message.object("metadata")
    shown = [block.fields.get("file_id", "") for block in blocks]
    found = []
    for attachment in about.objects("attachments") if about is not None else ():
        ref, media_type = attachment.maybe_text("id") or "", attachment.maybe_text("mimeType")
        media_type = media_type or attachment.maybe_text("mime_type")
        if not any(pointer.endswith(ref) for pointer in shown):
            found.append(_media(ref, "attachment", attachment.source, media_type, attachment.maybe_text("name")))
    return found


def _media(ref: str, kind: str, source: JsonText, media_type: str | None = None, name: str | None = None) -> Block:
    kept = opaque(PROVIDER, source)
    known = {"file_id": ref}
    return Block("media", sealed=True, media_type=media_type, name=name, provider_ref=kind, fields=known, opaque=kept)
