"""Catch-up: takes every run that ended into the ledger, once. There is no other way to commit."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from ledger.erasure import finish_erasure, is_pending
from ledger.errors import LedgerBehind
from ledger.kinds import is_let_go_by_others
from ledger.moment import look, look_on
from ledger.turns import Turns
from projector import State, open_runs
from projector.compaction import drop_older, save_snapshot
from projector.deltas import join_events
from projector.effects import RunClosed
from projector.folds import project
from projector.foreign import is_of_vocabulary
from projector.loading import Loaded, restore
from stream import SnapshotUnreadable, Truncated
from stream.logger import Logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.moment import Moment
    from ledger.tables.conversations import Position
    from ledger.tables.tables import LedgerTables
    from projector.effects import Effect
    from stream import Bounds, Event, EventStore

_LOG: Final = Logger("tailfold.ledger")
_PAGE_EVENTS: Final = 4000  # what one transaction takes in
_SLICE_EVENTS: Final = 1000  # some 6 ms
_SNAPSHOT_EVERY_EVENTS: Final = 1000  # a warm start folds at most so many
_SNAPSHOT_ON_THE_WAY_EVENTS: Final = 10_000  # what is open in the middle is large, and soon another; so many after a kill there
_KNOWN: Final = 256


class Caught(NamedTuple):
    """Where the ledger and the open runs of a conversation stand, after all events up to `state.last_seq`.

    `bounds` are those of its log when that was looked at; `exact` if `state` is the fold of the whole log.
    """

    state: State
    leaf: str | None
    bounds: Bounds
    exact: bool


class CatchUp:
    """Folds open runs and commits those that ended; any process may do so, the ledger's position decides."""

    def __init__(self, store: EventStore, tables: LedgerTables) -> None:
        self._store = store
        self._tables = tables
        self._known: OrderedDict[str, Known] = OrderedDict()
        self._turns = Turns()

    async def run(self, conversation: str) -> Caught:
        """Brings the ledger to the head. Raises `LedgerBehind` where events it needs are gone.

        One at a time, of those in this process: all that try at once would do the same work, and all but one in vain.
        """
        async with self._turns.of(conversation):
            return await self._run_to_the_head(conversation)

    def forget(self, conversation: str) -> None:
        """Drops what is remembered here: something else than catch-up has moved the ledger."""
        self._known.pop(conversation, None)

    async def _run_to_the_head(self, conversation: str) -> Caught:
        behind: Position | None = None
        while True:
            try:
                return await self._run(conversation)
            except Truncated:  # another process has compacted behind the state remembered here
                self._known.pop(conversation, None)
            except LedgerBehind:  # or it has come further and compacted, between two looks at a log elsewhere
                position = await self._tables.position(conversation)
                if behind is not None and position.is_at(behind):
                    raise
                behind = position

    async def _run(self, conversation: str) -> Caught:
        while True:
            position, bounds, known, events = await self._look(conversation)
            if is_pending(position.erased):  # begun by a process that is gone
                await finish_erasure(self._store, self._tables, conversation)
                continue
            if not events and known.state.last_seq > max(position.projected_seq, bounds.origin):  # let go by its program
                await self._advance(conversation, position, known.state, [], None)
            while events:
                state, effects = await _project_page(known.state, events, after=position.projected_seq)
                if state.last_seq > position.projected_seq:
                    moved = await self._advance(conversation, position, state, effects, _spoken_at(position, events))
                    if moved is None:
                        break  # another process was faster: look again
                    position = moved
                    if is_pending(position.erased):  # begun since we looked, and its barrier may be among these events
                        break
                is_all = state.last_seq >= bounds.head
                known = known._replace(state=state)
                known = await self._keep(conversation, known, is_saved=position.is_conversation, is_end=is_all)
                events = []  # let go before the next page is held
                if not is_all:
                    events = await self._store.read(conversation, after=state.last_seq, limit=_PAGE_EVENTS)
            else:
                return Caught(known.state, position.leaf, bounds, known.exact)

    async def _advance(
        self, conversation: str, position: Position, state: State, effects: list[Effect], spoken_at: int | None
    ) -> Position | None:
        replay_from = min((run.seq - 1 for run in state.open.values()), default=state.last_seq)
        moved = await self._tables.advance(
            conversation,
            position,
            projected_seq=state.last_seq,
            replay_from=max(replay_from, position.replay_from),
            effects=effects,
            spoken_at=spoken_at,
        )
        for effect in effects if moved is not None else ():
            if isinstance(effect, RunClosed):
                _LOG.info("run.committed", conversation=conversation, run_id=effect.run.run_id, status=effect.end.status)
        return moved

    async def _look(self, conversation: str) -> _Seen:
        """The ledger's position, the state to go on from, and the first page of what came behind that."""
        remembered = self._known.get(conversation)
        if remembered is not None and (gone_on := await self._look_on(conversation, remembered)) is not None:
            return gone_on

        async def job(moment: Moment) -> tuple[_Seen, str | None]:
            position, bounds = await moment.position(), await moment.bounds()
            if is_pending(position.erased):
                return _Seen(position, bounds, Known(State(), 0, exact=False, rewound=0, origin=0), []), None
            why = None
            if remembered is not None and _goes_on(remembered, position, bounds):
                known = remembered
            else:
                known, why = await find_base(moment, conversation, position, bounds)
            return _Seen(position, bounds, known, await moment.events(known.state.last_seq, _PAGE_EVENTS)), why

        seen, why = await look(self._store, self._tables, conversation, job)
        if why is not None:
            _LOG.warning("ledger.snapshot_passed_over", conversation=conversation, why=why)
        return seen

    async def _look_on(self, conversation: str, known: Known) -> _Seen | None:
        """The same in one statement, where what is remembered goes on; None where it is to be looked at as a whole."""
        try:
            told = await look_on(self._store, self._tables, conversation, known.state.last_seq, _PAGE_EVENTS)
        except Truncated:
            return None
        if told is None:
            return None
        position, bounds, events = told
        goes_on = not is_pending(position.erased) and _goes_on(known, position, bounds)
        return _Seen(position, bounds, known, events) if goes_on else None

    async def _keep(self, conversation: str, known: Known, *, is_saved: bool, is_end: bool) -> Known:
        """Remembers the state here, and now and then it `is_saved` in a snapshot, never ahead of the ledger's position."""
        every = _SNAPSHOT_EVERY_EVENTS if is_end else _SNAPSHOT_ON_THE_WAY_EVENTS
        if is_saved and known.exact and known.state.last_seq - known.snapshot_seq >= every:
            loaded = Loaded(known.state, known.state.last_seq)
            await save_snapshot(open_runs, self._store, self._store.snapshots, conversation, loaded)
            await drop_older(self._store.snapshots, conversation, open_runs.name)
            known = known._replace(snapshot_seq=known.state.last_seq)
        self._known[conversation] = known
        self._known.move_to_end(conversation)
        if len(self._known) > _KNOWN:
            self._known.popitem(last=False)
        return known


async def _project_page(state: State, events: Sequence[Event], *, after: int) -> tuple[State, list[Effect]]:
    """As `_project_all`, and now and then others have their turn."""
    effects: list[Effect] = []
    for first in range(0, len(events), _SLICE_EVENTS):
        if first:
            await asyncio.sleep(0)
        state, some = _project_all(state, events[first : first + _SLICE_EVENTS], after=after)
        effects += some
    return state, effects


def _project_all(state: State, events: Sequence[Event], *, after: int) -> tuple[State, list[Effect]]:
    """The open runs after `events`, and what the ledger has to do about those behind `after`."""
    effects: list[Effect] = []
    for event, parts, body in join_events(events):
        following, effect = project(state, event, body)
        if len(parts) > 1 and len(following.anomalies) > len(state.anomalies):
            for part in parts:  # deltas of a block that takes none: each is an anomaly of its own
                state, _ = project(state, part)
            continue
        state = following
        if effect is not None and event.seq > after:
            effects.append(effect)
    return state, effects


def _spoken_at(position: Position, events: Sequence[Event]) -> int | None:
    """The time of the first event of the vocabulary, where none was taken in before."""
    return None if position.is_conversation else next((event.at for event in events if is_of_vocabulary(event)), None)


def _goes_on(known: Known, position: Position, bounds: Bounds) -> bool:
    """Whether what is remembered is still the state of this log, which may have been put back or deleted."""
    return (known.rewound, known.origin) == (position.rewound, bounds.origin) and known.state.last_seq <= position.projected_seq


async def find_base(moment: Moment, conversation: str, position: Position, bounds: Bounds) -> tuple[Known, str | None]:
    """The newest snapshot, or where nothing of what is open began before; and why a snapshot was passed over."""
    why = None
    snapshot = await moment.snapshot(open_runs.name)
    if snapshot is not None and max(bounds.floor, bounds.origin + 1) <= snapshot.last_seq <= position.projected_seq:
        try:
            state, seq = restore(open_runs, snapshot), snapshot.last_seq
            return Known(state, seq, exact=True, rewound=position.rewound, origin=bounds.origin), None
        except SnapshotUnreadable as error:
            why = error.why
    # Runs that end behind this point began behind it too, so nothing before it matters to the ledger.
    start = max(position.replay_from, bounds.origin)
    if start < bounds.floor:
        if not is_let_go_by_others(position, snapshot, await moment.events(bounds.floor, _PAGE_EVENTS)):
            raise LedgerBehind(conversation, start, bounds.floor)
        start = bounds.floor
    is_whole = start == bounds.origin
    return Known(State(last_seq=start), start, exact=is_whole, rewound=position.rewound, origin=bounds.origin), why


class _Seen(NamedTuple):
    position: Position
    bounds: Bounds
    known: Known
    events: list[Event]


class Known(NamedTuple):
    """A state of the open runs; `exact` if it is the fold of the whole log and may become a snapshot."""

    state: State
    snapshot_seq: int
    exact: bool
    rewound: int
    origin: int
