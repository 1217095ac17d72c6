"""Every store that is broken on purpose is caught by the kit, by a case of the law it breaks; a sound one is not."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from stream.testing import CASES, MemoryBackend, check, state_machine
from stream.testing.canaries import CANARIES, Canary, SharedMemory

QUICK = [case for case in CASES if "large" not in case.needs]
NEEDS_A_CANCEL = {"torn batch"}
NEEDS_ANOTHER_STORE = {"stopped deletion", "order by clocks"}
FOR_MACHINES = [  # one store, one loop, no fork
    canary for canary in CANARIES if canary.name not in NEEDS_A_CANCEL | NEEDS_ANOTHER_STORE and canary.law != 16
]
RARELY_FOUND = {"deletion that is not told", "deletion of what came since", "version that is lost"}  # after seconds
UNTIL_FOUND = settings(
    max_examples=500,
    stateful_step_count=50,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


def named(canary: Canary) -> str:
    return canary.name.replace(" ", "_")


@pytest.mark.anyio
@pytest.mark.parametrize("canary", CANARIES, ids=named)
@pytest.mark.heavy
async def test_a_canary_is_caught_by_the_case_that_names_its_fault(canary: Canary) -> None:
    naming = [case for case in QUICK if case.claim.__name__ == canary.caught_by]
    assert naming
    assert all(canary.law in case.laws for case in naming)
    failures = await check(canary.make_backend, naming, limit_s=20)
    print(f"{canary.name}: {[(failure.case.name, repr(failure.error)) for failure in failures]}")
    assert failures
    assert not [failure for failure in failures if isinstance(failure.error, TimeoutError)]


@pytest.mark.parametrize(
    "canary",
    [
        pytest.param(canary, id=named(canary), marks=[pytest.mark.heavy] if canary.name in RARELY_FOUND else [])
        for canary in FOR_MACHINES
    ],
)
def test_a_canary_does_not_survive_random_histories(canary: Canary) -> None:
    with pytest.raises(AssertionError):
        run_state_machine_as_test(state_machine(canary.make_backend), settings=UNTIL_FOUND)


@pytest.mark.anyio
async def test_a_sound_store_is_no_canary() -> None:
    assert await check(MemoryBackend, QUICK) == []


@pytest.mark.anyio
async def test_a_sound_store_that_is_shared_is_no_canary() -> None:
    assert await check(SharedMemory, [case for case in QUICK if "share" in case.needs]) == []


def test_each_law_that_one_store_can_break_has_a_canary() -> None:
    assert {canary.law for canary in CANARIES} == {law for case in CASES if "share" not in case.needs for law in case.laws}
