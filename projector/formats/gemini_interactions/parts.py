"""Steps and contents of Gemini's Interactions: what kind of block each is, media, results of functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from projector.formats.shared.blocks import kept_block, media_block, part_data, part_kept, part_media, part_text
from projector.formats.shared.fields import Fields, says_nothing
from projector.formats.shared.history import text_block
from projector.json_text import dump, split

if TYPE_CHECKING:
    from projector.json_text import JsonText
    from projector.message import Block

PROVIDER: Final = "google-interactions"
"""Signatures and payloads of this interface are not those of `generateContent`."""
EXTRA: Final = "google-interactions"
"""Under this name a message's metadata holds the fields of a result that have no other place."""
MEDIA: Final = ("image", "audio", "video", "document")
OUTPUT: Final = "model_output"
THOUGHT: Final = "thought"
CALL: Final = "function_call"
RESULT: Final = "function_result"
INPUT: Final = "user_input"
OF_MODELS: Final = (OUTPUT, THOUGHT, CALL)
_OF_MEDIA: Final = {"type", "data", "uri", "mime_type"}


def kind_of(step: str) -> Any:
    """The kind of block that a step becomes which is no text and no media."""
    if step in (THOUGHT, CALL):
        return {THOUGHT: "reasoning", CALL: "tool_call"}[step]
    return "server_tool_call" if step.endswith("_call") else "server_tool_result" if step.endswith("_result") else "provider"


def content_block(content: Fields) -> Block:
    """A content that came whole. Raises `FormatError`."""
    kind = content.maybe_text("type") or "text"
    if kind == "text" and content.names() <= {"type", "text", "annotations"}:
        return text_block(content.text("text"))
    if kind in MEDIA and content.names() <= _OF_MEDIA:
        named = content.maybe_text("mime_type"), content.maybe_text("data"), content.maybe_text("uri")
        return media_block(named[0] or kind, data=named[1], url=named[2])
    return kept_block(PROVIDER, content.source, kind)


def citation(annotation: JsonText) -> JsonText:
    """An annotation of a text as a citation."""
    return f'{{"kind":{split(annotation).get("type", "null")},"source":{annotation}}}'


def summary_text(content: JsonText) -> str:
    """What a part of a thought's summary says; nothing where it is no text."""
    return Fields(content, "a summary").maybe_text("text") or ""


def result_parts(result: Fields) -> JsonText:
    """What a function gave, as parts: text, contents, or a value. Raises `FormatError`."""
    given = result.raw("result") or "null"
    if given.startswith("["):
        return "[" + ",".join(_result_part(text, place) for text, place in result.items("result")) + "]"
    if given.startswith('"'):
        return f"[{part_text(result.text('result'))}]"
    return "[]" if says_nothing(given) and given != "{}" else f"[{part_data(given)}]"


def result_status(result: Fields) -> Any:
    """Whether it failed."""
    return "error" if result.is_true("is_error") else "ok"


def _result_part(text: JsonText, place: str) -> JsonText:
    if not text.startswith("{"):
        return part_data(text)
    block = content_block(Fields(text, place))
    if block.kind == "text":
        return part_text(block.text)
    if block.kind == "media":
        return part_media(block.media_type, data=block.fields.get("data"), url=block.fields.get("url"))
    return part_kept(PROVIDER, text)


def as_interaction(steps: list[JsonText]) -> JsonText:
    """Steps of a model as an interaction that came whole."""
    return f'{{"object":"interaction","status":"completed","steps":[{",".join(steps)}]}}'


def content_step(content: JsonText) -> JsonText:
    """Text as a step of a model."""
    return dump({"type": OUTPUT, "content": [{"type": "text", "text": content}]})
