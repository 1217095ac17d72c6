"""Trajectories of SWE-agent, in."""

from __future__ import annotations

from typing import Final

from projector.formats.format import Format
from projector.formats.swe_agent.reader import PROVIDER, read

FORMAT: Final = Format(
    name="swe-agent",
    maker=PROVIDER,
    read=read,
    lists=("history",),
)
