"""Sessions of users under load, and the chain of a running program with its runtime commands."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from ledger.history import HistoryRuntime, SessionRegistry, TooManySessions
from ledger.history.discovery import discover
from ledger.history.sessions import UnknownSession
from ledger.history.settings import read_configuration
from projector.context.model_registry import ModelConfig, UnknownModel
from tests.history_chains import text

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio
MODELS = {"big": ModelConfig(128), "small": ModelConfig(2), "free": ModelConfig()}
PATH = [text(f"m{number}", "user" if number % 2 == 0 else "assistant") for number in range(7)]


class Disk:
    """Saves and restores, as slowly and as badly as a test wants."""

    def __init__(self) -> None:
        self.saved: dict[str, str] = {}
        self.broken: set[str] = set()
        self.saving, self.go = asyncio.Event(), asyncio.Event()
        self.go.set()

    async def save(self, session_id: str, state: dict[str, Any]) -> None:
        written = json.dumps(state)
        self.saving.set()
        await self.go.wait()
        await asyncio.sleep(0)
        if session_id in self.broken:
            raise OSError("no space left")
        self.saved[session_id] = written

    async def restore(self, session_id: str) -> dict[str, Any] | None:
        await self.go.wait()
        await asyncio.sleep(0)
        if session_id in self.broken:
            raise OSError("can't be read")
        found: dict[str, Any] | None = json.loads(self.saved.get(session_id, "null"))
        return found


def registry(disk: Disk, *, max_users: int = 50) -> SessionRegistry:
    return SessionRegistry(save=disk.save, restore=disk.restore, max_users=max_users)


async def test_of_many_that_open_at_once_only_as_many_get_in_as_there_may_be() -> None:
    sessions = registry(Disk(), max_users=3)
    done = await asyncio.gather(*(sessions.open(f"s{number % 8}") for number in range(24)), return_exceptions=True)
    refused = [one for one in done if isinstance(one, TooManySessions)]
    assert len({id(one) for one in done if one not in refused}) == len(sessions) == 3
    assert len(refused) == 5 * 3


async def test_two_that_open_one_session_get_the_same_one() -> None:
    sessions = registry(Disk())
    first, second = await asyncio.gather(sessions.open("a"), sessions.open("a"))
    assert first is second


async def test_what_can_not_be_restored_takes_no_place() -> None:
    disk = Disk()
    disk.broken.add("a")
    sessions = registry(disk, max_users=1)
    with pytest.raises(OSError, match="can't be read"):
        await sessions.open("a")
    assert len(sessions) == 0
    disk.broken.clear()
    assert (await sessions.open("a")).id == "a"


async def test_one_that_is_given_up_while_it_opens_takes_no_place() -> None:
    disk = Disk()
    disk.go.clear()
    sessions = registry(disk, max_users=1)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(sessions.open("a"), 0.02)
    disk.go.set()
    assert (await sessions.open("b")).id == "b"


async def test_a_session_that_is_used_while_it_is_saved_stays() -> None:
    disk = Disk()
    sessions = registry(disk)
    session = await sessions.open("a", now=0)
    disk.go.clear()
    reaping = asyncio.create_task(sessions.reap(now=10_000))
    await disk.saving.wait()
    sessions.touch("a", now=0).state["model"] = "small"  # at the same time by the clock
    disk.go.set()
    assert await reaping == []
    assert sessions.get("a") is session


async def test_a_session_that_is_opened_while_it_is_reaped_is_restored_whole() -> None:
    disk = Disk()
    sessions = registry(disk, max_users=1)
    (await sessions.open("a", now=0)).state["model"] = "small"
    disk.go.clear()
    reaping = asyncio.create_task(sessions.reap(now=10_000))
    await disk.saving.wait()
    opening = asyncio.create_task(sessions.open("a", now=10_000))
    await asyncio.sleep(0.01)
    disk.go.set()
    assert await reaping == ["a"]
    assert (await opening).state == {"model": "small"}
    assert (await opening).last_active == 10_000


async def test_one_that_can_not_be_saved_stays_and_keeps_no_other() -> None:
    disk = Disk()
    sessions = registry(disk)
    for name in "abc":
        await sessions.open(name, now=0)
    disk.broken.add("a")
    with capture_logs() as logs:
        assert await sessions.reap(now=10_000) == ["b", "c"]
    assert [(log["event"], log["session_id"], log["why"]) for log in logs] == [("history.session_not_saved", "a", "OSError")]
    with pytest.raises(OSError, match="no space left"):
        await sessions.close("a")
    assert sessions.get("a").id == "a"


async def test_what_is_said_while_a_session_is_closed_is_saved_too() -> None:
    disk = Disk()
    sessions = registry(disk)
    await sessions.open("a")
    disk.go.clear()
    closing = asyncio.create_task(sessions.close("a"))
    await disk.saving.wait()
    sessions.touch("a").state["model"] = "small"
    disk.go.set()
    await closing
    assert json.loads(disk.saved["a"]) == {"model": "small"}
    with pytest.raises(UnknownSession):
        sessions.touch("a")


async def test_the_reaper_runs_by_itself_and_ends_with_its_block() -> None:
    now = 0.0
    sessions = SessionRegistry(timeout_minutes=1, clock=lambda: now)
    await sessions.open("a")
    async with sessions.reaping(every_s=0.01):
        await asyncio.sleep(0.05)
        assert len(sessions) == 1
        now = 61.0
        async with asyncio.timeout(20):
            while len(sessions):
                await asyncio.sleep(0.01)
        await sessions.open("b")
    now = 1000.0
    await asyncio.sleep(0.03)
    assert len(sessions) == 1


@pytest.mark.parametrize("limits", [{"max_users": 0}, {"max_users": -1}, {"timeout_minutes": -1}, {"timeout_minutes": True}])
async def test_limits_out_of_range_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="whole number"):
        SessionRegistry(**limits)


def runtime(tmp_path: Path, settings: dict[str, Any] | None = None) -> HistoryRuntime:
    path = tmp_path / "plugins-enabled.json"
    if settings is not None:
        path.write_text(json.dumps(settings))
    return HistoryRuntime.open(path, models=MODELS, sessions=SessionRegistry(), default_model="big", folder=tmp_path)


async def test_commands_are_answered_in_words(tmp_path: Path) -> None:
    history = runtime(tmp_path)
    session = await history.sessions.open("a")
    asked = [
        "!model small",
        "!model nope",
        "!maxctx 4 temp",
        "!model free",
        "!maxctx 0",
        "!maxusers 1",
        "!sessiontimeout 0",
        "hi",
    ]
    assert [await history.obey(line, session, PATH) for line in asked] == [
        "the model is small: 5 removed, 2 kept",
        "there is no model 'nope': there are big, free, small; nothing was changed",
        "at most 4 messages are shown, until the program ends: 5 removed, 2 kept",
        "the model is free: 3 removed, 4 kept",
        "!maxctx must be a whole number from 1 to 1,000,000,000, not 0; nothing was changed",
        "the limit of sessions is 1; open now: 1",
        "idle sessions stay",
        None,
    ]
    assert session.state == {"model": "free"}
    assert len((await history.show(session, PATH)).messages) == 4
    with pytest.raises(TooManySessions):
        await history.sessions.open("b")
    assert not history.path.exists()  # nothing of this was to be kept


async def test_another_ceiling_is_kept_with_keys_of_others(tmp_path: Path) -> None:
    history = runtime(tmp_path, {"colour": "blau", "max_users": 7})
    session = await history.sessions.open("a")
    assert await history.obey("!maxctx 3", session, PATH) == "at most 3 messages are shown: 4 removed, 3 kept"
    assert read_configuration(history.path, discover()).agent_max_ctx == 3
    assert json.loads(history.path.read_text())["colour"] == "blau"
    assert runtime(tmp_path).sessions.max_users == 7


async def test_a_settings_file_that_broke_meanwhile_is_told_and_left_alone(tmp_path: Path) -> None:
    history = runtime(tmp_path, {})
    session = await history.sessions.open("a")
    history.path.write_text('{"max_users": 5')
    told = await history.obey("!maxctx 3", session, PATH)
    assert told is not None
    assert "line 1" in told
    assert told.endswith("nothing was changed")
    assert history.configuration.agent_max_ctx == 200
    assert history.path.read_text() == '{"max_users": 5'


async def test_a_window_that_a_plugin_chose_lasts_until_the_next_switch(tmp_path: Path) -> None:
    (tmp_path / "plugin_history_narrow.py").write_text(
        "NAME = 'narrow'\n"
        "def process(history, session, model_cfg):\n    return list(history)\n"
        "def on_model_switch(session, old_model, new_model, old_cfg, new_cfg):\n"
        "    if new_model == 'free':\n        session['history_max_ctx'] = 3\n"
        "    return list(session['history'])\n"
    )
    chain = ["plugin_history_default", "plugin_history_narrow"]
    history = runtime(tmp_path, {"plugin_config": {"plugin_history_default": {"chain": chain}}})
    session = await history.sessions.open("a")
    assert await history.obey("!model free", session, PATH) == "the model is free: 4 removed, 3 kept"
    assert len((await history.show(session, PATH)).messages) == 3
    assert await history.obey("!model big", session, PATH) == "the model is big: 0 removed, 7 kept"
    assert session.state == {"model": "big"}


async def test_a_window_that_was_saved_is_never_larger_than_the_ceiling_is_now(tmp_path: Path) -> None:
    history = runtime(tmp_path, {"plugin_config": {"plugin_history_default": {"agent_max_ctx": 4}}})
    session = await history.sessions.open("a")
    session.state |= {"model": "big", "max_ctx": 6}
    assert history.chain_session(session).max_ctx == 4


async def test_a_session_whose_model_is_gone_is_on_the_default_one(tmp_path: Path) -> None:
    history = runtime(tmp_path)
    session = await history.sessions.open("a")
    session.state |= {"model": "retired", "max_ctx": 1}
    assert history.chain_session(session).model == "big"
    assert len((await history.show(session, PATH)).messages) == 7
    with pytest.raises(UnknownModel):
        HistoryRuntime.open(tmp_path / "x.json", models=MODELS, sessions=SessionRegistry(), default_model="retired")
