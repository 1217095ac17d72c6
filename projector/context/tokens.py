"""How much a message weighs: a quarter of its characters, or what a tokenizer says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from projector.json_text import InvalidJson, decode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from projector.message import Block, Message

_CHARACTERS: int = 4


class _Text(msgspec.Struct, tag_field="kind", tag="text"):
    """A part of a result that is text, which nearly all are."""

    text: str


_PARTS: Final = msgspec.json.Decoder(list[_Text])


class Tokenizer(Protocol):
    """Counts tokens of a text."""

    def __call__(self, text: str) -> int:
        """How many tokens."""
        ...


def estimate(text: str) -> int:
    """A token for each four characters (code points), rounded up."""
    return -(-len(text) // _CHARACTERS)


def tokens_of(messages: Iterable[Message], tokenizer: Tokenizer = estimate) -> int:
    """The sum over messages, each counted by itself; tool inputs and outputs in full."""
    if tokenizer is estimate:  # it needs lengths only
        return sum([-(-_length(message) // _CHARACTERS) for message in messages])
    return sum(tokenizer(content_of(message)) for message in messages)


def weight_of(message: Message, tokenizer: Tokenizer = estimate) -> int:
    """What one message weighs."""
    return -(-_length(message) // _CHARACTERS) if tokenizer is estimate else tokenizer(content_of(message))


def content_of(message: Message) -> str:
    """All that a message says, as text."""
    return "".join(_text(block) for block in message.blocks)


def _length(message: Message) -> int:
    length = 0
    for block in message.blocks:
        if block.kind == "tool_result":
            length += len(result_text(block))
        else:
            length += len(block.text or block.input or "")
    return length


def _text(block: Block) -> str:
    if block.kind == "tool_result":
        return result_text(block)
    return block.text or block.input or ""


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
