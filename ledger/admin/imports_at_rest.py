"""The garbage collector does not look through what a command imports: that stays, and looking takes as long as importing."""

from __future__ import annotations

import gc
from typing import Final

_MANY: Final = 100_000
_USUAL: Final = gc.get_threshold()


def begin() -> None:
    """It hardly looks from now on."""
    gc.set_threshold(_MANY, *_USUAL[1:])


def end() -> None:
    """It looks as ever from now on, but not at what is there: a server lives long, and what it leaves is to go."""
    gc.freeze()
    gc.set_threshold(*_USUAL)
