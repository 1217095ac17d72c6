"""Rollouts of the Codex CLI, in."""

from __future__ import annotations

from typing import Final

from projector.formats.codex.reader import read
from projector.formats.format import Format
from projector.formats.shared.makers import OPENAI

FORMAT: Final = Format(name="codex", maker=OPENAI, read=read, is_of_lines=True)
