"""Chat Completions, as OpenAI and many others speak it: streams and histories, in and out."""

from __future__ import annotations

import re
from typing import Any, Final

from projector.formats.chat.parts import EXTRA, PROVIDER
from projector.formats.chat.reader import read
from projector.formats.chat.stream_reader import ChatStream
from projector.formats.chat.stream_writer import write_stream
from projector.formats.chat.writer import write
from projector.formats.format import Format
from projector.formats.shared.choices import take_apart


def _check(payload: Any) -> list[str]:
    from projector.formats.chat.validator import validate_chat  # noqa: PLC0415 - only who checks loads its rules

    return validate_chat(payload)


FORMAT: Final = Format(
    name="chat",
    maker=PROVIDER,
    metadata=EXTRA,
    stream=ChatStream,
    read=read,
    write=write,
    write_stream=write_stream,
    streams_answers_only=True,
    check=_check,
    endpoint=re.compile(r"/chat/completions$"),
    wants_list=True,
    choices=lambda chunk: take_apart(chunk, "choices", ("usage", "x_groq")),
)
