"""Message histories of Pydantic AI, in and out."""

from __future__ import annotations

from typing import Final

from projector.formats.format import Format
from projector.formats.pydantic_ai.content import PROVIDER
from projector.formats.pydantic_ai.parts import SHELL
from projector.formats.pydantic_ai.reader import read
from projector.formats.pydantic_ai.writer import write

FORMAT: Final = Format(
    name="pydantic-ai",
    maker=PROVIDER,
    metadata=SHELL,
    read=read,
    write=write,
)
