"""Cohere Chat, both versions: streams and histories, in."""

from __future__ import annotations

import re
from typing import Final

from projector.formats.cohere.parts import EXTRA, PROVIDER
from projector.formats.cohere.reader import read
from projector.formats.cohere.stream_reader import CohereStream
from projector.formats.format import Format

FORMAT: Final = Format(
    name="cohere",
    maker=PROVIDER,
    metadata=EXTRA,
    stream=CohereStream,
    read=read,
    endpoint=re.compile(r"/v[12]/chat$"),
    lists=("messages", "chat_history"),
    wants_list=True,
)
