"""Sessions of Claude Code, and what its command streams, in."""

from __future__ import annotations

from typing import Final

from projector.formats.claude_code.parts import PROVIDER
from projector.formats.claude_code.reader import read
from projector.formats.format import Format

FORMAT: Final = Format(
    name="claude-code",
    maker=PROVIDER,
    read=read,
    is_of_lines=True,
)
