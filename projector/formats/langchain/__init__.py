"""LangChain messages, in and out."""

from __future__ import annotations

from typing import Final

from projector.formats.format import Format
from projector.formats.langchain.parts import PROVIDER, SHELL
from projector.formats.langchain.reader import read
from projector.formats.langchain.writer import write

FORMAT: Final = Format(
    name="langchain",
    maker=PROVIDER,
    metadata=SHELL,
    read=read,
    write=write,
)
