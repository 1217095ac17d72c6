"""All tests of this folder are `faults`; each gets its chances from a seed that is printed and can be set again."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.faults)


@pytest.fixture
def chance() -> random.Random:
    """Random choices of a test; `TAILFOLD_SEED=n` repeats a run."""
    seed = int(os.environ.get("TAILFOLD_SEED") or random.randrange(2**32))
    print(f"TAILFOLD_SEED={seed}")
    return random.Random(seed)
