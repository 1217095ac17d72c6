"""OpenAI Responses: streams and histories, in and out."""

from __future__ import annotations

import re
from typing import Final

from projector.formats.format import Format
from projector.formats.responses.reader import read
from projector.formats.responses.stream_reader import ResponsesStream
from projector.formats.responses.stream_writer import write_stream
from projector.formats.responses.validator import validate_responses
from projector.formats.responses.writer import write
from projector.formats.shared.openai_items import EXTRA, PROVIDER

FORMAT: Final = Format(
    name="responses",
    maker=PROVIDER,
    metadata=EXTRA,
    stream=ResponsesStream,
    read=read,
    write=write,
    write_stream=write_stream,
    streams_answers_only=True,
    check=validate_responses,
    endpoint=re.compile(r"/responses$"),
    lists=("input", "output"),
    wants_list=True,
)
