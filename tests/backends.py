"""The stores under test; what a backend is, is in the kit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stream import EventStore
from stream.testing import Backend, MemoryBackend, SqliteBackend, flip

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["BACKENDS", "Backend", "Memory", "Sqlite", "Store", "flip"]

Store = EventStore


class Memory(MemoryBackend):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder


Sqlite = SqliteBackend
BACKENDS: dict[str, type[Memory | Sqlite]] = {"memory": Memory, "sqlite": Sqlite}
