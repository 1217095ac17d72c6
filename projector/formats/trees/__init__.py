"""Trees of messages, as OpenAssistant has them, in."""

from __future__ import annotations

from typing import Final

from projector.formats.format import Format
from projector.formats.trees.reader import read

FORMAT: Final = Format(
    name="trees",
    read=read,
    is_of_lines=True,
)
