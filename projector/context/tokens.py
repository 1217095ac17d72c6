"""How much a message weighs: a quarter of its characters, or what a tokenizer says, and so much for each image or file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from projector.context.facts import facts_of
from projector.json_text import InvalidJson, JsonText, decode
from projector.message import Block

if TYPE_CHECKING:
    from collections.abc import Iterable

    from projector.message import Message

_MEDIA: Final = "media"
_CHARACTERS: int = 4
IMAGE_TOKENS: Final = 1_500
"""What an image weighs where the tokenizer does not say: about what a large one costs at most providers."""
FILE_TOKENS: Final = 3_000
"""What any other file weighs (sound, a document): about two pages of text and picture."""
_IMAGES: Final = ("image", "input_image", "image_url")


class _Text(msgspec.Struct, gc=False, tag_field="kind", tag="text"):
    """A part of a result that is text, which nearly all are."""

    text: str


_PARTS: Final = msgspec.json.Decoder(list[_Text])


class Tokenizer(Protocol):
    """Counts tokens of a text.

    One that has a method `media(block) -> int`, too, says what an image or a file weighs (`MediaTokenizer`).
    """

    def __call__(self, text: str) -> int:
        """How many tokens."""
        ...


def estimate(text: str) -> int:
    """A token for each four characters (code points), rounded up."""
    return -(-len(text) // _CHARACTERS)


class MediaTokenizer(Tokenizer, Protocol):
    """Counts tokens of texts, and of images and files."""

    def media(self, block: Block) -> int:
        """How many tokens a media block takes; that of a tool's result is given as one, too."""
        ...


def tokens_of(messages: Iterable[Message], tokenizer: Tokenizer = estimate) -> int:
    """The sum over messages, each counted by itself; tool inputs and outputs in full, images and files by their weight."""
    if tokenizer is estimate:
        return sum([_estimated(message) for message in messages])
    return sum([weight_of(message, tokenizer) for message in messages])


def weight_of(message: Message, tokenizer: Tokenizer = estimate) -> int:
    """What one message weighs."""
    if tokenizer is estimate:
        return _estimated(message)
    return tokenizer(content_of(message)) + media_weight_of(message, tokenizer)


def media_weight_of(message: Message, tokenizer: Tokenizer = estimate) -> int:
    """What the images and files of a message weigh: what the tokenizer says, else 1,500 tokens an image, 3,000 a file."""
    weight = 0
    for block in message.blocks:
        if block.kind == "media":
            weight += _weight(block, tokenizer)
        elif block.kind == "tool_result" and block.parts is not None and _MEDIA in block.parts:
            weight += sum(_weight(one, tokenizer) for one in _media_in(block.parts))
    return weight


def _weight(block: Block, tokenizer: Tokenizer) -> int:
    counting = getattr(tokenizer, "media", None)
    if counting is not None:
        return int(counting(block))
    is_image = (block.media_type or "").startswith("image/") or block.provider_ref in _IMAGES
    return IMAGE_TOKENS if is_image else FILE_TOKENS


def _media_in(parts: JsonText) -> list[Block]:
    """The images and files among the parts of a result."""
    try:
        values = decode(parts)
    except InvalidJson:
        return []
    found = [one for one in values if isinstance(one, dict) and one.get("kind") == _MEDIA] if isinstance(values, list) else []
    return [
        Block(
            _MEDIA,
            sealed=True,
            media_type=one["media_type"] if isinstance(one.get("media_type"), str) else None,
            fields={name: value for name, value in one.items() if name != "kind" and isinstance(value, str)},
        )
        for one in found
    ]


def content_of(message: Message) -> str:
    """All that a message says, as text."""
    return "".join(_text(block) for block in message.blocks)


def _estimated(message: Message) -> int:
    """What `estimate` says of a message."""
    facts = facts_of(message)
    if facts.weight is None:
        facts.weight = _estimate(message)
    return facts.weight


def _estimate(message: Message) -> int:
    """It needs lengths only."""
    length = media = 0
    for block in message.blocks:
        kind = block.kind
        if kind == "tool_result":
            length += len(result_text(block))
            if _MEDIA in (block.parts or ""):
                media += sum([_weight(one, estimate) for one in _media_in(block.parts or "")])
            continue
        length += len(block.text or block.input_text or "")
        if kind == _MEDIA:
            media += _weight(block, estimate)
    return -(-length // _CHARACTERS) + media


def _text(block: Block) -> str:
    if block.kind == "tool_result":
        return result_text(block)
    return block.text or block.input_text or ""


def result_text(block: Block) -> str:
    """What a tool's result says: its texts, and anything else as the JSON it is."""
    text = block.parts or "[]"
    try:
        return "".join([part.text for part in _PARTS.decode(text)])
    except (msgspec.MsgspecError, UnicodeError):
        pass  # something else than texts, or what is refused there
    try:
        parts = decode(text)
    except InvalidJson:
        return block.parts or ""
    if not isinstance(parts, list):
        return block.parts or ""
    return "".join(
        part["text"] if isinstance(part, dict) and isinstance(part.get("text"), str) else json.dumps(part, ensure_ascii=False)
        for part in parts
    )
