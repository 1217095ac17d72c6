"""Recorded runs that are joined somewhere, over AG-UI and the AI SDK: valid wherever, and exact."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from ledger import open_ledger
from ledger.http import make_app
from projector.events import to_event
from projector.formats.agui.stream_writer import AguiStreamWriter
from projector.formats.ai_sdk.stream_writer import AiSdkStreamWriter
from tests.http.agent_checks import check_agui, check_page, check_valid, state_at
from tests.http.asgi_streams import connect, resume
from tests.http.ui_clients import AguiClient, ChatPage
from tests.shared_data import needs_data
from tests.test_stream_writers import RECORDED, conversation_of, kept, stamped

if TYPE_CHECKING:
    from pathlib import Path

    from projector import Message
    from stream import Event

pytestmark = pytest.mark.anyio


def check_cut(bodies: list[Event], cut: int, messages: list[Message]) -> None:
    """An agent that has followed to somewhere before, a fresh one, and a page, that all connect at the cut."""
    followed, fresh, page = AguiClient(), AguiClient(), ChatPage()
    first, late, answer = AguiStreamWriter(thread_id="c"), AguiStreamWriter(thread_id="c"), AiSdkStreamWriter()
    followed.take(event for body in bodies[: cut // 2 + 1] for event in first.feed(body))
    runs = state_at(bodies, cut).open.values()
    events = late.resume(runs) + [event for body in bodies[cut:] for event in late.feed(body)]
    check_valid(events, messages)
    for client in (followed, fresh):
        client.connect()
        client.take(events)
        check_agui(client, messages)
    page.take(answer.resume(runs) + [chunk for event in bodies[cut:] for chunk in answer.feed(event)])
    check_page(page, messages)


def check_cuts(path: Path, count: int | None) -> None:
    for [run] in conversation_of(path):
        bodies, messages = stamped(run), kept(run)
        cuts = range(1, len(bodies))
        chance = random.Random(path.name)  # the same cuts each time
        for cut in cuts if count is None else chance.sample(cuts, min(count, len(cuts))):
            check_cut(bodies, cut, messages)


@needs_data
@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_recorded_run_cut_somewhere_is_valid_and_exact(path: Path) -> None:
    check_cuts(path, 3)


@needs_data
@pytest.mark.heavy
@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_recorded_run_cut_anywhere_is_valid_and_exact(path: Path) -> None:
    check_cuts(path, None)


@needs_data
@pytest.mark.heavy
async def test_a_recorded_run_is_followed_over_http_from_where_it_stands(tmp_path: Path) -> None:
    for number, path in enumerate(random.Random(1).sample(RECORDED, 12)):
        [[run]] = conversation_of(path)
        events = [to_event(body) for body in run]
        cut = random.Random(path.name).randrange(1, len(events))
        async with open_ledger(str(tmp_path / f"{number}.db")) as ledger:
            app = make_app(ledger)
            await ledger.record("c", events[:cut])
            async with connect(app) as agui, resume(app) as chat:
                await agui.until(b"MESSAGES_SNAPSHOT")
                for first in range(cut, len(events), 7):
                    await ledger.record("c", events[first : first + 7])
                    await asyncio.sleep(0)
                await agui.end()
                await chat.end()
            assert agui.is_whole
            assert chat.is_whole
            client, page = AguiClient(), ChatPage()
            client.take(agui.data())
            page.take(chat.data())
            messages = await ledger.transcript("c", branch="all")
            check_valid(agui.data(), messages)
            check_agui(client, messages)
            check_page(page, messages)
            assert chat.body.endswith(b"data: [DONE]\n\n")
            async with connect(app) as later:
                await later.end()
            client.connect()
            client.take(later.data())
            check_agui(client, messages)
