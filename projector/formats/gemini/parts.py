"""Blocks as the parts of Gemini's contents, and results of tools as its function responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from projector.formats.gemini.stream_reader import PROVIDER
from projector.formats.shared.payloads import media_of, part_block, payload_for
from projector.formats.shared.values import object_of, value_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from projector.message import Block

SHELL: Final = "gemini"
"""Metadata of a result: fields of its function response that have no other place."""
OUTPUT: Final = "output"
ERROR: Final = "error"
_CALL: Final = "functionCall"
_SIGNATURE: Final = "thoughtSignature"
_DATA: Final = (
    "text", "inlineData", "fileData", _CALL, "functionResponse", "executableCode", "codeExecutionResult", "toolCall",
    "toolResponse",
)  # fmt: skip
_OF_PIECES: Final = ("partialArgs", "willContinue")
_KEPT: Final = {
    "provider": ("text", "inlineData", "fileData", "executableCode", "codeExecutionResult", "toolCall", "toolResponse"),
    "server_tool_call": ("executableCode", "toolCall"),
    "server_tool_result": ("codeExecutionResult", "toolResponse"),
    "media": ("inlineData", "fileData"),
}
"""What a part that was kept as it came may be, by the kind of its block. Calls and their results are always written anew."""
OF_MODELS: Final = frozenset({"executableCode", "codeExecutionResult", "toolCall"})
"""Parts that are none of a user."""
_MEDIA: Final = {"inlineData": "data", "fileData": "fileUri"}


def write_part(block: Block) -> dict[str, Any] | None:
    """A sealed block as a part, such as it came where that was kept; None where it can't be said.

    A signature that the block still has is Gemini's.
    """
    kept = payload_of(block)
    said: dict[str, Any] | None = None
    match block.kind:
        case "text":
            said = kept if kept.get("text") == block.text else {"text": block.text}
        case "reasoning" if block.text or block.signature:
            said = kept if kept.get("text") == block.text else {"text": block.text, "thought": True}
        case "tool_call":
            said = {**(kept if _CALL in kept else {}), _CALL: _call(block, kept)}
        case "media":
            said = kept if is_kept(block, kept) else write_media(block)
        case "server_tool_call" | "server_tool_result" | "provider" if is_kept(block, kept):
            said = kept
    if said is None:
        return None
    return said | ({_SIGNATURE: block.signature} if block.signature else {})


def names_its_call(block: Block) -> bool:
    """Whether a call that was kept as it came had an id; one that was not kept gets ours."""
    kept = payload_of(block).get(_CALL)
    return not isinstance(kept, dict) or "id" in kept


def payload_of(block: Block) -> dict[str, Any]:
    """The part that a block keeps for Gemini; an empty one where that is no part."""
    kept = object_of(payload_for(block, PROVIDER))
    return kept if sum(kept.get(name) is not None for name in _DATA) == 1 else {}


def is_kept(block: Block, kept: Mapping[str, Any]) -> bool:
    """Whether a payload is a part of the kind that its block is."""
    return any(isinstance(kept.get(name), str if name == "text" else dict) for name in _KEPT[block.kind])


def write_media(block: Block) -> dict[str, Any] | None:
    """Media as a part; None without bytes of a known type and without an address."""
    media = media_of(block)
    if media.data is not None and media.media_type is not None:
        return {"inlineData": {"mimeType": media.media_type, "data": media.data}}
    if media.url is not None:
        typed = {"mimeType": media.media_type} if media.media_type else {}
        return {"fileData": typed | {"fileUri": media.url}}
    return None


def write_result(part: Mapping[str, Any]) -> tuple[Any, dict[str, Any] | None] | None:
    """A part of a result: what it says, or media that stand beside that; None where it can't be said."""
    block = part_block(part)
    kept = payload_of(block)
    if any(isinstance(kept.get(name), dict) for name in _MEDIA):
        return None, kept
    if block.kind == "media":
        media = write_media(block)
        return None if media is None else (None, media)
    if block.kind == "data" and block.text:
        value = value_of(block.text)
        return block.text if value is None else value, None
    if block.text or block.kind == "text":
        return block.text, None
    return None if "opaque" in part else (dict(part), None)


def _call(block: Block, kept: Mapping[str, Any]) -> dict[str, Any]:
    came = kept.get(_CALL)
    rest = {name: value for name, value in came.items() if name not in _OF_PIECES} if isinstance(came, dict) else {}
    return rest | {"name": block.name, "args": object_of(block.input_text or block.text or "{}")}
