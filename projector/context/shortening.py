"""Shorter texts for a message, never longer ones: its first characters, a summary, a stub."""

from __future__ import annotations

import json
import unicodedata
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from projector.context.facts import form_of, known_text
from projector.context.tokens import Tokenizer, estimate, result_text
from projector.context.tool_groups import calls_of
from projector.message import Block, Message

if TYPE_CHECKING:
    from collections.abc import Callable

_JOINER: Final = "\u200d"
FALLBACK_LENGTH: Final = 500
"""How many characters stay where no length is given and there is no summary."""


class Shortened(Message, frozen=True):
    """A message of a view whose text was shortened; its type keeps it from being shortened again."""


def first_n(text: str, n: int) -> str:
    """The first `n` characters (code points) and a marker that names how many are shown; the text if that is no shorter.

    The cut moves back where it would part what is seen as one sign: a surrogate pair, a base and its marks, a sequence of
    emoji, a flag. Raises `ValueError` unless `n` is above 0.
    """
    if not n > 0:
        raise ValueError(f"a length is above 0 characters, not {n}")
    if len(text) <= n:
        return text
    shown = _cut(text, n)
    marker = f"...\n\n[Compacted: showing first {shown} of {len(text)} characters. Agent can request expansion if needed.]"
    return text if shown + len(marker) >= len(text) else text[:shown] + marker


def with_marker(summary: str, original_length: int) -> str:
    """A summary as it stands in the view."""
    return f"[AI Summary of {original_length} chars. Agent can request full expansion if needed.]\n\n{summary}"


def stub_for(turns: int) -> str:
    """What stands for a result that expired at this age, in turns; it never changes with the turns after that."""
    return f"[result expired after {turns} turns]"


def saved(before: str, after: str, tokenizer: Tokenizer = estimate) -> int:
    """How many tokens the second text takes less, never below 0."""
    return max(0, tokenizer(before) - tokenizer(after))


def text_of(message: Message) -> str:
    """What can be shortened of it: a tool's result, or the texts of any other message."""
    return known_text(message, _text_of)


def shorten(message: Message, text: str) -> Message:
    """The message with another text, as long as that is shorter; its calls, media and reasoning stay.

    What a provider said of the old text (its signature, its citations, its own form) goes with it.
    """
    return message if len(text) >= len(text_of(message)) else put_text(message, text)


def put_text(message: Message, text: str) -> Message:
    """The message with another text, however long."""
    return form_of(message, text, _put_text, text)


def _text_of(message: Message) -> str:
    if message.role == "tool":
        return "".join(result_text(block) for block in message.blocks if block.kind == "tool_result")
    return message.text


def _put_text(message: Message, text: str) -> Shortened:
    kind, new = ("tool_result", _result) if message.role == "tool" else ("text", _said)
    fields = {name: getattr(message, name) for name in message.__struct_fields__}
    return Shortened(**{**fields, "blocks": _put(message.blocks, kind, text, new)})


def is_grouped(message: Message) -> bool:
    """Whether it is part of a tool group: a result, or a message with calls."""
    return message.role == "tool" or bool(calls_of(message))


def _put(blocks: tuple[Block, ...], kind: str, text: str, new: Callable[[Block, str], Block]) -> tuple[Block, ...]:
    """The first block of a kind gets the text, the others of it go."""
    kept: list[Block] = []
    is_there = False
    for block in blocks:
        if block.kind != kind:
            kept.append(block)
        elif not is_there:
            kept.append(new(block, text))
            is_there = True
    return tuple(kept)


def _said(block: Block, text: str) -> Block:
    return replace(block, text=text, signature=None, opaque=None, citations=())


def _result(block: Block, text: str) -> Block:
    return replace(block, text="", parts=json.dumps([{"kind": "text", "text": text}]), opaque=None)


def _cut(text: str, n: int) -> int:
    while n > 0 and _belongs_to_the_one_before(text, n):
        n -= 1
    return n


def _belongs_to_the_one_before(text: str, place: int) -> bool:
    """Whether a cut here would part what is seen as one sign."""
    before, after = text[place - 1], _sign(text[place : place + 2])
    if "\udc00" <= after <= "\udfff" and "\ud800" <= before <= "\udbff":
        return True
    if unicodedata.category(after).startswith("M") or _JOINER in (before, after):
        return True  # a mark or variation selector, or within a sequence of emoji
    if "\U0001f3fb" <= after <= "\U0001f3ff" or "\U000e0020" <= after <= "\U000e007f":
        return True  # a tone of skin, or the tags behind the flag of a region
    return _is_half_a_flag(after) and _letters_before(text, place) % 2 == 1


def _sign(text: str) -> str:
    """The first sign of a text, also where it is there as two surrogates."""
    if len(text) > 1 and "\ud800" <= text[0] <= "\udbff" and "\udc00" <= text[1] <= "\udfff":
        return text[:2].encode("utf-16", "surrogatepass").decode("utf-16")
    return text[0]


def _is_half_a_flag(sign: str) -> bool:
    return "\U0001f1e6" <= sign <= "\U0001f1ff"


def _letters_before(text: str, place: int) -> int:
    """How many halves of flags stand right before a place: they are pairs, counted from the first."""
    count = 0
    while place > 0:
        width = 2 if place > 1 and "\udc00" <= text[place - 1] <= "\udfff" else 1
        if not _is_half_a_flag(_sign(text[place - width : place])):
            break
        place -= width
        count += 1
    return count
