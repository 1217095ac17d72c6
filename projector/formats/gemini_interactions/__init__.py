"""Gemini Interactions: streams and histories, in."""

from __future__ import annotations

import re
from typing import Final

from projector.formats.format import Format
from projector.formats.gemini_interactions.parts import EXTRA, PROVIDER
from projector.formats.gemini_interactions.reader import read
from projector.formats.gemini_interactions.stream_reader import InteractionsStream

FORMAT: Final = Format(
    name="gemini-interactions",
    maker=PROVIDER,
    metadata=EXTRA,
    stream=InteractionsStream,
    read=read,
    endpoint=re.compile(r"/interactions$"),
    lists=("input",),
    wants_list=True,
)
