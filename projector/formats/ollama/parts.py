"""What Ollama's messages say as blocks: thinking, text, images, calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from projector.formats.format import FormatError
from projector.formats.shared.blocks import media_block
from projector.formats.shared.fields import Fields, shown
from projector.formats.shared.history import text_block
from projector.formats.shared.payloads import opaque
from projector.json_text import JsonText, decode, is_json, join_fields
from projector.message import Block

if TYPE_CHECKING:
    from collections.abc import Callable

PROVIDER: Final = "ollama"
EXTRA: Final = "ollama"
"""Under this name a message's metadata holds the fields of it that have no other place."""
THINKING: Final = "thinking"
KNOWN: Final = ("role", "content", THINKING, "images", "tool_calls")
_IMAGES: Final = {"iVBORw0KGgo": "image/png", "/9j/": "image/jpeg", "R0lGOD": "image/gif", "UklGR": "image/webp"}
"""How base64 of images begins: Ollama does not say what they are."""
_OF_FUNCTION: Final = ("name", "arguments", "index")


def message_blocks(message: Fields, name_call: Callable[[str | None], str]) -> list[Block]:
    """What a message, or a piece of one, says. `name_call` gives a call its id. Raises `FormatError`."""
    thinking, text = message.maybe_text(THINKING), message.maybe_text("content")
    blocks = [Block("reasoning", text=thinking, sealed=True, provider_ref=THINKING)] if thinking else []
    blocks += [text_block(text)] if text else []
    blocks += [_image(item, place) for item, place in message.items("images")]
    return blocks + [_call(call, name_call) for call in message.objects("tool_calls")]


def _image(item: JsonText, place: str) -> Block:
    data = decode(item)
    if not isinstance(data, str):
        raise FormatError(f"{place}: an image in base64 was expected, not {shown(item)}")
    kind = next((kind for head, kind in _IMAGES.items() if data.startswith(head)), None)
    return replace(media_block(kind, data=data), provider_ref="image")


def _call(call: Fields, name_call: Callable[[str | None], str]) -> Block:
    """A call; its arguments are an object."""
    function = call.need("function")
    given = function.raw("arguments") or "{}"
    text = decode(given) if given.startswith('"') else None  # some programs keep them as text
    rest = call.rest("id", "type", "function") | function.rest(*_OF_FUNCTION)
    return Block(
        "tool_call",
        text=text or "",
        sealed=True,
        name=function.text("name"),
        tool_call_id=name_call(call.maybe_text("id")),
        input_text=None if text else given,
        parse="ok" if text is None or is_json(text) else "bad",
        opaque=opaque(PROVIDER, join_fields(rest)) if rest else None,
    )
