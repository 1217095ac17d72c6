"""Projects a log again and holds it against the ledger's rows: what verify reports and reconcile mends.

The log does not change up to where the ledger holds it, the rows do: others write meanwhile. So what differs while the
log is gone through is a suspicion only. It counts where all rows of the run, read at one moment, are not what the log
says up to where the ledger was at that moment, and where that is found twice.

What is remembered meanwhile are differences only, so memory does not grow with the length of a log that agrees.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ledger.errors import LedgerDamaged
from ledger.moment import look, stand
from ledger.tables import conversations
from ledger.tables.commit import settled_for_ledger
from ledger.tables.run_rows import RunRows, owned_by_others, rows_of
from projector import State
from projector import events as ev
from projector.amendments import amend_message, asks_for
from projector.effects import MessageAmended, RunClosed, UsageAdded
from projector.folds import project
from projector.run_draft import Refused, read_usage
from stream import Truncated

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from ledger.engine import Engine
    from ledger.records import RunInfo
    from ledger.tables.conversations import Position
    from projector import Message
    from projector.amendments import Amendment
    from projector.effects import Effect
    from projector.run_draft import Anomaly, Usage
    from stream import Bounds
    from stream.database import Sql

_PAGE_EVENTS: Final = 1000


class Difference(NamedTuple):
    """A run whose rows are not what its events say, and what they should be: (message, whether it is on the path).

    `rows` are all that there is of it, at the moment of the comparison's `position`. Without `ended` its rows are there,
    and only these messages or its usage were not amended as they should be.
    """

    run_id: str
    why: str
    ended: RunClosed | None
    messages: list[tuple[Message, bool]]
    usage: dict[str, Usage] | None
    rows: RunRows
    is_damage: bool = False


async def compare(engine: Engine, conversation: str) -> Comparison:
    """Looks at every run that ended in what is left of the log, as far as the ledger has taken it in.

    Raises `CorruptEvent`.
    """
    comparison = await _compare_once(engine, conversation)
    if comparison.differences:
        known = {difference.run_id for difference in comparison.differences}
        comparison = await _compare_once(engine, conversation)
        comparison.keep(known)
    return comparison


async def _compare_once(engine: Engine, conversation: str) -> Comparison:
    while True:
        position, bounds = await look(engine.store, engine.tables, conversation, stand)
        comparison = Comparison(engine, conversation, position, bounds)
        with suppress(Truncated):  # let go meanwhile: what is left is looked at
            await comparison.go_through()
            await comparison.look_again()
            return comparison


class Comparison:
    """The log of a conversation held against its rows. Made by `compare`.

    `differences` are what is wrong, `position` is where the ledger was at the moment of their rows, and `anomalies` are
    the events that could not be applied, of a log that is whole. `seen` is where the ledger was when that began, `bounds`
    are those of the log then.
    """

    def __init__(self, engine: Engine, conversation: str, position: Position, bounds: Bounds) -> None:
        self.seen, self.position, self.bounds = position, position, bounds
        self.differences: list[Difference] = []
        self._engine, self._tables = engine, engine.tables
        self._conversation = conversation
        self._state = State(last_seq=bounds.floor)
        self._suspects: dict[str, _Suspect] = {}  # by run
        self._homes: dict[str, _Suspect] = {}  # by message

    @property
    def anomalies(self) -> Sequence[Anomaly]:
        """Behind a floor, a run's beginning may be missing."""
        return list(self._state.anomalies) if self.bounds.floor == self.bounds.origin else []

    async def go_through(self) -> None:
        """Suspects what differs. Raises `Truncated` where the log was let go meanwhile, `CorruptEvent`."""
        await self._project(self.position.projected_seq, self._see)

    async def look_again(self) -> None:
        """Holds what is suspected against its rows as they are now, all of them at one moment.

        Raises what `go_through` raises, also where all of it was erased meanwhile.
        """
        self.differences = []
        if not self._suspects:
            return
        position, rows = await self._tables.look(partial(self._read_rows, run_ids=self._suspects))
        await self._project(position.projected_seq, self._follow)
        self.position = position
        found = (suspect.hold_against(self._conversation, rows[run_id]) for run_id, suspect in self._suspects.items())
        self.differences = [difference for difference in found if difference is not None]

    def keep(self, run_ids: Collection[str]) -> None:
        """Suspects these runs only."""
        self._suspects = {run_id: suspect for run_id, suspect in self._suspects.items() if run_id in run_ids}
        self._homes = {message_id: suspect for message_id, suspect in self._homes.items() if suspect.run_id in run_ids}
        self.differences = [difference for difference in self.differences if difference.run_id in run_ids]

    async def _read_rows(self, sql: Sql, run_ids: Collection[str]) -> tuple[Position, dict[str, RunRows]]:
        key = await conversations.key_of(sql, self._conversation)
        rows = {run_id: await rows_of(sql, key, run_id) for run_id in run_ids}
        return await conversations.position(sql, self._conversation), rows

    async def _project(self, through: int, see: Callable[[Effect], Awaitable[None]]) -> None:
        while self._state.last_seq < through:
            limit = min(_PAGE_EVENTS, through - self._state.last_seq)
            events = await self._engine.store.read(self._conversation, after=self._state.last_seq, limit=limit)
            if not events:  # the log ends before the ledger does
                return
            for event in events:
                self._state, effect = project(self._state, event)
                if effect is not None:
                    await see(effect)

    async def _see(self, effect: Effect) -> None:
        if isinstance(effect, RunClosed):
            await self._see_end(effect)
        elif isinstance(effect, UsageAdded):
            await self._see_usage(effect.body)
        elif isinstance(effect, MessageAmended):
            await self._see_amendment(effect)

    async def _follow(self, effect: Effect) -> None:
        """What comes while suspects are looked at again: only what it says of them, and by what they are known to be."""
        if isinstance(effect, UsageAdded):
            suspect = self._suspects.get(effect.body.run_id)
            if suspect is not None and suspect.usage is not None:
                suspect.usage |= {effect.body.request_id: read_usage(effect.body)}
        elif isinstance(effect, MessageAmended):
            message = await self._amended(effect.body, effect.seq)
            if message is not None and message.id in self._homes:
                self._homes[message.id].amend(message, effect.body)

    async def _see_end(self, ended: RunClosed) -> None:
        run = ended.run
        message_ids = [*run.live, *(message_id for message_id, _ in run.done.items())]

        async def job(sql: Sql) -> tuple[RunRows, list[str]]:
            key = await conversations.key_of(sql, self._conversation)
            return await rows_of(sql, key, run.run_id), await owned_by_others(sql, key, run.run_id, message_ids)

        rows, taken = await self._tables.look(job)
        if rows.seq not in (None, run.seq):
            return  # an earlier run has this id
        settled = settled_for_ledger(run.without(taken), ended)
        said = [(message, True) for message in settled.path] + [(message, False) for message in settled.off]
        suspect = _Suspect(run.run_id, run.usage)
        suspect.say(ended, sorted(said, key=lambda pair: pair[0].seq))
        if suspect.hold_against(self._conversation, rows) is not None:
            self._suspect(suspect)

    async def _see_usage(self, body: ev.RunUsage) -> None:
        info = await self._tables.run(self._conversation, body.run_id)
        if info is None or info.seq <= self.bounds.floor:
            return
        suspect = self._suspects.get(body.run_id) or _Suspect(body.run_id)
        suspect.usage = (info.usage if suspect.usage is None else suspect.usage) | {body.request_id: read_usage(body)}
        await self._suspect_if_it_differs(suspect)

    async def _see_amendment(self, amended: MessageAmended) -> None:
        message = await self._amended(amended.body, amended.seq)
        if message is None or message.seq <= self.bounds.floor:  # its run ended before what is looked at here
            return
        suspect = self._suspects.get(message.run_id) or _Suspect(message.run_id)
        suspect.amend(message, amended.body)
        await self._suspect_if_it_differs(suspect)

    async def _suspect_if_it_differs(self, suspect: _Suspect) -> None:
        """Or not any more: what comes behind the end of a run is in its rows already."""
        _, rows = await self._tables.look(partial(self._read_rows, run_ids=(suspect.run_id,)))
        if suspect.hold_against(self._conversation, rows[suspect.run_id]) is not None:
            self._suspect(suspect)
        elif self._suspects.pop(suspect.run_id, None) is not None:
            for message_id in suspect.expected:
                self._homes.pop(message_id, None)

    def _suspect(self, suspect: _Suspect) -> None:
        self._suspects[suspect.run_id] = suspect
        self._homes |= dict.fromkeys(suspect.expected, suspect)

    async def _amended(self, body: Amendment, seq: int) -> Message | None:
        if isinstance(body, ev.ToolApproval):
            expected = [message for suspect in self._suspects.values() for message in suspect.expected.values()]
            calling = [message for message in expected if asks_for(message, body.tool_call_id)]
            row = await self._tables.calling(self._conversation, body.tool_call_id, before=seq)
            calling += [] if row is None or row.id in self._homes else [row]
            return max((one for one in calling if one.seq < seq), key=lambda one: one.seq, default=None)
        message_id: str = body.message_id
        suspect = self._homes.get(message_id)
        return await self._row(message_id) if suspect is None else suspect.expected[message_id]

    async def _row(self, message_id: str) -> Message | None:
        try:
            return await self._tables.message(self._conversation, message_id)
        except LedgerDamaged:
            return None


class _Suspect:
    """A run whose rows were not what its events had said until then, and what they say.

    Without `ended` only what was amended is looked at.
    """

    def __init__(self, run_id: str, usage: dict[str, Usage] | None = None) -> None:
        self.run_id = run_id
        self.usage = usage
        self.expected: dict[str, Message] = {}
        self._ended: RunClosed | None = None
        self._on_path: dict[str, bool] = {}

    def say(self, ended: RunClosed, said: Sequence[tuple[Message, bool]]) -> None:
        """How it ended, and with which messages."""
        self._ended = ended
        self.expected = {message.id: message for message, _ in said}
        self._on_path = {message.id: on_path for message, on_path in said}

    def amend(self, message: Message, body: Amendment) -> None:
        """What a message of it is from here on."""
        with suppress(Refused):
            self.expected[message.id] = amend_message(message, body)

    def hold_against(self, conversation: str, rows: RunRows) -> Difference | None:
        """How these rows differ from it."""
        is_damage = False
        try:
            info = rows.info(conversation)
            why = self._hold_run_against(info, rows.listed_seq) or self._hold_messages_against(rows.read(conversation))
        except LedgerDamaged as error:
            is_damage, why = True, str(error)
        if why is None and self.usage is not None and info is not None and info.usage != self.usage:
            why = "its usage is not what its events say"
        if why is None:
            return None
        messages = [(message, self._on_path.get(message.id, True)) for message in self.expected.values()]
        return Difference(self.run_id, why, self._ended, messages, self.usage, rows, is_damage)

    def _hold_run_against(self, info: RunInfo | None, listed_seq: int | None) -> str | None:
        if self._ended is None:
            return None
        if info is None:
            return "it is missing"
        if listed_seq != info.seq:
            return f"it is listed at {listed_seq}, by its events it is at {info.seq}"
        if info.status != self._ended.end.status:
            return f"it is {info.status}, by its events it is {self._ended.end.status}"
        return None

    def _hold_messages_against(self, rows: list[tuple[Message, bool]]) -> str | None:
        if self._ended is not None and [(message.id, on_path) for message, on_path in rows] != list(self._on_path.items()):
            return "its messages are not those of its events"
        found = {message.id: message for message, _ in rows}
        differing = (each for each, message in self.expected.items() if found.get(each) != message)
        return next((f"message {each} is not what its events say" for each in differing), None)
