"""Every store that is broken on purpose is caught by the kit, by a case of the law it breaks; a sound one is not."""

from __future__ import annotations

import pytest

from stream.testing import CASES, MemoryBackend, check
from stream.testing.canaries import CANARIES, Canary

pytestmark = pytest.mark.anyio

QUICK = [case for case in CASES if "large" not in case.needs]


@pytest.mark.parametrize("canary", CANARIES, ids=lambda canary: canary.name.replace(" ", "_"))
async def test_a_canary_is_caught_by_a_case_of_its_law(canary: Canary) -> None:
    of_its_law = [case for case in QUICK if canary.law in case.laws]
    caught = [failure.case.name for failure in await check(canary.make_backend, of_its_law, limit_s=5)]
    print(f"{canary.name}: caught by {caught}")
    assert caught


async def test_a_sound_store_is_no_canary() -> None:
    assert await check(MemoryBackend, QUICK) == []
