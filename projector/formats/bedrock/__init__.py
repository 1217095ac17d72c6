"""Bedrock Converse: streams and histories, in and out."""

from __future__ import annotations

import re
from typing import Any, Final

from projector.formats.bedrock.reader import read
from projector.formats.bedrock.stream_reader import PROVIDER, BedrockStream
from projector.formats.bedrock.stream_writer import write_stream
from projector.formats.bedrock.writer import write
from projector.formats.format import Format


def _check(payload: Any) -> list[str]:
    from projector.formats.bedrock.validator import validate_bedrock  # noqa: PLC0415 - only who checks loads its rules

    return validate_bedrock(payload)


FORMAT: Final = Format(
    name="bedrock",
    maker=PROVIDER,
    stream=BedrockStream,
    read=read,
    write=write,
    write_stream=write_stream,
    streams_answers_only=True,
    check=_check,
    endpoint=re.compile(r"/converse(-stream)?$|/invoke(-with-response-stream)?$"),
    wants_object=True,
    wants_list=True,
)
