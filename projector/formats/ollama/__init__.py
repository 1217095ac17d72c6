"""Ollama Chat: streams and histories, in."""

from __future__ import annotations

import re
from typing import Final

from projector.formats.format import Format
from projector.formats.ollama.parts import EXTRA, PROVIDER
from projector.formats.ollama.reader import read
from projector.formats.ollama.stream_reader import OllamaStream

FORMAT: Final = Format(
    name="ollama",
    maker=PROVIDER,
    metadata=EXTRA,
    stream=OllamaStream,
    read=read,
    endpoint=re.compile(r"/api/chat$"),
    wants_list=True,
)
