"""How long to wait before the next try: longer each time, never the same for all, and short again once it went well."""

from __future__ import annotations

import random
from typing import Final

FIRST_S: Final = 0.2
LONGEST_S: Final = 10.0


class Pauses:
    """The pauses of one follower, in seconds. Each lies between nothing and a limit that doubles, up to `LONGEST_S`."""

    def __init__(self) -> None:
        self._limit_s = FIRST_S

    def next_s(self, *, at_least_s: float = 0.0) -> float:
        """The next one. `at_least_s` is what the server asked for, and holds up to `LONGEST_S`."""
        limit_s, self._limit_s = self._limit_s, min(2 * self._limit_s, LONGEST_S)
        at_least_s = min(max(at_least_s, 0.0), LONGEST_S)
        # Never quite nothing: where each connection brings one event and then breaks, that is no loop without a pause.
        return at_least_s + random.uniform(0.05, 1.0) * limit_s  # noqa: S311 - jitter, no secret

    def reset(self) -> None:
        """It went well: the next one is short."""
        self._limit_s = FIRST_S
