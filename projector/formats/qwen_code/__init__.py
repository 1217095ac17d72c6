"""Sessions of Qwen Code, in."""

from __future__ import annotations

from typing import Final

from projector.formats.format import Format
from projector.formats.qwen_code.parts import PROVIDER
from projector.formats.qwen_code.reader import read

FORMAT: Final = Format(
    name="qwen-code",
    maker=PROVIDER,
    read=read,
    is_of_lines=True,
)
