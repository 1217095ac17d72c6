"""Results of tau-bench, in."""

from __future__ import annotations

from typing import Final

from projector.formats.format import Format
from projector.formats.tau_bench.reader import PROVIDER, read

FORMAT: Final = Format(
    name="tau-bench",
    maker=PROVIDER,
    read=read,
    is_of_lines=True,
)
