"""SIGSTOP at any statement of what a process does, others go on meanwhile, SIGCONT: nothing acknowledged is lost or undone."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, NamedTuple
from unittest.mock import patch

import anyio
import pytest

from stream.sqlite import SqliteStore
from tests.faults.children import Child, Parent
from tests.faults.history import NEVER, Diary, watched
from tests.faults.sizes import size
from tests.faults.stopping import Stopping, is_stopped
from tests.faults.writers import LATE, Writers, check_all, open_at, shorten_leases
from tests.needles import wrong

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.anyio, pytest.mark.heavy]
ROUNDS: Final = size(smoke=12, full=200)
OPERATIONS: Final = ("erase", "talk", "compact", "erase", "hold", "compact", "repair", "pack", "annotate", "redact")
MEANWHILE: Final = (
    "erase",
    "talk",
    "talk",
    "fork",
    "begin",
    "compact",
    "repair",
    "hold",
    "annotate",
    "redact",
    "describe",
    "record",
)
CONVERSATIONS: Final = ("a", "b", "c")
LIMIT_S: Final = 60  # for what waits for a lease, on a machine that does much else


class Plan(NamedTuple):
    """What a process does to a conversation, and at which of its statements it is stopped."""

    operation: str
    conversation: str
    message_id: str | None
    at: int
    moment: str
    may_hold: bool = False
    takes_over: bool = False
    is_fenced: bool = True


async def live(parent: Parent, folder: str, name: str, plan: Plan) -> int:
    """How many statements it took."""
    stopping = Stopping(plan.at, plan.moment, lambda holds_up: parent.say(("stopped", holds_up)), may_hold=plan.may_hold)
    diary = Diary(f"{folder}/{name}.diary")
    with ExitStack() as patches:
        shorten_leases(patches, busy_s=0.5)
        patches.enter_context(watched(diary))
        if not plan.is_fenced:
            delete = SqliteStore.delete

            async def delete_whatever_there_is(store: SqliteStore, stream_id: str, **_: int) -> None:
                parent.say(("stopped", False))
                os.kill(os.getpid(), signal.SIGSTOP)
                await delete(store, stream_id)

            patches.enter_context(patch.object(SqliteStore, "delete", delete_whatever_there_is))
        async with open_at(folder) as ledger:
            assert isinstance(ledger.store, SqliteStore)
            stopping.watch(ledger.store.database)
            stopping.is_armed = True
            await Writers(ledger, diary, random.Random(name), name).do(plan.operation, plan.conversation, plan.message_id)
            await ledger.store.settle()
            stopping.is_armed = False
    return stopping.count


async def take_round(folder: str, plan: Plan, name: str, others: Writers, chance: random.Random) -> tuple[bool, int]:
    """Whether the process was stopped, and how many statements it took."""
    child = Child(live, folder, name, plan)
    try:
        child.say("go")
        heard, value = await asyncio.to_thread(child.hear)
        if heard != "stopped":
            assert heard == "returned", value
            return False, value
        while not is_stopped(child.pid):
            await asyncio.sleep(0.001)
        first = [plan.operation, "talk"] if plan.takes_over else []  # does it instead, and begins anew
        more = chance.choices(MEANWHILE, k=chance.randint(1, 4)) if plan.is_fenced else []
        await go_on(others, plan, (first + more)[: 1 if value else None])
        os.kill(child.pid, signal.SIGCONT)
        beside = go_on(others, plan, chance.choices(MEANWHILE, k=chance.randint(0, 2) if plan.is_fenced else 0))
        _, statements = await asyncio.gather(beside, asyncio.to_thread(child.result))
        return True, statements
    finally:
        child.end()


async def go_on(others: Writers, plan: Plan, what: list[str]) -> None:
    for each in what:
        with anyio.fail_after(LIMIT_S):
            await others.do(each, plan.conversation, plan.message_id)


async def test_who_is_stopped_anywhere_and_goes_on_harms_nothing_that_came_since(tmp_path: Path, chance: random.Random) -> None:
    statements: dict[tuple[str, str], int] = {}
    stopped, turns = Counter[str](), Counter[tuple[str, str]]()
    with ExitStack() as patches:
        shorten_leases(patches, busy_s=0.5)
        patches.enter_context(watched(diary := Diary(tmp_path / "others.diary")))
        async with open_at(tmp_path) as ledger:
            others = Writers(ledger, diary, chance, "others")
            for conversation in CONVERSATIONS:
                await others.do("talk", conversation, None)
            for number in range(ROUNDS):
                operation, conversation = OPERATIONS[number % len(OPERATIONS)], chance.choice(CONVERSATIONS)
                if operation in {"annotate", "redact"} or not await ledger.transcript(conversation):
                    await others.do("talk", conversation, None)
                message_ids = [message.id for message in await ledger.transcript(conversation)]
                moment = chance.choice(["write", "write", "before", "after"])
                last = statements.get((operation, moment), 4)
                turns[operation, moment] += 1  # each place in its turn
                at = turns[operation, moment] % last + 1 if moment == "write" else chance.randint(1, last)
                message_id = chance.choice(message_ids) if message_ids else None
                may_hold, takes_over = chance.random() < 0.1, chance.random() < 0.6
                plan = Plan(operation, conversation, message_id, at, moment, may_hold, takes_over)
                try:
                    was_stopped, count = await take_round(str(tmp_path), plan, f"round{number}", others, chance)
                    stopped[operation] += was_stopped
                    statements[operation, moment] = max(count, 1)
                    await check_all(ledger, tmp_path, [conversation], *LATE)
                except BaseException as error:
                    error.add_note(f"round {number}: {plan}")
                    raise
            lives = await check_all(ledger, tmp_path, [*CONVERSATIONS], *LATE)
            assert await wrong(ledger) == []
    print(f"{ROUNDS} rounds, stopped in {dict(stopped)}, {lives} runs acknowledged that live")
    assert sum(stopped.values()) > ROUNDS / 2


async def test_canary_an_erase_that_deletes_what_it_has_not_seen_is_caught(tmp_path: Path, chance: random.Random) -> None:
    plan = Plan("erase", "a", None, NEVER, "write", takes_over=True, is_fenced=False)
    with ExitStack() as patches:
        shorten_leases(patches, busy_s=0.5)
        patches.enter_context(watched(diary := Diary(tmp_path / "others.diary")))
        async with open_at(tmp_path) as ledger:
            others = Writers(ledger, diary, chance, "others")
            await others.do("talk", "a", None)
            was_stopped, _ = await take_round(str(tmp_path), plan, "round", others, chance)
            assert was_stopped
            with pytest.raises(AssertionError, match="the log begins behind"):
                await check_all(ledger, tmp_path, ["a"], *LATE)
