"""How much a message weighs: a quarter of its characters, or what a tokenizer says (CONTEXT B)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Protocol

from projector.json import InvalidJson, decode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from projector.message import Block, Message

_CHARACTERS: int = 4


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
    return sum(tokenizer(content_of(message)) for message in messages)


def content_of(message: Message) -> str:
    """All that a message says, as text."""
    return "".join(_text(block) for block in message.blocks)


def _text(block: Block) -> str:
    if block.kind == "tool_result":
        return result_text(block)
    return block.text or block.input or ""


def result_text(block: Block) -> str:
    """What a tool's result says: its texts, and anything else as the JSON it is."""
    try:
        parts = decode(block.parts or "[]")
    except InvalidJson:
        return block.parts or ""
    if not isinstance(parts, list):
        return block.parts or ""
    return "".join(
        part["text"] if isinstance(part, dict) and isinstance(part.get("text"), str) else json.dumps(part, ensure_ascii=False)
        for part in parts
    )
