"""Where ledgers of tests lie: the same laws hold in all of these places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.faults.sizes import FULL
from tests.nats_server import SharedNats
from tests.postgres_server import Shared

if TYPE_CHECKING:
    from pathlib import Path

PORTABLE: Final = pytest.param("postgres, portable", marks=pytest.mark.heavy)
LEDGERS: Final = ("memory", pytest.param("postgres", marks=pytest.mark.heavy), *([PORTABLE] if FULL else []))
"""Where most tests run: on a server when there is time."""
EVERYWHERE: Final = (
    "memory", "sqlite", "log elsewhere", "postgres",
    PORTABLE,
    pytest.param("postgres, log in a file", marks=pytest.mark.heavy),
    pytest.param("file, log on postgres", marks=pytest.mark.heavy),
)  # fmt: skip
"""Where those run that say most of a ledger."""


def place_of(name: str, folder: Path) -> tuple[str, str | None]:
    """The URLs of a ledger and of a log elsewhere; files are made in the folder, the rest on servers of these tests."""
    ledger, log = str(folder / "ledger.db"), str(folder / "log.db")
    match name:
        case "memory":
            return "memory:", None
        case "log elsewhere":
            return ledger, log
        case "postgres":
            return Shared.url(), None
        case "postgres, portable":
            return Shared.url("dialect=portable"), None
        case "postgres, log in a file":
            return Shared.url(), log
        case "file, log on postgres":
            return ledger, Shared.url()
        case "file, log on nats":
            return ledger, SharedNats.url("shards=3")
        case "postgres, log on nats":
            return Shared.url(), SharedNats.url("shards=3")
        case _:
            return ledger, None
