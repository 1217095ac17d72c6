"""`check` says what does not hold, whatever a store does, and asks a store no more than its flags say."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any, Never

import anyio
import pytest

from stream.limits import Limits, check_events
from stream.memory import MemoryStore
from stream.testing import CASES, MemoryBackend, check
from stream.testing.case import LAWS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stream import AppendResult, NewEvent
    from stream.testing.backend import Flag

pytestmark = pytest.mark.anyio
FEW = CASES[:3]
LIMITS = Limits(1 << 20, 1000, 1 << 20)


class _Limited(MemoryStore):
    def __init__(self, *, clock_ms: Callable[[], int]) -> None:
        super().__init__(clock_ms=clock_ms)
        self.limits = LIMITS

    async def append(self, stream_id: str, events: Sequence[NewEvent], **options: Any) -> AppendResult:
        check_events(events, limits=LIMITS)
        return await super().append(stream_id, events, **options)


class LimitedBackend(MemoryBackend):
    flags: frozenset[Flag] = frozenset()

    def make(self, clock_ms: Callable[[], int]) -> MemoryStore:
        return _Limited(clock_ms=clock_ms)

    async def damage_snapshot(self, stream_id: str, projector: str, last_seq: int) -> Never:
        raise NotImplementedError


async def test_a_store_with_small_limits_is_not_asked_for_more() -> None:
    assert await check(LimitedBackend) == []


class HangingBackend(MemoryBackend):
    async def open(self, **_: Any) -> Never:
        await anyio.sleep_forever()
        raise AssertionError


async def test_a_case_that_hangs_fails_and_the_next_one_runs() -> None:
    failures = await check(HangingBackend, FEW, limit_s=0.01)
    assert [failure.case for failure in failures] == FEW
    assert {type(failure.error) for failure in failures} == {TimeoutError}


class UnclosableBackend(MemoryBackend):
    async def close(self) -> Never:
        raise OSError("the disk is gone")


async def test_a_store_that_cannot_be_closed_fails_every_case() -> None:
    failures = await check(UnclosableBackend, FEW)
    assert [failure.case for failure in failures] == FEW
    assert {type(failure.error) for failure in failures} == {OSError}


async def test_every_backend_is_closed_also_after_a_failure() -> None:
    closed = []

    class Counting(HangingBackend):
        async def close(self) -> None:
            closed.append(self)

    await check(Counting, FEW, limit_s=0.01)
    assert len(closed) == 3


def test_names_of_cases_are_unique_and_each_names_a_law() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert all(case.laws and set(case.laws) <= set(LAWS) for case in CASES)


def test_a_program_does_not_need_the_kit_to_use_a_store() -> None:
    loaded = (
        "import sys, stream, stream.sqlite; print([m for m in sys.modules if m in ('pytest', 'hypothesis', 'stream.testing')])"
    )
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
