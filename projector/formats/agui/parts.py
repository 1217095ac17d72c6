"""Content of AG-UI messages as blocks and parts, and back: text, media by bytes, address or file.

Source: the AG-UI 1.0 schema.
"""

from __future__ import annotations

from typing import Any, Final

from projector.formats.format import FormatError
from projector.formats.shared.blocks import part_data
from projector.formats.shared.fields import Fields, items_of, shown
from projector.formats.shared.history import text_block, text_parts
from projector.formats.shared.payloads import media_of, opaque, part_block, payload_for
from projector.json_text import JsonText, decode, dump, join_fields, plain, split
from projector.message import Block

PROVIDER: Final = "ag-ui"
SHELL: Final = "ag-ui"
"""Metadata of a message that came from AG-UI: of each of its messages there the id, and what our fields do not say."""
ACTIVITY: Final = "activity"
ANSWER: Final = ("assistant", "reasoning")
NO_ARGUMENTS: Final = "{}"
_MEDIA: Final = ("image", "audio", "video", "document")
_SOURCES: Final = {"data": "data", "url": "url", "file": "file_id"}
_ANY_TYPE: Final = "application/octet-stream"


def content_blocks(message: Fields) -> list[Block]:
    """What a message says: one block for text that is not empty, or one for each part. Raises `FormatError`."""
    content = message.raw("content")
    if content is not None and content.startswith("["):
        return [_block(Fields(item, place)) for item, place in message.items("content")]
    text = message.maybe_text("content")
    return [text_block(text)] if text else []


def content_shell(message: Fields) -> dict[str, JsonText]:
    """What the blocks do not say of the form of a content: that it was empty text, or a list where text would do."""
    content = message.raw("content")
    if content == '""':
        return {"content": content}
    if content is not None and content.startswith("["):
        kinds = {decode(split(item).get("type", "null")) for item, _ in message.items("content")}
        return {"content": "[]"} if kinds <= {"text"} else {}
    return {}


def content_parts(message: Fields) -> JsonText:
    """A tool's content as the parts of a result."""
    content = message.raw("content")
    if content is not None and content.startswith("["):
        return "[" + ",".join(_part(_block(Fields(item, place))) for item, place in message.items("content")) + "]"
    return text_parts(message.maybe_text("content") or "")


def any_parts(content: JsonText, place: str) -> JsonText:
    """The parts of what an event gives as a result: text, a list of parts, or any other JSON, which is kept."""
    if content.startswith("[") and all(item.startswith("{") for item in items_of(content, place)):
        try:
            return content_parts(Fields(f'{{"content":{content}}}', place))
        except FormatError:
            pass
    value = decode(content)
    return text_parts(value) if isinstance(value, str) else f"[{part_data(content)}]"


def write_content(blocks: list[Block], shell: dict[str, Any]) -> Any:
    """Blocks of text and media as a content; None for media that nobody can find."""
    content = [_write_part(block) for block in blocks]
    if None in content:
        return None
    is_plain = all(part is not None and part.keys() == {"type", "text"} for part in content)
    if is_plain and shell.get("content") != []:
        return "".join(block.text for block in blocks)
    return content


def result_blocks(block: Block) -> list[Block]:
    """The parts of a result as blocks of text and media; other JSON as its text; what only its maker reads as it is."""
    blocks = []
    for text in items_of(block.parts or "[]", "parts"):
        part = plain(text)
        made = part_block(part) if isinstance(part, dict) else text_block(part if isinstance(part, str) else text)
        is_text = made.kind not in ("text", "media") and (made.kind != "provider" or bool(made.text))
        blocks.append(text_block(made.text) if is_text else made)
    return blocks


def _block(part: Fields) -> Block:
    kind = part.text("type")
    rest = part.rest("type", "text", "source")
    if kind == "text":
        return Block("text", text=part.text("text"), sealed=True, opaque=_keep(rest))
    if kind == "binary":  # before 1.0
        known = {"data": part.maybe_text("data"), "url": part.maybe_text("url"), "name": part.maybe_text("filename")}
        fields = {name: text for name, text in known.items() if text}
        return Block("media", sealed=True, media_type=part.maybe_text("mimeType"), fields=fields)
    if kind not in _MEDIA:
        raise part.wrong(f"a part is text, image, audio, video or document, not {shown(part.raw('type') or '')}")
    source = part.need("source")
    form = _SOURCES.get(source.text("type"))
    if form is None:
        raise source.wrong('"type" should be data, url or file')
    rest |= {"source": join_fields(more)} if (more := source.rest("type", "value", "mimeType")) else {}
    fields = {form: source.text("value")}
    return Block(
        "media", sealed=True, media_type=source.maybe_text("mimeType"), provider_ref=kind, fields=fields, opaque=_keep(rest)
    )


def _keep(rest: dict[str, JsonText]) -> JsonText | None:
    return opaque(PROVIDER, join_fields(rest)) if rest else None


def _part(block: Block) -> JsonText:
    fields = {"kind": dump(block.kind)} | ({"text": dump(block.text)} if block.kind == "text" else {})
    fields |= {"media_type": dump(block.media_type)} if block.media_type else {}
    fields |= {name: dump(value) for name, value in block.fields.items()}
    return join_fields(fields | ({"opaque": block.opaque} if block.opaque else {}))


def _write_part(block: Block) -> dict[str, Any] | None:
    rest: dict[str, Any] = plain(payload_for(block, PROVIDER) or "{}")
    if block.kind == "text":
        return {"type": "text", "text": block.text} | rest
    media = media_of(block)
    sort = (media.media_type or "").partition("/")[0]
    kind = (
        block.provider_ref
        if block.provider_ref in _MEDIA
        else sort
        if sort in _MEDIA
        else "image"
        if media.is_image
        else "document"
    )
    more = rest.pop("source", {})
    found = next((form for form, name in _SOURCES.items() if getattr(media, name)), None)
    if found is None:
        return None
    source = {"type": found, "value": getattr(media, _SOURCES[found])} | (more if isinstance(more, dict) else {})
    kind_of = media.media_type or (_ANY_TYPE if found == "data" else None)
    return {"type": kind, "source": source | ({"mimeType": kind_of} if kind_of else {})} | rest
