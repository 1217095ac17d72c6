"""Anthropic Messages: streams and histories, in and out."""

from __future__ import annotations

import re
from typing import Any, Final

from projector.formats.anthropic.parts import PROVIDER, SHELL
from projector.formats.anthropic.reader import read
from projector.formats.anthropic.stream_reader import AnthropicStream
from projector.formats.anthropic.stream_writer import write_stream
from projector.formats.anthropic.writer import write
from projector.formats.format import Format


def _check(payload: Any) -> list[str]:
    from projector.formats.anthropic.validator import validate_anthropic  # noqa: PLC0415 - only who checks loads its rules

    return validate_anthropic(payload)


FORMAT: Final = Format(
    name="anthropic",
    maker=PROVIDER,
    metadata=SHELL,
    stream=AnthropicStream,
    read=read,
    write=write,
    write_stream=write_stream,
    streams_answers_only=True,
    check=_check,
    endpoint=re.compile(r"/v1/messages$|/invoke(-with-response-stream)?$|:(rawPredict|streamRawPredict)$"),
    reads_answers=True,
)
