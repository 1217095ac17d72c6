"""`Ledger.context`: what is sent of a path, what is remembered of it, and that nothing is changed by looking."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from ledger import NoSend, UnknownRun, open_ledger
from projector.context.budget import Budget
from projector.context.chain import ChainSession
from projector.context.delta import Delta, Full, ProviderCapabilities
from projector.context.pipeline import Pipeline, Summaries
from projector.context.plugins import DEFAULT, Bundled, keep_window
from projector.json_text import encode
from stream.clock import now_ms
from tests.raw_bytes import readable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ledger import Ledger
    from projector import Message

pytestmark = pytest.mark.anyio
STATEFUL = ProviderCapabilities(session_resumption=True, history_management="session-stateful")


async def talk(ledger: Ledger, *texts: str, conversation: str = "c") -> None:
    """A run for each question, with its answer."""
    for text in texts:
        async with ledger.run(conversation) as run:
            await run.message("user", text)
            await run.step()
            await run.text(f"answer to {text}")


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]


class Summarizer:
    """Says what it was given."""

    def __init__(self, *, raises: bool = False) -> None:
        self.given: list[list[str]] = []
        self.raises = raises

    async def __call__(self, messages: Sequence[Message]) -> str:
        self.given.append(texts(messages))
        if self.raises:
            raise RuntimeError("no summary today")
        return f"summary {len(self.given)}"


def summaries(summarizer: Summarizer, max_tokens: int = 40, **more: Any) -> Pipeline:
    return Pipeline(summaries=Summaries(Budget(max_tokens), summarizer, keep=2, **more))


def windowed(max_ctx: int) -> Pipeline:
    return Pipeline(chain=(Bundled(DEFAULT, keep_window),), session=ChainSession(max_ctx=max_ctx))


async def test_without_any_stage_the_view_is_the_path(ledger: Ledger) -> None:
    await talk(ledger, "one", "two")
    context = await ledger.context("c")
    assert list(context.messages) == await ledger.transcript("c")
    assert context.send == Full(context.view.messages, None)
    assert not context.view.changes
    assert context.tokens == context.view.tokens == context.view.tokens_of_path


async def test_the_view_of_an_open_run_holds_what_it_has_said_and_counts_its_prompts(ledger: Ledger) -> None:
    await talk(ledger, "one", "two")
    async with ledger.run("c") as run:
        await run.message("user", "three")
        await run.step()
        await run.text("thinking")
        context = await ledger.context("c", run=run)
        assert texts(context.messages)[-3:] == ["answer to two", "three", "thinking"]
        assert context.view.source.turn == 3
        ids = [message.id for message in context.messages]
        assert [context.view.source.turns[message_id] for message_id in ids] == [0, 1, 1, 2, 2, 3]
    with pytest.raises(UnknownRun):
        await ledger.context("c", run=run.run_id)


async def test_prompts_of_another_branch_do_not_age_anything(ledger: Ledger) -> None:
    await talk(ledger, "one")
    path = await ledger.transcript("c")
    await talk(ledger, "two", "three")
    async with ledger.fork("c", path[-1].id) as run:
        await run.message("user", "or")
    assert (await ledger.context("c")).view.source.turn == 1
    async with ledger.fork("c", path[0].id) as run:  # in the middle of a run, ahead of its prompt
        await run.message("user", "why?")
    context = await ledger.context("c")
    assert (texts(context.messages), context.view.source.turn) == (["one", "why?"], 0)


async def test_a_window_is_told_message_by_message(ledger: Ledger) -> None:
    await talk(ledger, "one", "two")
    context = await ledger.context("c", pipeline=windowed(3))
    assert texts(context.messages) == ["answer to one", "two", "answer to two"]
    [change] = context.view.changes
    assert (change.stage, change.what, change.saved) == ("chain", "left_out", 1)
    assert "window of 3" in change.why


async def test_a_summary_is_recorded_used_again_and_made_anew_when_more_is_old(ledger: Ledger) -> None:
    await talk(ledger, "one " * 40, "two", "three")
    summarizer = Summarizer()
    pipeline = summaries(summarizer)
    first = await ledger.context("c", pipeline=pipeline)
    assert texts(first.messages) == ["summary 1", "three", "answer to three"]
    again = await ledger.context("c", pipeline=pipeline)
    assert (encode(list(again.messages)), again.view.records) == (encode(list(first.messages)), ())
    await talk(ledger, "four " * 40, "five")
    later = await ledger.context("c", pipeline=pipeline)
    assert texts(later.messages) == ["summary 2", "five", "answer to five"]
    assert summarizer.given[1][0] == "summary 1"
    assert len(summarizer.given) == 2
    assert {change.what for change in later.view.changes} >= {"left_out", "added"}
    assert "four " * 40 in texts(await ledger.transcript("c"))


async def test_a_summary_is_of_its_branch_only(ledger: Ledger) -> None:
    await talk(ledger, "one")
    fork_at = (await ledger.transcript("c"))[-1].id
    await talk(ledger, "left " * 40, "three")
    await ledger.context("c", pipeline=summaries(Summarizer()))
    async with ledger.fork("c", fork_at) as run:
        await run.message("user", "right")
    context = await ledger.context("c", pipeline=Pipeline(summaries=Summaries(Budget(10_000))))
    assert texts(context.messages) == ["one", "answer to one", "right"]


async def test_pinned_messages_and_system_stay_and_a_failed_summary_changes_nothing(ledger: Ledger) -> None:
    async with ledger.run("c") as run:
        await run.message("system", "be kind")
        pinned = await run.message("user", "my name is Ada")
    await talk(ledger, "one " * 40, "two", "three")
    failing = Summarizer(raises=True)
    whole = await ledger.context("c", pipeline=summaries(failing))
    assert list(whole.messages) == await ledger.transcript("c")
    assert len(failing.given) == 1
    context = await ledger.context("c", pipeline=summaries(Summarizer(), pinned=frozenset({pinned})))
    assert texts(context.messages) == ["be kind", "summary 1", "my name is Ada", "three", "answer to three"]


async def test_the_same_view_is_made_after_a_restart_and_a_compaction(tmp_path: Path) -> None:
    path = str(tmp_path / "c.db")
    async with open_ledger(path) as ledger:
        await talk(ledger, "one " * 40, "two", "three")
        first = await ledger.context("c", pipeline=summaries(Summarizer()))
    async with open_ledger(path) as ledger:
        await ledger.compact("c")
        second = await ledger.context("c", pipeline=summaries(Summarizer()))
        assert (second.view.view_id, encode(list(second.messages))) == (first.view.view_id, encode(list(first.messages)))
        assert second.view.source.turn == 3
        assert not [finding async for finding in ledger.reconcile()]


async def test_looking_changes_neither_transcript_nor_ids(ledger: Ledger) -> None:
    await talk(ledger, "one " * 40, "two", "three")
    before = await ledger.transcript("c")
    kept = encode(before)
    await ledger.context("c", pipeline=summaries(Summarizer()))
    await ledger.context("c", pipeline=windowed(1))
    assert encode(await ledger.transcript("c")) == encode(before) == kept


async def test_a_provider_that_keeps_the_session_gets_what_it_lacks(ledger: Ledger) -> None:
    await talk(ledger, "one")
    first = await ledger.context("c", provider="p", capabilities=STATEFUL)
    assert isinstance(first.send, Full)
    assert first.send.reason == "first_use"
    await ledger.begin_send(first, session_id="s1")
    await talk(ledger, "two")
    reply = (await ledger.transcript("c"))[-1].id
    await ledger.acknowledge(first, [reply], session_id="theirs")
    second = await ledger.context("c", provider="p", capabilities=STATEFUL)
    assert isinstance(second.send, Delta)
    assert second.session is not None
    assert second.session.session_id == "theirs"
    assert texts(second.messages) == ["two"]
    other = await ledger.context("c", provider="q", capabilities=STATEFUL)
    assert isinstance(other.send, Full)
    await ledger.begin_send(second)
    after_crash = await ledger.context("c", provider="p", capabilities=STATEFUL)
    assert isinstance(after_crash.send, Full)
    assert after_crash.send.reason == "unacknowledged_send"
    await ledger.received(second, [])
    proven = await ledger.context("c", provider="p", capabilities=STATEFUL)
    assert texts(proven.messages) == ["two"]


async def test_a_session_ends_by_the_time_of_this_machine_where_no_other_is_given(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def why(**options: Any) -> str | None:
        send = (await ledger.context("c", provider="p", capabilities=STATEFUL, **options)).send
        return send.reason if isinstance(send, Full) else None

    async def send(expires_at: int) -> None:
        context = await ledger.context("c", provider="p", capabilities=STATEFUL)
        await ledger.begin_send(context, expires_at=expires_at)
        await ledger.acknowledge(context)

    await talk(ledger, "one")
    await send(1)  # in 1970
    assert [await why(), await why(mode="delta"), await why(now=0)] == ["expired", "expired", None]
    ends = now_ms() + 3_600_000
    await send(ends)
    assert await why() is None
    monkeypatch.setattr(time, "time_ns", lambda: ends * 1_000_000)
    assert await why() == "expired"


async def test_what_nobody_began_to_send_can_not_be_acknowledged(ledger: Ledger) -> None:
    await talk(ledger, "one")
    context = await ledger.context("c", provider="p", capabilities=STATEFUL)
    with pytest.raises(NoSend, match="begin_send"):
        await ledger.acknowledge(context)


async def test_erase_takes_what_is_remembered(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with open_ledger(str(path)) as ledger:
        await talk(ledger, "one " * 40, "two", "three")

        async def summarizer(messages: Sequence[Message]) -> str:
            return f"needle-{len(messages)}"

        await ledger.context("c", pipeline=Pipeline(summaries=Summaries(Budget(40), summarizer, keep=2)))
        assert json.dumps([choice.summary for _, choice in await ledger.tables.choices("c")])  # type: ignore[union-attr]
        await ledger.erase("c")
        assert await ledger.tables.choices("c") == []
    assert b"needle-" not in readable(path)
