"""One store fixture over all backends; a backend brings its own way to be opened again."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest
import structlog
from hypothesis import settings

from ledger import open_ledger
from tests.backends import BACKENDS, PLACES, Backend, Store
from tests.fork_server import COMMANDS
from tests.ledger_places import LEDGERS, place_of
from tests.nats_server import SharedCluster, SharedNats
from tests.postgres_server import Shared

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from ledger import Ledger

# The tests start a thousand processes: none but the first compiles what it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# How long an example takes says more about who else is on the machine than about what is tested.
settings.register_profile("tailfold", deadline=None)
settings.load_profile("tailfold")


@pytest.fixture(autouse=True)
def _own_logs() -> None:
    """What one test does to the logs of the program is not there in the next."""
    structlog.reset_defaults()


@pytest.fixture(scope="session", autouse=True)
def _end_of_commands() -> Iterator[None]:
    """The server that runs commands ends with the tests."""
    yield
    COMMANDS.close()
    Shared.close()
    SharedNats.close()
    SharedCluster.close()


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """Plain asyncio; a module that gains by it asks for `uvloop` too."""
    return "asyncio", {"use_uvloop": False}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A module whose tests hold wherever a ledger lies says where, in `LEDGERS`; in memory, and on a server, all do."""
    own = hasattr(metafunc.module, "ledger") or any(
        mark.args[0] == "ledger" for mark in metafunc.definition.iter_markers("parametrize")
    )
    if "ledger" in metafunc.fixturenames and not own:
        metafunc.parametrize("ledger", getattr(metafunc.module, "LEDGERS", LEDGERS), indirect=True)


@pytest.fixture
async def ledger(request: pytest.FixtureRequest, tmp_path: Path, anyio_backend: object) -> AsyncIterator[Ledger]:
    """An empty one: in `memory`, in one `sqlite` file, or with its `log elsewhere`, on `postgres`, or half of it there."""
    del anyio_backend
    url, log = place_of(request.param, tmp_path)
    async with open_ledger(url, log=log) as opened:
        yield opened


@pytest.fixture(params=PLACES)
async def backend(request: pytest.FixtureRequest, tmp_path: Path, anyio_backend: object) -> AsyncIterator[Backend]:
    """The place a store lives in: `reopen` is the one hook of the contract."""
    del anyio_backend
    made = BACKENDS[request.param](tmp_path)
    yield made
    await made.close()


@pytest.fixture
async def store(backend: Backend) -> Store:
    return await backend.open()


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores, for tests wait: for disks, for processes, for time to pass."""
    return len(os.sched_getaffinity(0)) + 1
