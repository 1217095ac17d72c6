"""Lists: conversations, their runs, and what of a conversation is still open or could not be applied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from ledger.checks import check_limit
from ledger.errors import LedgerBehind, LedgerDiverged, UnknownRun
from ledger.following import open_runs_of
from ledger.records import ConversationInfo, RunInfo
from ledger.tables.texts import is_text
from projector import load, open_runs
from stream import CorruptEvent, SnapshotUnreadable
from stream.checks import check_choice, check_flag, check_kind, check_text
from stream.limits import MAX_RUN_ID_BYTES, check_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ledger.engine import Engine
    from ledger.following import OpenRun
    from ledger.tables.conversations import Page
    from projector import State
    from projector.run_draft import Anomaly

STATUSES: Final = ("open", "created", "streaming", "committed", "superseded", "failed", "cancelled")
"""What can be asked for of a run."""
BEGIN: Final = ("", 0)
"""The place ahead of all runs."""


async def list_conversations(engine: Engine, page: Page) -> AsyncIterator[ConversationInfo]:
    """See `Ledger.conversations`."""
    _check_page(page)
    if not is_text(page.prefix) or not is_text(page.label or ""):  # no id begins so, no label is found so
        return
    await engine.catch_up_all()
    async for info in engine.tables.conversations(page):
        yield info


async def list_runs(
    engine: Engine, conversation: str | None, *, status: str | None, after: tuple[str, int] = BEGIN, limit: int | None = None
) -> AsyncIterator[RunInfo]:
    """See `Ledger.runs`; `after` is the conversation, and the seq, of the last run of the page before."""
    check_limit("limit", limit)
    if status is not None:
        check_choice("status", status, STATUSES)
    if conversation is not None:
        if after[0] not in ("", conversation):
            raise ValueError(f"after is a run of conversation {after[0]!r}: name that one, or none, as for the page before")
        await engine.read_up(conversation)
    else:
        await engine.catch_up_all()
    if limit == 0:
        return
    states, count = _States(engine), 0
    async for run in engine.tables.runs(conversation, only_open=status in ("open", "created", "streaming"), after=after):
        told = await states.of(run) if run.status == "open" else run
        if status in (None, told.status) or (status == "open" and told.outcome is None):
            yield told
            count += 1
            if count == limit:
                return


def place_of(run: RunInfo | None) -> tuple[str, int]:
    """Where the page behind a run begins."""
    if run is None:
        return BEGIN
    last: RunInfo = check_kind("after", run, RunInfo, "the RunInfo of the page before")
    return last.conversation, last.seq


async def find_run(engine: Engine, run_id: str) -> str:
    """See `Ledger.find_run`."""
    check_id("run_id", run_id, max_bytes=MAX_RUN_ID_BYTES)
    await engine.catch_up_all()
    homes = await engine.tables.homes(run_id)
    if len(homes) != 1:
        raise UnknownRun(run_id)
    return homes[0]


async def list_open_runs(engine: Engine, conversation: str) -> list[OpenRun]:
    """See `Ledger.open_runs`."""
    return open_runs_of((await engine.require(conversation)).state)


async def list_anomalies(engine: Engine, conversation: str) -> list[Anomaly]:
    """See `Ledger.anomalies`."""
    await engine.require(conversation)
    try:
        loaded = await load(open_runs, engine.store, engine.store.snapshots, conversation)
    except SnapshotUnreadable:
        return []
    return list(loaded.state.anomalies)


def _check_page(page: Page) -> None:
    check_limit("limit", page.limit)
    check_text("prefix", page.prefix)
    check_flag("archived", page.archived)
    for name, value in (("label", page.label), ("title", page.title)):
        if value is not None:
            check_text(name, value)
    if page.after is not None:
        check_kind("after", page.after, ConversationInfo, "the ConversationInfo of the page before")


class _States:
    """How far open runs have come, each conversation looked at once."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._states: dict[str, State | None] = {}

    async def of(self, run: RunInfo) -> RunInfo:
        """The run as `created` or `streaming`; as it is where the log does not tell."""
        if run.conversation not in self._states:
            try:
                self._states[run.conversation] = (await self._engine.catch_up(run.conversation)).state
            except (LedgerBehind, LedgerDiverged, CorruptEvent):
                self._states[run.conversation] = None
        state = self._states[run.conversation]
        draft = None if state is None else state.open.get(run.run_id)
        return run if draft is None else replace(run, status="streaming" if draft.is_streaming else "created")
