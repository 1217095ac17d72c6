"""Text in lines that fit: broken between words, and never within what is copied as a whole."""

from __future__ import annotations

import re
from typing import Final

from rich.cells import cell_len

_BEGIN: Final = re.compile(r"\s*(?:(?:[-*•]|\d{1,3}[.)])\s+)?")
_WORDS: Final = re.compile(r"\s*\S+")


def wrapped(text: str, width: int) -> list[str]:
    """The lines of a text, each of at most `width` columns.

    A word that is wider stays whole, but for writing that has no spaces. What a line begins with (spaces, the mark of a
    list) is kept, and what follows is put below what it begins.
    """
    return [piece for line in text.split("\n") for piece in _broken(line.rstrip(), max(width, 1))]


def _broken(line: str, width: int) -> list[str]:
    if cell_len(line) <= width:
        return [line]
    found = _BEGIN.match(line)
    begin = found[0] if found and cell_len(found[0]) <= width // 2 else ""
    rest, indent = line[len(begin) :], " " * cell_len(begin)
    lines, now = [], begin
    for word in _WORDS.findall(rest):
        bare = word.lstrip()
        is_first = now in (begin, indent)
        if cell_len(now) + cell_len(bare if is_first else word) <= width:
            now += bare if is_first else word
            continue
        if not is_first:
            lines.append(now)
            now = indent
        for sign in _cut(bare, width - cell_len(indent)):
            if now not in (begin, indent):
                lines.append(now)
                now = indent
            now += sign
    return [*lines, now]


def _cut(word: str, width: int) -> list[str]:
    """A word without spaces as it is, but for Chinese, Japanese and what else is written without them."""
    if cell_len(word) <= width or cell_len(word) <= len(word) * 1.25:
        return [word]
    pieces, now = [], ""
    for sign in word:
        if now and cell_len(now + sign) > width:
            pieces.append(now)
            now = ""
        now += sign
    return [*pieces, now]
