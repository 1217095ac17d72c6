"""How many prompts went out before each message of a path, counted on from where it was counted before."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ledger.tables.runs import Steps
    from projector import Message


class Timeline(NamedTuple):
    """The beginning of a path, up to where a run ends on it: the turn of each message, all prompts of its runs, and these."""

    turns: Mapping[str, int] = {}
    total: int = 0
    runs: frozenset[str] = frozenset()


_NOTHING: Final = Timeline()


def count_turns(
    path: Sequence[Message], steps: Mapping[str, Steps], drafts: Mapping[str, tuple[int, ...]], known: Timeline
) -> tuple[dict[str, int], int, Timeline]:
    """How many prompts went out before each message of a path, and in all; and what is to be known the next time.

    `known` is of the beginning of this path. `drafts` are the prompts of runs that are open. Of a run that the path leaves
    in the middle only those count that led to what is on it.
    """
    start = known if known.runs.isdisjoint(drafts) else _NOTHING
    rest = path[len(start.turns) :]
    counts = Counter([message.run_id for message in rest])
    if not start.runs.isdisjoint(counts):  # a run that is on it twice, which only a log that was made by hand has
        start, rest = _NOTHING, path
        counts = Counter([message.run_id for message in rest])
    last = {message.run_id: message.seq for message in rest}
    before: dict[str, int] = {}
    prompts: dict[str, tuple[int, ...]] = {}
    total = start.total
    for name, count in counts.items():
        about = steps.get(name)
        sent = () if about is None else about.prompts
        if about is not None and count < about.messages:
            sent = tuple([seq for seq in sent if seq < last[name]])
        before[name], prompts[name] = total, drafts.get(name, sent)
        total += len(prompts[name])
    turns = {**start.turns, **{one.id: before[one.run_id] + bisect_left(prompts[one.run_id], one.seq) for one in rest}}
    total += sum([len(sent) for name, sent in drafts.items() if name not in counts])
    return turns, total, _know(path, turns, before, start, drafts)


def _know(
    path: Sequence[Message],
    turns: Mapping[str, int],
    before: Mapping[str, int],
    start: Timeline,
    drafts: Mapping[str, tuple[int, ...]],
) -> Timeline:
    """All ahead of the last run that has ended: that one may go on here."""
    place = len(path)
    while place and path[place - 1].run_id in drafts:
        place -= 1
    if not place:
        return start
    run_id = path[place - 1].run_id
    while place and path[place - 1].run_id == run_id:
        place -= 1
    if place <= len(start.turns) or len(turns) != len(path):
        return start
    runs = start.runs | {message.run_id for message in path[len(start.turns) : place]}
    if run_id in runs or not runs.isdisjoint(drafts):
        return start
    return Timeline(dict(islice(turns.items(), place)), before[run_id], runs)
