"""Who may continue a conversation next: one run at a time, and those who wait for it in the order of their call."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import anyio

from ledger.errors import RunOpen
from ledger.turns import Turns
from projector import events as ev
from projector.events import read_body
from projector.json_text import InvalidJson
from stream import Truncated
from stream.checks import refusal
from stream.limits import MAX_INTEGER

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from ledger.catchup import Caught
    from ledger.engine import Engine
    from projector.run_draft import RunDraft
    from stream import Event

_PAGE_EVENTS: Final = 200
_BETWEEN_RUNS_S: Final = 0.01
_OF_OTHERS: Final = (ev.RunCancelRequested, ev.MessageAnnotated, ev.MessageRedacted)
"""What somebody else says of a run: it tells nothing of its writer."""


class Busy(Exception):
    """A run on the active leaf has no end, after all events up to `last_seq`; it never leaves this room."""

    def __init__(self, run: RunDraft, last_seq: int) -> None:
        super().__init__(run.run_id)
        self.run, self.last_seq = run, last_seq


def check_wait(what: str, value: object) -> None:
    """Raises `ValueError` unless it is True or False, or seconds."""
    if not isinstance(value, int | float) or not 0 <= value <= MAX_INTEGER:
        raise refusal(what, "True, False or a number of seconds", value)


def require_free_leaf(caught: Caught) -> str | None:
    """The active leaf, which a run may continue. Raises `Busy` where one does that already."""
    for run in caught.state.open.values():
        if run.parent_message_id == caught.leaf:
            raise Busy(run, caught.state.last_seq)
    return caught.leaf


class Queue:
    """Those of this process who wait for the leaf of a conversation. Another process may come between two of them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._turns = Turns()

    async def begin(self, conversation: str, wait: bool | float, begin: Callable[[], Awaitable[int]]) -> int:  # noqa: FBT001
        """What `begin` gives once it no longer raises `Busy`; `RunOpen` where that takes longer than `wait` allows.

        Only the waiting is cut off, never `begin`.
        """
        if wait is False:
            try:
                return await begin()
            except Busy as busy:
                raise await self._refusal(conversation, busy) from None
        deadline = math.inf if wait is True else anyio.current_time() + wait
        turn = self._turns.of(conversation)
        await self._reach(conversation, turn, deadline)
        try:
            while True:
                try:
                    return await begin()
                except Busy as busy:
                    with anyio.move_on_at(deadline) as limit:
                        await self._engine.store.wait(conversation, after=busy.last_seq)
                    if limit.cancelled_caught:
                        raise await self._refusal(conversation, busy) from None
        finally:
            turn.release()

    async def _reach(self, conversation: str, turn: asyncio.Lock, deadline: float) -> None:
        """Returns first in the line."""
        while True:
            with anyio.move_on_at(deadline):
                await turn.acquire()
                return
            try:
                require_free_leaf(await self._engine.catch_up(conversation))
            except Busy as busy:
                raise await self._refusal(conversation, busy) from None
            deadline = anyio.current_time() + _BETWEEN_RUNS_S  # somebody ahead begins right now

    async def _refusal(self, conversation: str, busy: Busy) -> RunOpen:
        return RunOpen(conversation, busy.run.run_id, await self._last_event_at(conversation, busy))

    async def _last_event_at(self, conversation: str, busy: Busy) -> int:
        """When the writer of a run was last heard of, in ms; looked for from the end of the log back to its beginning."""
        through = busy.last_seq
        while through >= busy.run.seq:
            after = max(busy.run.seq - 1, through - _PAGE_EVENTS)
            try:
                events = await self._engine.store.read(conversation, after=after, limit=through - after)
            except Truncated:  # erased since
                break
            for event in reversed(events):
                if _is_of(event, busy.run):
                    return event.at
            through = after
        return busy.run.started_at


def _is_of(event: Event, run: RunDraft) -> bool:
    try:
        body = read_body(event.type, event.data)
    except InvalidJson:
        return False
    if isinstance(body, _OF_OTHERS):
        return False
    message_id = getattr(body, "message_id", None)
    return getattr(body, "run_id", None) == run.run_id or (message_id is not None and run.find(message_id) is not None)
