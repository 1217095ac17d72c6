"""Sessions of pi, in."""

from __future__ import annotations

from typing import Final

from projector.formats.format import Format
from projector.formats.pi.reader import PROVIDER, read

FORMAT: Final = Format(
    name="pi",
    maker=PROVIDER,
    read=read,
    is_of_lines=True,
)
