"""Gemini GenerateContent: streams and histories, in."""

from __future__ import annotations

import re
from typing import Final

from projector.formats.format import Format
from projector.formats.gemini.reader import read
from projector.formats.gemini.stream_reader import PROVIDER, GeminiStream
from projector.formats.shared.choices import take_apart

FORMAT: Final = Format(
    name="gemini",
    maker=PROVIDER,
    stream=GeminiStream,
    read=read,
    endpoint=re.compile(r":(stream)?[gG]enerateContent$"),
    lists=("contents",),
    wants_object=True,
    wants_list=True,
    choices=lambda chunk: take_apart(chunk, "candidates", ("usageMetadata", "promptFeedback")),
)
