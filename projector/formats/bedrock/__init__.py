"""Bedrock Converse: streams and histories, in."""

from __future__ import annotations

import re
from typing import Final

from projector.formats.bedrock.reader import read
from projector.formats.bedrock.stream_reader import PROVIDER, BedrockStream
from projector.formats.format import Format

FORMAT: Final = Format(
    name="bedrock",
    maker=PROVIDER,
    stream=BedrockStream,
    read=read,
    endpoint=re.compile(r"/converse(-stream)?$|/invoke(-with-response-stream)?$"),
    wants_object=True,
    wants_list=True,
)
