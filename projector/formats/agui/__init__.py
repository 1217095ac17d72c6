"""AG-UI: events and messages, in and out."""

from __future__ import annotations

from typing import Final

from projector.formats.agui.parts import PROVIDER, SHELL
from projector.formats.agui.reader import read
from projector.formats.agui.stream_reader import AguiStream
from projector.formats.agui.stream_writer import write_stream
from projector.formats.agui.writer import write
from projector.formats.format import Format

FORMAT: Final = Format(
    name="agui",
    maker=PROVIDER,
    metadata=SHELL,
    stream=AguiStream,
    read=read,
    write=write,
    write_stream=write_stream,
    wants_list=True,
)
