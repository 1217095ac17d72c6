"""The contract of an event store, over every store of ours, and random histories against the model."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

from stream import NewEvent, open_store
from stream.testing import CASES, Case, SqliteBackend, state_machine
from tests.backends import BACKENDS, SERVERS, Nats
from tests.faults.sizes import FULL

pytestmark = pytest.mark.anyio
LOOPS = {"asyncio": False, "uvloop": True}
ON_UVLOOP_TOO = ("stream.testing.contract.appending", "stream.testing.contract.disturbing", "stream.testing.contract.following")
AT_ONCE = [
    (name, "asyncio", f"stream.testing.contract.{module}")
    for name in ("postgres", "nats")
    for module in ("appending", "changing", "sharing")
]
"""What servers are asked by default."""
RUNS = [
    pytest.param(
        ("asyncio", {"use_uvloop": LOOPS[loop]}),
        name,
        case,
        id=f"{case.name}-{name}-{loop}",
        marks=pytest.mark.heavy if name in SERVERS and (name, loop, case.claim.__module__) not in AT_ONCE else (),
    )
    for case in CASES
    for name, make in BACKENDS.items()
    for loop in LOOPS
    if case.needs <= make.flags
    and (loop == "asyncio" or (case.claim.__module__ in ON_UVLOOP_TOO and (FULL or name != "memory")))  # it has no thread
]


@pytest.mark.parametrize(("anyio_backend", "name", "case"), RUNS)
async def test_the_contract(name: str, case: Case, tmp_path: Path) -> None:
    backend = BACKENDS[name](tmp_path)
    try:
        await case.run(backend)
    finally:
        await backend.close()


def test_no_case_is_left_out_by_every_store() -> None:
    for case in CASES:
        assert any(case.needs <= make.flags for make in BACKENDS.values())


def test_memory_is_asked_all_that_one_store_can_be_asked() -> None:
    """Known fault K44: the store that programs are tested with is no laxer than the one they run on."""
    assert [case.name for case in CASES if not case.needs <= BACKENDS["memory"].flags | {"share"}] == []
    assert BACKENDS["sqlite"].flags - BACKENDS["memory"].flags <= {"share"}


async def test_a_store_in_memory_opens_by_its_url() -> None:
    async with open_store("memory:") as store, open_store("memory:") as other:
        assert store.incarnation != other.incarnation
        await store.append("s", [NewEvent("t", b"x")])
        assert await other.read("s") == []


class TemporarySqlite(SqliteBackend):
    """A machine has no fixture that makes it a folder."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        super().__init__(Path(self._folder.name))

    async def close(self) -> None:
        await super().close()
        self._folder.cleanup()


TestSqliteAnswersAsMemoryDoes = state_machine(TemporarySqlite).TestCase
TestSqliteAnswersAsMemoryDoes.settings = settings(max_examples=25, stateful_step_count=25, deadline=None, print_blob=True)

TestNatsAnswersAsMemoryDoes = pytest.mark.heavy(state_machine(Nats).TestCase)
TestNatsAnswersAsMemoryDoes.settings = settings(max_examples=25, stateful_step_count=25, deadline=None, print_blob=True)
