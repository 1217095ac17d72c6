"""AI SDK UI messages: streams and histories, in and out."""

from __future__ import annotations

from typing import Final

from projector.formats.ai_sdk.parts import PROVIDER, SHELL
from projector.formats.ai_sdk.reader import read
from projector.formats.ai_sdk.stream_reader import AiSdkStream
from projector.formats.ai_sdk.stream_writer import write_stream
from projector.formats.ai_sdk.writer import write
from projector.formats.format import Format

FORMAT: Final = Format(
    name="ai-sdk",
    maker=PROVIDER,
    metadata=SHELL,
    stream=AiSdkStream,
    read=read,
    write=write,
    write_stream=write_stream,
    streams_answers_only=True,
)
