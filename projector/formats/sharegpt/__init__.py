"""ShareGPT, as data sets for training have it, in."""

from __future__ import annotations

from typing import Final

from projector.formats.format import Format
from projector.formats.sharegpt.reader import read

FORMAT: Final = Format(name="sharegpt", read=read, lists=("conversations",))
