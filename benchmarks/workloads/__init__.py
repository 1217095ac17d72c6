"""The workloads, each in a file of its own, which says what is done and against what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from benchmarks.workloads import (
    agent,
    appends,
    branches,
    context,
    crash,
    disk,
    following,
    formats,
    long,
    many,
    memory,
    processes,
    reads,
    reconnect,
    replay,
    sweep,
    tail,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.measuring import Figure


class Workload(NamedTuple):
    """How it is measured, and its two sizes."""

    measure: Callable[[Any, Any], list[Figure]]
    full: Any
    smoke: Any


WORKLOADS: Final[dict[str, Workload]] = {
    module.__name__.rpartition(".")[2]: Workload(module.measure, module.FULL, module.SMOKE)
    for module in (
        agent, appends, replay, tail, branches, context, reads, long, disk, many, crash, reconnect, sweep, processes, memory,
        formats, following,
    )
}  # fmt: skip
