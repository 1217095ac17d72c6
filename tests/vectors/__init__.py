"""Runs the shared vectors through the real code: `python -m tests.vectors FOLDER`.

One module a topic, each with its own `OPS`; a case whose op nobody knows yet is skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.vectors import fold, log

if TYPE_CHECKING:
    from collections.abc import Callable

OPS: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {**log.OPS, **fold.OPS}
