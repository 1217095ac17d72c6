"""A step that is taken back leaves the message that it began, and a branch is one of three things."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from projector import Block, Node
from projector.context.retention import AdditionalContent, PluginAdditions, enrich
from projector.folds import fold_transcript
from projector.state import State
from projector.tree import follow
from tests.talk import finished, new, number, said, started

if TYPE_CHECKING:
    from ledger import Ledger

pytestmark = pytest.mark.anyio


def block(message_id: str, text: str, *, seals: bool = True) -> list[Any]:
    begun = new("block.started", message_id=message_id, block=0, kind="text")
    grown = new("block.delta", message_id=message_id, block=0, text=text)
    return [begun, grown, *([new("block.sealed", message_id=message_id, block=0)] if seals else [])]


def step(phase: str) -> Any:
    return new("run.step", run_id="r", n=1, phase=phase)


@pytest.mark.parametrize("seals", [False, True])
async def test_a_message_that_a_step_began_goes_on_when_the_step_is_taken_back(ledger: Ledger, *, seals: bool) -> None:
    begins = new("message.started", run_id="r", message_id="m", role="assistant")
    ends = new("message.finished", message_id="m", status="complete")
    events = [
        started("r"), step("started"), begins, *block("m", "wrong", seals=seals), step("reset"), *block("m", "right"), ends,
        finished("r"),
    ]  # fmt: skip
    await ledger.record("c", events)
    [message] = await ledger.transcript("c")
    assert (message.id, message.text, message.status) == ("m", "right", "complete")
    assert await ledger.anomalies("c") == []
    state = State()
    for event in number(events):
        state = fold_transcript(state, event)
    assert list(state.messages.values()) == [replace(message, created_at=0)]
    assert len(state.anomalies) == 0


async def test_a_message_that_ended_within_the_step_goes_and_one_that_stays_empty_is_left_out(ledger: Ledger) -> None:
    begins = new("message.started", run_id="r", message_id="open", role="assistant")
    events = [started("r"), *said("r", "u", "hi", role="user"), step("started"), *said("r", "gone", "wrong"), begins]
    await ledger.record("c", [*events, *block("open", "wrong"), step("reset"), finished("r")])
    assert [message.id for message in await ledger.transcript("c", branch="all")] == ["u"]
    assert await ledger.anomalies("c") == []


NODES = [Node("r", None, 1), Node("a", "r", 2), Node("b", "r", 3)]


@pytest.mark.parametrize(
    ("branch", "ids"),
    [
        ("active", ["r", "b"]),
        ("all", ["r", "a", "b"]),
        ({}, ["r", "b"]),
        ({"r": "a"}, ["r", "a"]),
        ({"r": "nobody", "nobody": "a"}, ["r", "b"]),
    ],
)
async def test_a_branch_is_the_active_one_all_or_turns(ledger: Ledger, branch: Any, ids: list[str]) -> None:
    assert follow(NODES, branch) == ids
    await ledger.record("c", [started("1"), *said("1", "r", "x", role="user"), finished("1")])
    for name in ("a", "b"):
        await ledger.record("c", [started(name, "r"), *said(name, name, "y"), finished(name)])
    assert [message.id for message in await ledger.transcript("c", branch=branch)] == ids


@pytest.mark.parametrize(
    "branch", [None, "", "ACTIVE", "r", 1, True, ["active"], {"r": 1}, {1: "a"}, {"selections": {"r": "a"}}]
)
async def test_a_branch_that_is_none_is_refused(ledger: Ledger, branch: Any) -> None:
    with pytest.raises(ValueError, match="is no branch: use 'active' or 'all', or name turns"):
        follow(NODES, branch)
    await ledger.record("c", [started("1"), *said("1", "r", "x", role="user"), finished("1")])
    with pytest.raises(ValueError, match="is no branch"):
        await ledger.transcript("c", branch=branch)


@pytest.mark.parametrize("saved", [True, False, 0, 2])
@pytest.mark.parametrize("texts", [(), ("",), ("", "")])
def test_a_customization_whose_texts_are_all_empty_adds_nothing(texts: tuple[str, ...], saved: Any) -> None:
    own, body = Block("text", text="hi"), tuple(Block("text", text=text) for text in texts)
    empty = AdditionalContent(True, saved, body)
    found = enrich([own], [PluginAdditions("P", (empty,)), PluginAdditions("Q", (empty, empty))])
    assert found.display == found.persistent == (own,)
    assert found.retention_policy == (None,)
    beside = enrich([own], [PluginAdditions("P", (empty, AdditionalContent(False, 3, (Block("text", text="x"),))))])
    assert beside.display == (own,)
    assert beside.retention_policy == (None, 3, 3, 3)
