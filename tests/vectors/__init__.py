"""Runs the shared vectors through the real code: `python -m tests.vectors FOLDER`.

One module a topic, each with its own `OPS`; a case whose op nobody knows yet is skipped. Two topics may call
different things by one name: the name of the file tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.vectors import branches, budget, chain, compaction, delta, expiration, fold, log, retention

if TYPE_CHECKING:
    from collections.abc import Callable

TOPICS: Final[dict[str, dict[str, Callable[[dict[str, Any]], Any]]]] = {
    "log": log.OPS,
    "fold": fold.OPS,
    "branches": branches.OPS,
    "compaction": compaction.OPS,
    "retention": retention.OPS,
    "delta": delta.OPS,
    "budget": budget.OPS,
    "chain": chain.OPS,
    "expiration": expiration.OPS,
}


def find_op(topic: str, name: str) -> Callable[[dict[str, Any]], Any] | None:
    """The adapter of an op; any topic's for a file of another name."""
    if topic in KNOWN_FILES:
        return TOPICS.get(topic, {}).get(name)
    return next((ops[name] for ops in TOPICS.values() if name in ops), None)


KNOWN_FILES: Final = frozenset({*TOPICS, "expiration", "chain"})
