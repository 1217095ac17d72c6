"""What we set out to reach, and whether a run reached it; a missed target is told, and fails nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.measuring import Figure


class Target(msgspec.Struct, frozen=True):
    """A bound on the median of one figure."""

    what: str
    figure: str
    is_met_by: Literal["at least", "at most"]
    bound: float


class Verdict(msgspec.Struct, frozen=True):
    """`measured` and `met` are None where the figure was not taken."""

    target: Target
    measured: float | None
    met: bool | None


TARGETS: Final = (
    Target("1 appender, k = 1, of raw one-row commits, uvloop", "appends.uvloop.w1.k1.raw", "at least", 0.5),
    Target("1 appender, k = 1, of raw one-row commits, asyncio", "appends.asyncio.w1.k1.raw", "at least", 0.45),
    Target("100 appenders, k = 1, of raw 100-row transactions, uvloop", "appends.uvloop.w100.k1.raw", "at least", 0.85),
    Target("100 appenders, k = 1, of raw 100-row transactions, asyncio", "appends.asyncio.w100.k1.raw", "at least", 0.75),
    Target("100 appenders, k = 1, of the best peer with 100 writers", "appends.uvloop.w100.k1.best", "at least", 12),
    Target("100 appenders, k = 20, of that raw, in events", "appends.uvloop.w100.k20.raw", "at least", 4),
    Target("replay, k = 1, packed and compressed, of raw scan + decode", "replay.k1.read", "at least", 1),
    Target("replay, k = 20, rows of their own, of raw scan + decode", "replay.k20.read", "at least", 1.2),
    Target("tail of 100 behind 1 M, of behind 1 k", "tail.read", "at most", 1.5),
    Target("warm start behind 1 M, of behind 1 k", "tail.warm_start", "at most", 1.5),
    Target("branch switch beside 20,000 messages, of beside 100", "branches.select", "at most", 1.5),
    Target("view by selections beside 20,000 messages, of beside 100", "branches.selections", "at most", 1.5),
    Target("warm start behind 100,000 messages, of behind 1,000", "branches.warm_start", "at most", 1.5),
    Target("20 conversations listed, of 50,000, of 1,000", "many.conversations", "at most", 1.5),
    Target("a run found in 50,000 conversations, of in 1,000", "many.find_run", "at most", 1.5),
    Target("open runs listed in 50,000 conversations, of in 1,000", "many.runs", "at most", 1.5),
    Target("1,000 turns with tools: file, compacted, of text", "long.compacted", "at most", 1.0),
    Target("pi-mono: file, compacted, of text", "disk.pi-mono", "at most", 1.1),
    Target("tau-bench: file, compacted, of text", "disk.tau-bench", "at most", 1.3),
    Target("1,000 turns with tools: file, every event kept, of text", "long.kept", "at most", 6),
    Target("p95 of a turn at turn 1,000, of at turn 10", "long.p95", "at most", 1.5),
    Target("from a kill to the next run in 1 GB, of in 1 MB", "crash.ready", "at most", 1.5),
    Target("append p99 while 1 M events are swept, of idle", "sweep.p99", "at most", 5),
    Target("peak memory of a replay of 1 M, of 10 k", "memory.replay", "at most", 1.1),
    Target("memory of 1,000 followers that wait, of the echo's and 50 kB", "following.memory", "at most", 1),
    Target("p99 from append to 200 clients, of the append's and 5 of the echo's", "following.latency", "at most", 1),
    Target("CPU an event to 200 clients, of the echo's", "following.cpu", "at most", 2),
    Target("CPU an event to 1,000 clients of one stream, of the echo's", "following.fan_out", "at most", 2),
    Target("p50 of another's append beside 1,000 followers, of beside one", "following.append", "at most", 2),
    Target("seconds until a server with 1,000 followers has ended", "following.shutdown", "at most", 1),
    Target("bytes written, of text, default flush", "agent.bytes", "at most", 200),
    Target("view of 10,000 messages, no stage, of one JSON encoding", "context.many.view.nothing", "at most", 3),
    Target("view of 10,000 messages, all stages, of one JSON encoding", "context.many.view.all", "at most", 3),
    Target("transcript of 10,000 messages, cold, of one JSON encoding", "reads.transcript.cold", "at most", 8),
    Target("transcript of 10,000 messages, cold, in pages", "reads.transcript.pages", "at most", 10),
    Target("transcript of 10,000 messages behind a new turn", "reads.transcript.turn", "at most", 0.5),
    Target("context of 10,000 messages behind a new turn, no stage", "reads.context.nothing", "at most", 3),
    Target("context of 10,000 messages behind a new turn, all stages", "reads.context.all", "at most", 6),
    Target("context of 10,000 messages behind a new turn, near-duplicates", "reads.context.near-duplicates", "at most", 15),
    Target("context of 10,000 messages from a file, of one JSON encoding", "context.many.ledger.nothing", "at most", 3),
)


def judge(figures: Sequence[Figure]) -> list[Verdict]:
    """Every target against the figure it names."""
    values = {figure.id: figure.value for figure in figures}
    return [_judge(target, values.get(target.figure)) for target in TARGETS]


def _judge(target: Target, measured: float | None) -> Verdict:
    if measured is None:
        return Verdict(target, None, None)
    met = measured >= target.bound if target.is_met_by == "at least" else measured <= target.bound
    return Verdict(target, measured, met)
