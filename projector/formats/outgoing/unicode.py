"""Text that every provider can read: no lone surrogates, no NUL where it is refused."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from projector.json_text import JsonText

REPLACEMENT: Final = "\ufffd"
_ESCAPE: Final = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u([0-9a-fA-F]{4})|.)", re.DOTALL)
_SUSPECT: Final = re.compile(r"\\u(?:[dD][89a-fA-F]|0000)")


def mend_text(text: str, *, refuse_nul: bool) -> tuple[str, int]:
    """The text with each lone surrogate, and each NUL where it is refused, replaced; and how many there were."""
    count = 0
    if not text.isascii() and not _is_well_formed(text):
        joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")  # pairs become characters
        count = sum("\ud800" <= character <= "\udfff" for character in joined)
        text = joined.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if refuse_nul and "\0" in text:
        count += text.count("\0")
        text = text.replace("\0", REPLACEMENT)
    return text, count


def mend_json(text: JsonText, *, refuse_nul: bool) -> tuple[JsonText, int]:
    """The same for the strings inside JSON text; numbers, order and all other escapes stay as they were written."""
    text, count = mend_text(text, refuse_nul=False)
    if not _SUSPECT.search(text):
        return text, count

    def mend(found: re.Match[str]) -> str:
        nonlocal count
        code = int(found[1], 16) if found[1] else None
        if code is None or not (0xD800 <= code <= 0xDFFF or (code == 0 and refuse_nul)):
            return found[0]
        count += 1
        return "\\ufffd"

    return _ESCAPE.sub(mend, text), count


def _is_well_formed(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
