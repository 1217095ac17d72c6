"""JSON, and signs of drawings, that standard output can take, whatever its encoding is."""

from __future__ import annotations

import re
import sys
from typing import Final

from projector.json_text import dump

_NO_ASCII: Final = re.compile("[^\\x00-\\x7f]+")


def writable_json(line: str) -> str:
    """The same JSON, in ASCII where standard output has no signs for other writing."""
    try:
        line.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return _NO_ASCII.sub(lambda found: dump(found[0])[1:-1], line)
    return line


def drawn(sign: str, plain: str) -> str:
    """The sign, or what stands for it in ASCII where standard output has none for it."""
    try:
        sign.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return plain
    return sign
