"""Gemini GenerateContent: streams and histories, in and out."""

from __future__ import annotations

import re
from typing import Any, Final

from projector.formats.format import Format
from projector.formats.gemini.parts import SHELL
from projector.formats.gemini.reader import read
from projector.formats.gemini.stream_reader import PROVIDER, GeminiStream
from projector.formats.gemini.stream_writer import write_stream
from projector.formats.gemini.writer import write
from projector.formats.shared.choices import take_apart


def _check(payload: Any) -> list[str]:
    from projector.formats.gemini.validator import validate_gemini  # noqa: PLC0415 - only who checks loads its rules

    return validate_gemini(payload)


FORMAT: Final = Format(
    name="gemini",
    maker=PROVIDER,
    metadata=SHELL,
    stream=GeminiStream,
    read=read,
    write=write,
    write_stream=write_stream,
    streams_answers_only=True,
    check=_check,
    endpoint=re.compile(r":(stream)?[gG]enerateContent$"),
    lists=("contents",),
    wants_object=True,
    wants_list=True,
    choices=lambda chunk: take_apart(chunk, "candidates", ("usageMetadata", "promptFeedback")),
)
