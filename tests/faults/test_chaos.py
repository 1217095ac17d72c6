"""Four processes do everything at once to one file, killed and stopped; judged by a model of what they were told."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter, defaultdict
from contextlib import ExitStack
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest

from ledger import Ledger, open_ledger
from tests.faults.chaos import CONVERSATIONS, live
from tests.faults.children import Child
from tests.faults.history import Call, end_diary, read_diaries
from tests.faults.sizes import size
from tests.faults.told import Told, check_order
from tests.faults.writers import read_all, require, shorten_leases
from tests.needles import wrong

if TYPE_CHECKING:
    import random
    from pathlib import Path

pytestmark = [pytest.mark.anyio, pytest.mark.heavy]
LIVES: Final = 4
LASTS_S: Final = size(smoke=15, full=600)
LIMIT_S: Final = 45  # what no call takes, whatever it had to wait for
LOOKS: Final = 200
ANSWERS: Final = (
    "RunLost", "RunOpen", "RunEnded", "UnknownMessage", "UnknownConversation", "UnknownRun", "HoldLost", "StoreBusy",
    "SendOvertaken", "NoSend", "SeqConflict",
)  # fmt: skip
"""What one may be told beside others."""


async def test_whatever_processes_do_at_once_killed_or_stopped_all_that_they_were_told_is_true(
    tmp_path: Path, chance: random.Random
) -> None:
    async with open_ledger(f"{tmp_path}/ledger.db") as ledger:
        for conversation in CONVERSATIONS:
            await ledger.describe(conversation, archived=False)
    killed, stopped = await go_wild(tmp_path, chance)
    calls = read_diaries(tmp_path)
    done = Counter(call.name for call in calls if call.is_done)
    async with open_ledger(f"{tmp_path}/ledger.db") as ledger:
        with ExitStack() as patches:
            shorten_leases(patches)
            await ledger.catch_up_all()
            check_answers(calls)
            for conversation in CONVERSATIONS:
                await check_conversation(ledger, Told(conversation, calls), chance)
            await check_copies(ledger, calls)
            require(await wrong(ledger))
    await check_backups(calls, chance)
    print(f"{killed} kills, {stopped} stops, {sum(done.values())} acknowledged: {dict(done)}")
    assert killed
    assert stopped
    assert done["finish"]


async def go_wild(folder: Path, chance: random.Random) -> tuple[int, int]:
    """Lets processes live; how often one was killed, and how often stopped for a while."""
    killed = stopped = number = 0
    lives: dict[str, Child] = {}
    ends = time.monotonic() + LASTS_S
    try:
        while time.monotonic() < ends:
            while len(lives) < LIVES:
                name, number = f"life{number}", number + 1
                lives[name] = Child(live, str(folder), name)
                lives[name].say("go")
            await asyncio.sleep(chance.uniform(0.1, 1.0))
            name = chance.choice([*lives])
            if chance.random() < 0.5:
                send(lives[name], signal.SIGSTOP)
                stopped += 1
                await asyncio.sleep(chance.choice([0.05, 0.3, 1.5]))
            send(lives[name], signal.SIGCONT)
            if chance.random() < 0.4:
                await asyncio.to_thread(lives.pop(name).end)
                end_diary(folder / f"{name}.diary")
                killed += 1
        for child in lives.values():
            child.say("end")
        for child in lives.values():
            await asyncio.to_thread(child.result)
    finally:
        for child in lives.values():
            child.end()
    return killed, stopped


def send(child: Child, what: signal.Signals) -> None:
    try:
        os.kill(child.pid, what)
    except ProcessLookupError:
        pytest.fail(f"a process ended by itself: {child.result()}")


def check_answers(calls: list[Call]) -> None:
    """Each call came back in time, unless its process was killed; with what it may be told."""
    require(call for call in calls if call.error and not call.error.startswith(ANSWERS))
    require(call for call in calls if call.latest - call.begun > LIMIT_S * 1e9)
    require(call for call in calls if call.name == "hold" and call.answer)
    require(call for call in calls if call.name in {"verify", "repair"} and call.answer)
    require(check_order(calls))


async def check_conversation(ledger: Ledger, told: Told, chance: random.Random) -> None:
    conversation = told.conversation
    transcript = await ledger.transcript(conversation, branch="all")
    bounds = await ledger.store.bounds(conversation)
    events = await read_all(ledger, conversation, bounds.floor)
    require(told.check_runs([(each.run_id or "", each.id, each.text) for each in transcript]))
    require(told.check_annotated(transcript))
    require(told.check_known({run.run_id async for run in ledger.runs(conversation)}))
    require(told.check_recorded(events, bounds.floor))
    require(told.check_origin(bounds.origin))
    info = await ledger.tables.conversation(conversation)
    require(told.check_described(info.title if info else None))
    assert [event.seq for event in events] == list(range(bounds.floor + 1, bounds.head + 1))
    check_followers(told)
    media = {call.what["media"] for call in told.of("media") if call.is_done and not told.may_be_erased(call.begun)}
    for media_id in media:
        await ledger.media(media_id)
    looks = [call for call in told.of("look") if call.is_done]
    for look in chance.sample(looks, min(LOOKS, len(looks))):
        require(f"{conversation} at {look.begun}: {each}" for each in told.at(look).check_runs(look.answer))


def check_followers(told: Told) -> None:
    """Each saw each event once, in order, and all saw the same."""
    seen: dict[int, list[object]] = {}
    of: defaultdict[str, list[Call]] = defaultdict(list)
    for call in told.of("saw", "replayed", "left"):
        of[call.process].append(call)
    for calls in of.values():
        for before, after in pairwise(sorted(calls, key=lambda call: call.begun)):
            if after.name == "saw" and before.name != "left":
                assert after.what["seq"] == before.what["seq"] + 1, f"{after} behind {before}"
    for call in told.of("saw"):
        event = [call.what["type"], call.what["crc"]]
        assert seen.setdefault(call.what["seq"], event) == event, call


async def check_copies(ledger: Ledger, calls: list[Call]) -> None:
    for call in calls:
        if call.name == "import" and call.is_done:
            there = [message.id for message in await ledger.transcript(call.conversation, branch="all")]
            assert sorted(there) == sorted(call.what["ids"]), call


async def check_backups(calls: list[Call], chance: random.Random) -> None:
    """Each is whole, and holds what was told when it was made."""
    backups = [call for call in calls if call.name == "backup" and call.is_done]
    for call in chance.sample(backups, min(20, len(backups))):
        async with open_ledger(call.what["path"], create=False) as backup:
            for conversation in CONVERSATIONS:
                if (await backup.store.bounds(conversation)).head:
                    there = await backup.transcript(conversation, branch="all")
                    told = Told(conversation, calls).at(call)
                    require(told.check_runs([(each.run_id or "", each.id, each.text) for each in there]))
            require(await wrong(backup))
