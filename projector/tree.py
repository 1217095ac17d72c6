"""The tree of messages: which child of a fork is followed, and what a reader sees.

Everything here is a function of a few words about each message. The ledger answers the same questions from its tables
without looking at all of them; this is what it is tested against, and what stands in where a tree has lost roots.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from stream.checks import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ROOT: Final = ""  # the virtual root, as selections name it


class Node(NamedTuple):
    """A message in the tree. `started` is the seq of its run's `run.started`.

    `is_committed` is false for the finished messages of a failed run. `selected` is the seq of the newest
    `branch.selected` that goes through this message, 0 without one.
    """

    id: str
    parent_id: str | None
    started: int
    is_committed: bool = True
    selected: int = 0


class ForkPoint(NamedTuple):
    """A parent (None: the virtual root) with several children, by the start of their runs."""

    parent_id: str | None
    children: tuple[str, ...]
    active: str


def rank(node: Node) -> tuple[int, int]:
    """Of siblings the one with the highest rank is followed.

    A committed one that started last, or one selected after that; without either the one that started last.
    """
    return max(node.started if node.is_committed else 0, node.selected), node.started


def resolve(nodes: Sequence[Node], selections: Mapping[str, str] | None = None) -> list[str]:
    """The ids of the path from the root, in order, with `{parent: child}` for other turns at forks.

    A selection that names no child of its parent is passed over. Messages whose parent is unknown come behind the
    path, each with what follows it. `nodes` are in the order of the log.
    """
    families = _families(nodes)
    path = _walk(families, None, selections or {})
    known = {node.id for node in nodes}
    for lost in families:
        if lost is not None and lost not in known:
            path += _walk(families, lost, selections or {})
    return path


def follow(nodes: Sequence[Node], branch: object) -> list[str]:
    """The ids that a branch shows: `active`, `all`, or the path with `{parent: child}` for other turns at forks.

    Raises `ValueError` for anything else.
    """
    if branch == "all":
        return [node.id for node in nodes]
    return resolve(nodes, {} if branch == "active" else turns_of(branch))


def turns_of(branch: object) -> dict[str, str]:
    """The turns that a branch names, `{parent: child}`. Raises `ValueError` for what is no branch."""
    turns = dict(branch) if isinstance(branch, Mapping) else None
    if turns is None or not all(isinstance(parent, str) and isinstance(child, str) for parent, child in turns.items()):
        raise ValueError(f"{shown(branch)} is no branch: use 'active' or 'all', or name turns as {{parent id: child id}}")
    return turns


def select(nodes: Iterable[Node], message_id: str, seq: int) -> list[Node]:
    """The nodes after `branch.selected`: each turn on the way to the message is chosen."""
    found = {node.id: node for node in nodes}
    chosen = set[str]()
    at = found.get(message_id)
    while at is not None and at.id not in chosen:
        chosen.add(at.id)
        at = found.get(at.parent_id or ROOT)
    return [node._replace(selected=max(node.selected, seq)) if node.id in chosen else node for node in found.values()]


def fork_points(nodes: Sequence[Node]) -> list[ForkPoint]:
    """Where the tree forks, in the order of the first child in the log."""
    return [
        ForkPoint(parent, tuple(child.id for child in sorted(family, key=_start)), max(family, key=rank).id)
        for parent, family in _families(nodes).items()
        if len(family) > 1
    ]


def superseded(nodes: Sequence[Node]) -> set[str]:
    """The messages that have a committed sibling which started later."""
    return {
        node.id
        for family in _families(nodes).values()
        for node in family
        if any(other.is_committed and other.started > node.started for other in family)
    }


def leaf_of(nodes: Iterable[Node], selections: Mapping[str, str] | None = None) -> str | None:
    """The end of the path from the root."""
    path = _walk(_families(nodes), None, selections or {})
    return path[-1] if path else None


def unreachable(nodes: Iterable[Node]) -> list[str]:
    """The messages that hang on nothing but each other."""
    nodes = list(nodes)
    families = _families(nodes)
    known = {node.id for node in nodes}
    waiting: list[str | None] = [parent for parent in families if parent is None or parent not in known]
    found = set[str]()
    while waiting:
        children = [child.id for child in families.get(waiting.pop(), ())]
        found.update(children)
        waiting += children
    return [node.id for node in nodes if node.id not in found]


def _families(nodes: Iterable[Node]) -> dict[str | None, list[Node]]:
    families: dict[str | None, list[Node]] = {}
    for node in nodes:
        families.setdefault(node.parent_id, []).append(node)
    return families


def _walk(families: Mapping[str | None, Sequence[Node]], parent: str | None, selections: Mapping[str, str]) -> list[str]:
    path: list[str] = []
    while family := families.get(parent):  # a circle has no way in from a root, so this ends
        chosen = selections.get(parent or ROOT)
        node = next((child for child in family if child.id == chosen), None) or max(family, key=rank)
        path.append(node.id)
        parent = node.id
    return path


def _start(node: Node) -> int:
    return node.started
