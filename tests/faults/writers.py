"""What a process does to conversations that others use, too, with all that it was told; and whether that is true."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from ledger import LedgerError, erasure, open_ledger
from ledger.tables import holds
from projector import Block
from stream import StreamError, Truncated
from stream.sqlite import database, packing
from tests.faults.history import Diary, read_diaries
from tests.faults.told import Told
from tests.needles import wrong
from tests.talk import new

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable
    from contextlib import ExitStack
    from pathlib import Path

    from ledger import Ledger
    from stream import Event, Opening

REFUSALS: Final = ("RunLost", "RunOpen", "UnknownMessage", "UnknownConversation", "RunEnded")
"""What a writer may be told beside an erasure, and beside others that write."""
LEASE_MS: Final = 200
LATE: Final = ("HoldLost", "StoreBusy")
"""What one may be told that was stopped, or that meets one who was stopped with a lock in its hand."""


def open_at(folder: Path | str, place: str = "one file") -> Opening[Ledger]:
    log = f"{folder}/log.db" if place == "two files" else None
    return open_ledger(f"{folder}/ledger.db", log=log, durability="normal")


class Writers:
    """Does what is asked for over a ledger, and writes down what it was told."""

    def __init__(self, ledger: Ledger, diary: Diary, chance: random.Random, name: str) -> None:
        self._ledger, self._diary, self._chance, self._name = ledger, diary, chance, name
        self._numbers = 0

    async def do(self, what: str, conversation: str, message_id: str | None) -> None:
        """A refusal is an answer, too."""
        self._numbers += 1
        word = f"{self._name}.{self._numbers}"
        with suppress(LedgerError, StreamError):
            await self._do(what, conversation, message_id, word)

    async def _do(self, what: str, conversation: str, message_id: str | None, word: str) -> None:
        ledger, call = self._ledger, self._diary.call
        if what == "erase":
            await call("erase", conversation, ledger.erase(conversation))
        elif what == "describe":
            await call("describe", conversation, ledger.describe(conversation, title=word), title=word)
        elif what == "record":
            event = new("custom", name=word)
            await call("record", conversation, self._record(conversation, event), data=event.data.decode())
        elif what == "compact":
            await call("compact", conversation, ledger.compact(conversation))
        elif what == "repair":
            await call("repair", conversation, self._repair(conversation))
        elif what == "hold":
            await call("hold", conversation, self._hold(conversation))
        elif what == "pack":
            for number in range(12):
                await self._do("record", conversation, None, f"{word}.{number}")
        elif what == "annotate" and message_id:
            annotating = ledger.annotate(conversation, message_id, {"rating": word})
            await call("annotate", conversation, annotating, message=message_id, key="rating", value=word)
        elif what == "redact" and message_id:
            text = f"redacted {word}"
            redacting = ledger.redact(conversation, message_id, [Block("text", text=text)])
            await call("redact", conversation, redacting, message=message_id, text=text)
        elif what in {"begin", "flush", "talk", "fork"}:
            await self._talk(what, conversation, message_id, word)

    async def _record(self, conversation: str, event: Any) -> int:
        return (await self._ledger.record(conversation, [event])).last_seq

    async def _repair(self, conversation: str) -> list[str]:
        return [str(found) async for found in self._ledger.reconcile(conversation, repair=True) if not found.is_note]

    async def _hold(self, conversation: str) -> bool:
        """Whether compaction went beyond it while it was held."""
        before = await self._ledger.store.bounds(conversation)
        async with self._ledger.hold(conversation, through=before.floor):
            held = await self._ledger.store.bounds(conversation)
            with suppress(Truncated):  # it had risen before it was held, or it was erased
                for _ in range(3):
                    await self._ledger.store.read(conversation, after=held.floor, limit=1)
            after = await self._ledger.store.bounds(conversation)
        return before.floor == held.floor < after.floor and before.origin == after.origin

    async def _talk(self, what: str, conversation: str, message_id: str | None, run_id: str) -> None:
        call = self._diary.call
        options: Any = {"parent": message_id} if what == "fork" else self._chance.choice([{}, {"parent": None}])
        run = await call("begin", conversation, self._ledger.begin_run(conversation, run_id=run_id, **options), run=run_id)
        try:
            for number in range(0 if what == "begin" else 2):
                text = f"{run_id} says {number}"
                await call("message", conversation, run.message("user", text), run=run_id, text=text)
                if what == "flush" or self._chance.random() < 0.5:
                    await call("flush", conversation, run.flush(), run=run_id)
            if what in {"talk", "fork"}:
                await call("finish", conversation, run.finish(), run=run_id)
        finally:
            with suppress(LedgerError, StreamError):
                await run.close()


async def read_all(ledger: Ledger, conversation: str, floor: int) -> list[Event]:
    events: list[Event] = []
    while page := await ledger.store.read(conversation, after=events[-1].seq if events else floor):
        events += page
    return events


def shorten_leases(patches: ExitStack, *, busy_s: float = database.BUSY_LIMIT_S) -> None:
    """So that a claim, a hold or a lock is not waited for as long as usual; and a few appends are packed."""
    for module, name, value in (
        (erasure, "_CLAIM_MS", LEASE_MS),
        (holds, "_LEASE_MS", LEASE_MS),
        (holds, "_FLOOR_LEASE_MS", LEASE_MS),
        (database, "BUSY_LIMIT_S", busy_s),
        (packing, "_DUE_APPENDS", 8),
        (packing, "_FEW_STREAMS", 1),
    ):
        patches.enter_context(patch.object(module, name, value))


def require(wrong: Iterable[object]) -> None:
    """Fails with all that is wrong."""
    told = [*map(str, wrong)]
    if told:
        raise AssertionError("\n".join(told))


async def check_all(ledger: Ledger, folder: Path, conversations: list[str], *more: str) -> int:
    """How many runs were acknowledged; fails where one is lost, or something is left of what was erased."""
    calls, acknowledged = read_diaries(folder), 0
    refusals = (*REFUSALS, *more)
    require([call for call in calls if call.error and not call.error.startswith(refusals)])
    require([call for call in calls if call.name == "hold" and call.answer])
    for conversation in conversations:
        told = Told(conversation, calls)
        transcript = await ledger.transcript(conversation, branch="all")
        floor = (await ledger.store.bounds(conversation)).floor
        events = await read_all(ledger, conversation, floor)
        run_ids = {run.run_id async for run in ledger.runs(conversation)}
        info = await ledger.tables.conversation(conversation)
        assert info is not None
        require(told.check_runs([(each.run_id or "", each.id, each.text) for each in transcript]))
        require(told.check_annotated(transcript))
        require(told.check_known(run_ids))
        require(told.check_recorded(events, floor))
        require(told.check_described(info.title))
        require(await wrong(ledger, conversation))
        acknowledged += sum(fate.lives for fate in told.fates())
    return acknowledged
