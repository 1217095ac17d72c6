"""OpenAI Responses: streams and histories, in and out."""

from __future__ import annotations

import re
from typing import Any, Final

from projector.formats.format import Format
from projector.formats.responses.reader import read
from projector.formats.responses.stream_reader import ResponsesStream
from projector.formats.responses.stream_writer import write_stream
from projector.formats.responses.writer import write
from projector.formats.shared.openai_items import EXTRA, PROVIDER


def _check(payload: Any) -> list[str]:
    from projector.formats.responses.validator import validate_responses  # noqa: PLC0415 - only who checks loads its rules

    return validate_responses(payload)


FORMAT: Final = Format(
    name="responses",
    maker=PROVIDER,
    metadata=EXTRA,
    stream=ResponsesStream,
    read=read,
    write=write,
    write_stream=write_stream,
    streams_answers_only=True,
    check=_check,
    endpoint=re.compile(r"/responses$"),
    goes_on_from="previous_response_id",
    lists=("input", "output"),
    wants_list=True,
)
