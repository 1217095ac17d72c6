"""What the log of a conversation means for its tree, in the plainest way: what ledgers are held against.

It reads the events by themselves and knows nothing of the folds, of settling or of the ledger's tables. Of the tree it
asks `projector.tree`, over nodes that it has made itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from projector import Node, fork_points
from projector.tree import ROOT, resolve, select, superseded

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Sequence

    from ledger import Ledger
    from projector import Message
    from stream import Event

STATUSES: Final = {"completed": "committed", "incomplete": "committed", "cancelled": "cancelled", "failed": "failed"}
ACTIONS: Final = {"commit": "committed", "fail": "failed", "cancel": "cancelled"}


@dataclass
class Spoken:
    """A message of a run that is open."""

    seq: int
    text: str = ""
    block: str = "none"
    is_finished: bool = False


@dataclass
class Open:
    """A run without an end."""

    seq: int
    parent: str | None
    said: dict[str, Spoken] = field(default_factory=dict)
    asked_to_stop: bool = False


class Kept(NamedTuple):
    """A message that an ended run has left."""

    id: str
    parent: str | None
    run: str
    seq: int
    text: str
    on_path: bool


class Ran(NamedTuple):
    """What is told of a run."""

    parent: str | None
    status: str
    messages: int
    first: str | None


class Questions(NamedTuple):
    """What is asked of a conversation: paths by selections, with none the active one, and pages `(path, before, limit)`.

    A path is "all", or the place of its selections.
    """

    selections: list[dict[str, str]]
    pages: list[tuple[str | int, str | None, int | None]]


class TreeModel:
    """A conversation after the events it was given."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.open: dict[str, Open] = {}
        self.runs: dict[str, Ran] = {}
        self.kept: dict[str, Kept] = {}
        self.nodes: list[Node] = []
        self.selections: list[tuple[str, int]] = []
        self.head = 0
        for event in events:
            self.fold(event)

    def fold(self, event: Event) -> None:
        """Takes in what an event means; what does not fit where it comes means nothing."""
        self.head = event.seq
        body = json.loads(event.data)
        match event.type:
            case "run.started" if body["run_id"] not in self.open:
                parent = body["parent_message_id"]
                self.open[body["run_id"]] = Open(event.seq, parent)
                self.runs.setdefault(body["run_id"], Ran(parent, "open", 0, None))
            case "run.cancel_requested" if body["run_id"] in self.open:
                self.open[body["run_id"]].asked_to_stop = True
            case "message.started" | "tool.result":
                run = self.open.get(body["run_id"])
                if run is not None and self.spoken(body["message_id"]) is None:
                    is_whole = event.type == "tool.result"
                    run.said[body["message_id"]] = Spoken(event.seq, "result" if is_whole else "", is_finished=is_whole)
            case "block.started" | "block.delta" | "block.sealed" | "message.finished":
                spoken = self.spoken(body["message_id"])
                if spoken is not None and not spoken.is_finished:
                    _say(spoken, event.type, body)
            case "run.finished" if body["run_id"] in self.open:
                self._end(body["run_id"], STATUSES[body["outcome"]], keeps_nothing=False)
            case "run.recovered" if body["run_id"] in self.open:
                self._end(body["run_id"], ACTIONS[body["action"]], keeps_nothing=body["action"] == "cancel")
            case "branch.selected":
                self._select(body["message_id"], event.seq)

    def spoken(self, message_id: str) -> Spoken | None:
        """A message of a run that is open."""
        return next((run.said[message_id] for run in self.open.values() if message_id in run.said), None)

    @property
    def on_paths(self) -> list[str]:
        """The messages that a run can be begun behind."""
        return [node.id for node in self.nodes]

    @property
    def everything(self) -> list[Kept]:
        """Every message that is left, in the order of the log."""
        return sorted(self.kept.values(), key=lambda kept: kept.seq)

    @property
    def leaf(self) -> str | None:
        """What the next run continues: the end of the path, without the messages that have lost their parent."""
        leaf = None
        parents = {node.id: node.parent_id for node in self.nodes}
        for message_id in resolve(self.nodes):
            if parents[message_id] != leaf:
                break
            leaf = message_id
        return leaf

    @property
    def barring(self) -> set[str]:
        """The open runs that continue the leaf."""
        return {run_id for run_id, run in self.open.items() if run.parent == self.leaf}

    def told(self, questions: Questions) -> dict[str, Any]:
        """All that a ledger has to tell."""
        over = superseded(self.nodes)
        everything = self.everything
        paths = [resolve(self.nodes, selections) for selections in questions.selections]
        pages = []
        for path, before, limit in questions.pages:
            ids = [kept.id for kept in everything] if isinstance(path, str) else paths[path]
            page = ids[: None if before is None else ids.index(before)]
            pages.append(page[max(0, len(page) - limit) :] if limit is not None else page)
        return {
            "paths": paths,
            "all": [(kept.id, kept.parent, kept.run, kept.text) for kept in everything],
            "pages": pages,
            "leaf": self.leaf,
            "nodes": [node._replace(selected=0) for node in self.nodes],
            "forks": fork_points(self.nodes),
            "runs": {run_id: (run.parent, self._status(run_id, over), run.messages) for run_id, run in self.runs.items()},
            "open": list(self.open),
            "counts": (len(self.nodes), len(self.runs)),
        }

    def _status(self, run_id: str, over: set[str]) -> str:
        run = self.runs[run_id]
        if run.status == "open":
            return "streaming" if self.open[run_id].said or self.open[run_id].asked_to_stop else "created"
        return "superseded" if run.status == "committed" and run.first in over else run.status

    def _select(self, message_id: str, seq: int) -> None:
        if message_id in self.on_paths:
            self.selections.append((message_id, seq))
            self.nodes = select(self.nodes, message_id, seq)

    def _end(self, run_id: str, status: str, *, keeps_nothing: bool) -> None:
        run = self.open.pop(run_id)
        if self.runs[run_id].status != "open":
            return  # its id was used before: what it says is nobody's
        parent, path = run.parent, []
        for message_id, spoken in sorted(run.said.items(), key=lambda item: item[1].seq):
            if not spoken.text or message_id in self.kept or keeps_nothing:
                continue
            is_off = status == "failed" and not spoken.is_finished
            self.kept[message_id] = Kept(message_id, parent, run_id, spoken.seq, spoken.text, not is_off)
            if not is_off:
                path.append(Node(message_id, parent, run.seq, is_committed=status != "failed"))
                parent = message_id
        self.nodes = sorted([*self.nodes, *path], key=lambda node: self.kept[node.id].seq)
        for chosen, seq in self.selections:  # the turns above it that come only now are chosen, too
            self.nodes = select(self.nodes, chosen, seq)
        self.runs[run_id] = Ran(run.parent, status, len(path), path[0].id if path else None)


def ask(model: TreeModel, chance: random.Random) -> Questions:
    """Questions about a conversation: other turns at its forks, some that are none, and pages of any path."""
    selections: list[dict[str, str]] = []
    forks = fork_points(model.nodes)
    for _ in range(2):
        chosen = {fork.parent_id or ROOT: chance.choice(fork.children) for fork in forks if chance.random() < 0.7}
        if model.nodes and chance.random() < 0.3:
            chosen |= {chance.choice(model.on_paths): chance.choice([*model.on_paths, "nobody"]), "nobody": "nothing"}
        selections.append(chosen)
    selections.append({})
    pages: list[tuple[str | int, str | None, int | None]] = []
    for path in ("all", chance.randrange(len(selections))):
        ids = [kept.id for kept in model.everything] if isinstance(path, str) else resolve(model.nodes, selections[path])
        limits = [0, 1, 2, len(ids), len(ids) + 1]
        pages.append((path, None, chance.choice(limits)))
        if ids:
            pages.append((path, chance.choice(ids), chance.choice([*limits, None])))
    return Questions(selections, pages)


async def told_by(ledger: Ledger, conversation: str, questions: Questions) -> dict[str, Any]:
    """The same of a ledger."""
    everything = await ledger.transcript(conversation, branch="all")
    tree = await ledger.tree(conversation)
    info = await ledger.tables.conversation(conversation)
    assert info is not None
    assert info.leaf == tree.leaf
    pages = []
    for path, before, limit in questions.pages:
        if isinstance(path, str):
            page = await ledger.transcript(conversation, branch="all", before=before, limit=limit)
        else:
            chosen = questions.selections[path]
            page = await ledger.transcript(conversation, selections=chosen, before=before, limit=limit)
        pages.append(_ids(page))
    return {
        "paths": [_ids(await ledger.transcript(conversation, selections=chosen)) for chosen in questions.selections],
        "all": [(m.id, m.parent_id, m.run_id, m.text if m.role != "tool" else "result") for m in everything],
        "pages": pages,
        "leaf": tree.leaf,
        "nodes": [node._replace(selected=0) for node in tree.nodes],
        "forks": tree.forks,
        "runs": {r.run_id: (r.parent_message_id, r.status, r.messages) async for r in ledger.runs(conversation)},
        "open": [run.run_id for run in await ledger.open_runs(conversation)],
        "counts": (info.messages, info.runs),
    }


def _say(spoken: Spoken, kind: str, body: dict[str, Any]) -> None:
    match kind, spoken.block:
        case "block.started", "none":
            spoken.block = "live"
        case "block.delta", "live":
            spoken.text += body["text"]
        case "block.sealed", "live":
            spoken.block = "sealed"
        case "message.finished", _:
            spoken.is_finished = True


def _ids(messages: Sequence[Message]) -> list[str]:
    return [message.id for message in messages]
