"""Projects a log again and holds it against the ledger's rows: what verify reports and reconcile mends.

What is remembered meanwhile are differences only, so memory does not grow with the length of a log that agrees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ledger.errors import LedgerDamaged
from ledger.tables.commit import settled_for_ledger
from projector import State
from projector import events as ev
from projector.amendments import amend_message, asks_for
from projector.effects import MessageAmended, RunClosed, UsageAdded
from projector.folds import project
from projector.run_draft import Refused, read_usage

if TYPE_CHECKING:
    from ledger.engine import Engine
    from ledger.records import RunInfo
    from ledger.tables.conversations import Position
    from projector import Message
    from projector.amendments import Amendment
    from projector.run_draft import Anomaly, Usage
    from stream import Event

_PAGE_EVENTS: Final = 1000
_AGAIN: Final = 3


class Difference(NamedTuple):
    """A run whose rows are not what its events say, and what they should be: (message, whether it is on the path).

    Without `ended` its rows are there, and only these messages or its usage were not amended as they should be.
    """

    run_id: str
    why: str
    ended: RunClosed | None
    messages: list[tuple[Message, bool]]
    usage: dict[str, Usage] | None
    is_damage: bool = False


class Compared(NamedTuple):
    """What came of it: differences, the events that could not be applied, and the end of what was looked at.

    `position` is where the ledger was when that began.
    """

    differences: list[Difference]
    anomalies: list[Anomaly]
    last_seq: int
    position: Position


async def compare(engine: Engine, conversation: str) -> Compared:
    """Looks at every run that ended in what is left of the log, as far as the ledger has taken it in.

    Where the ledger has moved meanwhile, a row may say more than was looked for: what differs then is looked at again.
    Raises what reading the log raises.
    """
    compared = await _compare_once(engine, conversation)
    for _ in range(_AGAIN):
        if not compared.differences or (await engine.tables.position(conversation)).is_at(compared.position):
            break
        known = {difference.run_id for difference in compared.differences}
        compared = await _compare_once(engine, conversation)
        compared = compared._replace(differences=[each for each in compared.differences if each.run_id in known])
    return compared


async def _compare_once(engine: Engine, conversation: str) -> Compared:
    bounds = await engine.store.bounds(conversation)
    position = await engine.tables.position(conversation)
    work = _Comparison(engine, conversation, bounds.floor)
    state = State(last_seq=bounds.floor)
    while events := await engine.store.read(conversation, after=state.last_seq, limit=_PAGE_EVENTS):
        for event in events:
            state = await work.see(state, event, is_held=event.seq <= position.projected_seq)
    is_whole = bounds.floor == bounds.origin  # behind a floor, a run's beginning may be missing
    return Compared(await work.differences(), list(state.anomalies) if is_whole else [], state.last_seq, position)


class _Comparison:
    def __init__(self, engine: Engine, conversation: str, start: int) -> None:
        self._tables = engine.tables
        self._conversation = conversation
        self._start = start
        self._ended: dict[str, RunClosed] = {}  # of runs with a difference so far
        self._why: dict[str, str] = {}
        self._damaged: set[str] = set()
        self._expected: dict[str, Message] = {}  # messages that are not, or not yet, what their row says
        self._usage: dict[str, dict[str, Usage]] = {}

    async def see(self, state: State, event: Event, *, is_held: bool) -> State:
        after, effect = project(state, event)
        if is_held and isinstance(effect, RunClosed):
            await self._see_end(effect)
        elif is_held and isinstance(effect, UsageAdded):
            await self._see_usage(effect.body)
        elif is_held and isinstance(effect, MessageAmended):
            await self._see_amendment(effect)
        return after

    async def differences(self) -> list[Difference]:
        for message_id, message in self._expected.items():
            if message.run_id not in self._why and await self._row(message_id) != message:
                self._why[message.run_id] = f"message {message_id} is not what its events say"
        for run_id, usage in self._usage.items():
            row = await self._tables.run(self._conversation, run_id)
            if run_id not in self._why and row is not None and row.usage != usage:
                self._why[run_id] = "its usage is not what its events say"
        found = []
        for run_id, why in self._why.items():
            ended, used = self._ended.get(run_id), self._usage.get(run_id)
            if ended is None:
                messages = [(message, True) for message in self._expected.values() if message.run_id == run_id]
            else:
                messages = [(self._expected.get(message.id, message), on_path) for message, on_path in await self._said(ended)]
            found.append(Difference(run_id, why, ended, messages, used, run_id in self._damaged))
        return found

    async def _see_end(self, ended: RunClosed) -> None:
        run_id = ended.run.run_id
        row = await self._tables.run(self._conversation, run_id)
        if row is not None and row.seq != ended.run.seq:
            return  # an earlier run has this id
        said = await self._said(ended)
        why = await self._hold_against(row, ended, said)
        if why is not None:
            self._why[run_id] = why
            self._expected |= {message.id: message for message, _ in said}  # to be amended by what comes
        if row is not None and row.usage != ended.run.usage:
            self._usage[run_id] = ended.run.usage
        if why is not None or run_id in self._usage or any(message.id in self._expected for message, _ in said):
            self._ended[run_id] = ended

    async def _hold_against(self, row: RunInfo | None, ended: RunClosed, said: list[tuple[Message, bool]]) -> str | None:
        if row is None:
            return "it is missing"
        held = "committed" if row.status == "superseded" else row.status
        if held != ended.end.status:
            return f"it is {held}, by its events it is {ended.end.status}"
        try:
            rows = await self._tables.messages_of(self._conversation, row.run_id)
        except LedgerDamaged as error:
            self._damaged.add(row.run_id)
            return str(error)
        if [(message.id, on_path) for message, on_path in rows] != [(message.id, on_path) for message, on_path in said]:
            return "its messages are not those of its events"
        for (message, _), (found, _) in zip(said, rows, strict=True):
            if message != found:
                self._expected[message.id] = message
        return None

    async def _said(self, ended: RunClosed) -> list[tuple[Message, bool]]:
        run = ended.run
        taken = []
        for message_id in (*run.live, *(message_id for message_id, _ in run.done.items())):
            owner = await self._tables.owner(self._conversation, message_id)
            if owner not in (None, run.run_id):
                taken.append(message_id)
        settled = settled_for_ledger(run.without(taken), ended)
        said = [(message, True) for message in settled.path] + [(message, False) for message in settled.off]
        return sorted(said, key=lambda pair: pair[0].seq)

    async def _see_usage(self, body: ev.RunUsage) -> None:
        row = await self._tables.run(self._conversation, body.run_id)
        if row is not None and row.seq > self._start:
            known = self._usage.get(body.run_id, row.usage)
            self._usage[body.run_id] = known | {body.request_id: read_usage(body)}

    async def _see_amendment(self, amended: MessageAmended) -> None:
        body = amended.body
        message = await self._amended(body, amended.seq)
        if message is None or message.seq <= self._start:  # its run ended before what is looked at here
            return
        try:
            self._expected[message.id] = amend_message(message, body)
        except Refused:
            return

    async def _amended(self, body: Amendment, seq: int) -> Message | None:
        if isinstance(body, ev.ToolApproval):
            calling = [message for message in self._expected.values() if asks_for(message, body.tool_call_id)]
            row = await self._tables.calling(self._conversation, body.tool_call_id, before=seq)
            calling += [] if row is None or row.id in self._expected else [row]
            return max((one for one in calling if one.seq < seq), key=lambda one: one.seq, default=None)
        message_id: str = body.message_id
        return self._expected.get(message_id) or await self._row(message_id)

    async def _row(self, message_id: str) -> Message | None:
        try:
            return await self._tables.message(self._conversation, message_id)
        except LedgerDamaged:
            return None
