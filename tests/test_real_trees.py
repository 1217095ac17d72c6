"""Real conversations that branch, and a real session of an agent, keep their form in a ledger (DESIGN §4, *The tree*)."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from ledger import Ledger, open_ledger
from ledger.upkeep.verify import verify
from projector import ForkPoint
from projector.tree import ROOT
from tests.talk import finished, said, started

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from projector import Message
    from projector.events import Outcome

DATA: Final = Path(__file__).parents[2] / "shared" / "data"
TREES: Final = DATA / "open-assistant" / "en_100_tree.jsonl.gz"
SEEDS: Final = DATA / "open-assistant" / "realistic_seed_data.json.gz"
SESSION: Final = DATA / "pi-mono" / "before-compaction.jsonl.gz"
PAGE: Final = 50
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.heavy,
    pytest.mark.skipif(not TREES.exists(), reason="the shared conversations are not beside this repository"),
]


class Said(NamedTuple):
    """A message of a file."""

    id: str
    parent: str | None
    role: str
    text: str


@pytest.fixture
async def ledger(tmp_path: Path, anyio_backend: object) -> AsyncIterator[Ledger]:
    del anyio_backend
    async with open_ledger(str(tmp_path / "c.db"), durability="normal") as opened:
        yield opened


def read_trees() -> list[list[Said]]:
    """Trees of replies, each in the order of its file: a message, its first reply with all that follows, the next."""

    def walk(message: dict[str, Any], parent: str | None) -> Iterator[Said]:
        role = "user" if message["role"] == "prompter" else "assistant"
        yield Said(message["message_id"], parent, role, message["text"])
        for reply in message["replies"]:
            yield from walk(reply, message["message_id"])

    with gzip.open(TREES, "rt", encoding="utf-8") as lines:
        return [list(walk(json.loads(line)["prompt"], None)) for line in lines]


def read_seeds() -> list[Said]:
    """One list of messages that name their parents, with many roots."""
    with gzip.open(SEEDS, "rt", encoding="utf-8") as file:
        return [
            Said(m["user_message_id"], m["parent_message_id"], "user" if m["role"] == "prompter" else "assistant", m["text"])
            for m in json.load(file)
        ]


def read_session() -> list[list[tuple[str, str, Outcome]]]:
    """The turns of a session, each from a user's message on: role, content as JSON, and how the message ended."""
    roles = {"user": "user", "assistant": "assistant", "toolResult": "tool", "bashExecution": "user"}
    outcomes: dict[str | None, Outcome] = {"aborted": "cancelled", "error": "failed"}
    turns: list[list[tuple[str, str, Outcome]]] = []
    with gzip.open(SESSION, "rt", encoding="utf-8") as lines:
        entries = [entry["message"] for entry in map(json.loads, lines) if entry["type"] == "message"]
    for message in entries:
        content = message["content"] if "content" in message else [message["command"], message["output"]]
        if roles[message["role"]] == "user" or not turns:
            turns.append([])
        text = json.dumps(content) if content else ""
        turns[-1].append((roles[message["role"]], text, outcomes.get(message.get("stopReason"), "completed")))
    return turns


async def test_every_path_of_real_trees_of_replies_is_there_by_selections(ledger: Ledger) -> None:
    trees = read_trees()
    for tree in trees:
        events = []
        for m in tree:
            run_id = f"run of {m.id}"
            events += [started(run_id, m.parent), *said(run_id, m.id, m.text, role=m.role), finished(run_id)]
        await ledger.record(tree[0].id, events)
    for tree in trees:
        await hold_against_file(ledger, tree[0].id, tree)
    assert {info.conversation: info.messages async for info in ledger.conversations()} == {t[0].id: len(t) for t in trees}
    await change_nothing(ledger, [tree[0].id for tree in trees])
    for tree in trees:
        await hold_against_file(ledger, tree[0].id, tree)
    print(len(trees), "trees", sum(map(len, trees)), "messages")


async def test_a_tree_that_is_begun_message_by_message_has_the_paths_of_its_file_under_new_ids(ledger: Ledger) -> None:
    minted: dict[str | None, str | None] = {None: None}
    tree = []
    for m in read_seeds():
        run = await ledger.begin_run("c", parent=minted[m.parent])
        minted[m.id] = message_id = await run.message("user" if m.role == "user" else "assistant", m.text)
        await run.finish()
        tree.append(Said(message_id, minted[m.parent], m.role, m.text))
    await hold_against_file(ledger, "c", tree)
    await change_nothing(ledger, ["c"])
    await hold_against_file(ledger, "c", tree)
    print(len(tree), "messages", sum(m.parent is None for m in tree), "roots")


async def hold_against_file(ledger: Ledger, conversation: str, tree: list[Said]) -> None:
    """Paths, siblings, the active one of them, counts, and which runs are superseded are those of the file."""
    found = {m.id: m for m in tree}
    children: dict[str | None, list[str]] = {}
    for m in tree:
        children.setdefault(m.parent, []).append(m.id)
    active = (await ledger.transcript(conversation))[-1]
    for leaf in [m for m in tree if m.id not in children]:
        path = list(path_to(found, leaf))
        selections = {m.parent or ROOT: m.id for m in path}
        assert as_said(await ledger.transcript(conversation, selections=selections)) == path
        assert active.id != leaf.id or all(children[m.parent][-1] == m.id for m in path)
    told = await ledger.tree(conversation)
    assert told.leaf == active.id
    assert active.id not in children
    forks = {fork.parent_id: fork for fork in told.forks}
    assert forks == {
        parent: ForkPoint(parent, tuple(family), family[-1]) for parent, family in children.items() if len(family) > 1
    }
    assert as_said(await ledger.transcript(conversation, branch="all")) == tree
    statuses = [run.status async for run in ledger.runs(conversation)]
    assert statuses == ["committed" if children[m.parent][-1] == m.id else "superseded" for m in tree]
    info = await ledger.tables.conversation(conversation)
    assert info is not None
    assert (info.messages, info.runs) == (len(tree), len(tree))


def path_to(found: dict[str, Said], leaf: Said) -> Iterable[Said]:
    """From the root down."""
    if leaf.parent is not None:
        yield from path_to(found, found[leaf.parent])
    yield leaf


async def change_nothing(ledger: Ledger, conversations: list[str]) -> None:
    """Compaction lets the whole log go, and there is nothing to find before and after."""
    assert [finding async for finding in verify(ledger)] == []
    for conversation in conversations:
        assert (await ledger.compact(conversation)).floor == (await ledger.store.bounds(conversation)).head
    assert [finding async for finding in verify(ledger)] == []


async def test_a_real_session_is_one_path_and_each_turn_can_be_asked_again(ledger: Ledger) -> None:
    turns = read_session()
    leaves: list[str] = []
    for turn in turns:
        run = await ledger.begin_run("c")
        ids = [await run.message(role, text) for role, text, _ in turn]  # type: ignore[arg-type]
        await run.finish(turn[-1][2])
        leaves.append(next(message_id for message_id, (_, text, _) in reversed([*zip(ids, turn, strict=True)]) if text))
    expected = [(role, text) for turn in turns for role, text, _ in turn if text]
    path = await ledger.transcript("c")
    assert [(message.role, message.text) for message in path] == expected
    assert await in_pages(ledger) == path
    assert [run.status async for run in ledger.runs("c")] == [
        {"completed": "committed"}.get(turn[-1][2], turn[-1][2]) for turn in turns
    ]
    again = leaves[:-1:8]
    for leaf in again:
        async with ledger.fork("c", leaf) as run:
            await run.message("user", "again")
        assert [message.id for message in await ledger.transcript("c")][-2] == leaf
        await ledger.select("c", leaves[-1])
        assert await ledger.transcript("c") == path
    assert [fork.parent_id for fork in (await ledger.tree("c")).forks] == again
    await change_nothing(ledger, ["c"])
    assert await in_pages(ledger) == path
    print(len(turns), "turns", len(path), "messages", len(again), "forks")


async def in_pages(ledger: Ledger) -> list[Message]:
    """The active path, from its end."""
    page = found = await ledger.transcript("c", limit=PAGE)
    while page:
        page = await ledger.transcript("c", before=found[0].id, limit=PAGE)
        found = [*page, *found]
    return found


def as_said(messages: Iterable[Message]) -> list[Said]:
    return [Said(message.id, message.parent_id, message.role, message.text) for message in messages]
