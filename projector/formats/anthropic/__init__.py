"""Anthropic Messages: streams and histories, in and out."""

from __future__ import annotations

import re
from typing import Final

from projector.formats.anthropic.parts import PROVIDER, SHELL
from projector.formats.anthropic.reader import read
from projector.formats.anthropic.stream_reader import AnthropicStream
from projector.formats.anthropic.stream_writer import write_stream
from projector.formats.anthropic.validator import validate_anthropic
from projector.formats.anthropic.writer import write
from projector.formats.format import Format

FORMAT: Final = Format(
    name="anthropic",
    maker=PROVIDER,
    metadata=SHELL,
    stream=AnthropicStream,
    read=read,
    write=write,
    write_stream=write_stream,
    streams_answers_only=True,
    check=validate_anthropic,
    endpoint=re.compile(r"/v1/messages$|/invoke$|:(rawPredict|streamRawPredict)$"),
    reads_answers=True,
)
