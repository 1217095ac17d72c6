"""How much the fault suite does: a smoke size by default, all of it with `TAILFOLD_FAULTS=full`."""

from __future__ import annotations

import os
from typing import Final

FULL: Final = os.environ.get("TAILFOLD_FAULTS") == "full"


def size(*, smoke: int, full: int) -> int:
    return full if FULL else smoke
