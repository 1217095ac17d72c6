"""Exports of ChatGPT (`conversations.json`), in."""

from __future__ import annotations

from typing import Final

from projector.formats.chatgpt.parts import PROVIDER
from projector.formats.chatgpt.reader import read
from projector.formats.format import Format

FORMAT: Final = Format(name="chatgpt", maker=PROVIDER, read=read, lists=("mapping",))
