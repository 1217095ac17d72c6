"""What would steer a terminal, and how it is shown instead: nobody writes what a person reads but the program itself."""

from __future__ import annotations

import re
from typing import Final

_MARKS: Final = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufeff\ufff9-\ufffb"
_STEERING: Final = re.compile(f"[{_MARKS}]")
"""C0 but for new lines and tabs, DEL, C1, marks of direction, and separators and marks that no font shows."""
_STEERING_A_LINE: Final = re.compile(f"[\n\t{_MARKS}]")


def printable(text: str) -> str:
    """Text with all its lines, in which what would steer the terminal is shown as a sign, or as an escape."""
    return _STEERING.sub(_sign, text)


def one_line(text: str) -> str:
    """As `printable`, and what would begin a line or a column of its own is shown, too."""
    return _STEERING_A_LINE.sub(_sign, text)


def harmless_json(text: str) -> str:
    """The same JSON, in which what would steer a terminal is written as an escape."""
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _sign(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)  # the picture of a control character
    return "␡" if code == 0x7F else f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
