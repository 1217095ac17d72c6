"""The one clock of the view: how many prompts were sent before, and how old a result is by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from projector.context.policies import ExpirationPolicy


def count_prompts(steps: Iterable[tuple[str, str]], runs: Collection[str]) -> int:
    """The turn that comes next: how many steps, as (run, phase), have started in the runs on the path."""
    return sum(1 for run, phase in steps if phase == "started" and run in runs)


def has_expired(policy: ExpirationPolicy, age: int) -> bool:
    """Whether a result of this age, in turns, is over; it lives while its age is not above `turns`."""
    return policy.mode != "none" and policy.turns is not None and age > policy.turns
