"""The command `tree`: the messages of a conversation, where it forks, and which turns are followed."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import typer  # noqa: TC002 - it is read when the program runs
from rich.text import Text
from rich.tree import Tree as Drawing

from ledger.admin.erased import print_erased
from ledger.admin.messages_in_words import brief
from ledger.admin.options import AsJson, Conversation, with_ledger
from ledger.admin.output import columns_of_terminal, counted, print_drawing, print_json
from ledger.admin.tables import TABLES_FROM
from ledger.signs import one_line
from ledger.standard_output import drawn
from projector.tree import resolve

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ledger.ledger import Ledger
    from ledger.records import RunInfo
    from ledger.transcript import Tree
    from projector import ForkPoint, Message, Node

_SHOWN_CHARACTERS: Final = 60
_MAX_LEVELS: Final = 8
_LEVEL_COLUMNS: Final = 4  # a turn is two of them deeper
_LEAST_SHOWN: Final = 20
_STATUS_STYLE: Final = {"committed": "green", "failed": "red", "created": "magenta", "streaming": "magenta", "open": "magenta"}


def tree(context: typer.Context, conversation: Conversation, *, as_json: AsJson = False) -> None:
    """Draw the tree of messages: forks, the active path (●), and what has become of each run."""

    async def job(ledger: Ledger) -> None:
        found = await ledger.tree(conversation)
        runs = {run.run_id: run async for run in ledger.runs(conversation)}
        known = {node.id for node in found.nodes}
        lines = {message.id: _Line.of(message) async for message in ledger.tables.all(conversation) if message.id in known}
        if as_json:
            print_json(_record(conversation, found, lines, runs))
            return
        await print_erased(ledger, conversation)
        for drawing in _Drawer(found, lines, runs, columns_of_terminal()).draw(conversation):
            print_drawing(drawing)

    with_ledger(context, job, only_looks=True)


class _Line(NamedTuple):
    """What is shown of a message."""

    run_id: str
    role: str
    text: str

    @classmethod
    def of(cls, message: Message) -> _Line:
        return cls(message.run_id, message.role, brief(message, _SHOWN_CHARACTERS))


def _record(conversation: str, tree: Tree, lines: dict[str, _Line], runs: dict[str, RunInfo]) -> dict[str, Any]:
    active = set(resolve(tree.nodes))

    def describe(node: Node) -> dict[str, Any]:
        line = lines.get(node.id)
        run = None if line is None else runs.get(line.run_id)
        return node._asdict() | {
            "run_id": None if line is None else line.run_id,
            "run_status": None if run is None else run.status,
            "role": None if line is None else line.role,
            "is_active": node.id in active,
        }

    return {
        "conversation": conversation,
        "nodes": [describe(node) for node in tree.nodes],
        "forks": [fork._asdict() for fork in tree.forks],
        "leaf": tree.leaf,
    }


class _Stretch(NamedTuple):
    """What follows a parent (None: from the root on) is still to be drawn, `level` deep in a drawing."""

    into: Drawing
    parent: str | None
    first: Node | None
    level: int


class _Drawer:
    """Draws without recursion: messages that follow each other stay on one level, other turns go one deeper."""

    def __init__(self, tree: Tree, lines: dict[str, _Line], runs: dict[str, RunInfo], width: int | None) -> None:
        self._lines = lines
        self._width = width
        self._runs = runs
        self._nodes = tree.nodes
        self._forks: dict[str | None, ForkPoint] = {fork.parent_id: fork for fork in tree.forks}
        self._children: dict[str | None, list[Node]] = {}
        for node in tree.nodes:
            self._children.setdefault(node.parent_id, []).append(node)
        self._active = set(resolve(tree.nodes))
        self._leaf = tree.leaf
        self._drawn: set[str] = set()
        self._silent: dict[str | None, list[RunInfo]] = {}
        speaking = {line.run_id for line in lines.values()}
        for run in runs.values():
            if run.run_id not in speaking:
                self._silent.setdefault(run.parent_message_id, []).append(run)
        self._later: deque[tuple[str, Node]] = deque()

    def draw(self, conversation: str) -> Iterable[Drawing]:
        """One drawing, and more for what has lost its parent or lies too deep in it."""
        counts = ", ".join(
            counted(len(found), name) for found, name in ((self._nodes, "message"), (self._runs, "run"), (self._forks, "fork"))
        )
        yield self._draw_stretch(Text.assemble((one_line(conversation), "bold"), (f"  {counts}", "dim")), None, None)
        yield from self._draw_later()
        known = {node.id for node in self._nodes}
        for parent in [parent for parent in self._children if parent is not None and parent not in known]:
            yield self._draw_stretch(Text(f"behind message {one_line(parent)}, which is not there", style="red"), parent, None)
            yield from self._draw_later()
        for node in self._nodes:
            if node.id not in self._drawn:
                yield self._draw_stretch(Text("behind itself: a circle", style="red"), node.parent_id, node)
                yield from self._draw_later()

    def _draw_later(self) -> Iterable[Drawing]:
        while self._later:
            title, first = self._later.popleft()
            yield self._draw_stretch(Text(title, style="bold"), first.parent_id, first)

    def _draw_stretch(self, title: Text, parent: str | None, first: Node | None) -> Drawing:
        drawing = Drawing(title)
        waiting = [_Stretch(drawing, parent, first, 0)]
        while waiting:
            waiting += self._go_along(waiting.pop())
        return drawing

    def _go_along(self, stretch: _Stretch) -> list[_Stretch]:
        """Draws the messages that are followed from here on; gives the other turns at their forks."""
        others: list[_Stretch] = []
        into, at, first, level = stretch
        run_id = None
        branch: Drawing = into
        while True:
            if first is None:
                followed, rest = self._turns(at)
                others += self._draw_others(branch, rest, level)
                self._draw_silent(branch, at)
            else:
                followed, first = first, None
            if followed is None or followed.id in self._drawn:
                return others
            self._drawn.add(followed.id)
            line = self._lines.get(followed.id)
            branch = into.add(self._describe(followed, line, level, is_first_of_run=line is not None and line.run_id != run_id))
            run_id = None if line is None else line.run_id
            at = followed.id

    def _turns(self, parent: str | None) -> tuple[Node | None, list[tuple[str, Node]]]:
        """The child that is followed, and the others, each with what it is called."""
        children = self._children.get(parent, [])
        if len(children) < 2 or parent not in self._forks:
            return (children[0] if children else None), []
        fork = self._forks[parent]
        by_id = {child.id: child for child in children}
        rest = [
            (f"turn {number} of {len(fork.children)}", by_id[child])
            for number, child in enumerate(fork.children, 1)
            if child != fork.active
        ]
        return by_id[fork.active], rest

    def _draw_others(self, branch: Drawing, rest: Sequence[tuple[str, Node]], level: int) -> list[_Stretch]:
        drawn = []
        for title, first in rest:
            if level >= _MAX_LEVELS:
                behind = f" behind {one_line(first.parent_id)}" if first.parent_id else ""
                branch.add(Text(f"{title}: drawn below", style="dim"))
                self._later.append((title + behind, first))
            else:
                drawn.append(_Stretch(branch.add(Text(title, style="dim")), first.parent_id, first, level + 1))
        return drawn

    def _draw_silent(self, branch: Drawing, parent: str | None) -> None:
        """Runs that begin here and have no message on a path: open, failed or cancelled ones."""
        for run in self._silent.get(parent, ()):
            branch.add(Text.assemble("run ", one_line(run.run_id), " ", _status(run), (", no message on a path", "dim")))

    def _describe(self, node: Node, line: _Line | None, level: int, *, is_first_of_run: bool) -> Text:
        """On a narrow terminal what is said stands below, as much of it as there is room for; ids are there whole."""
        width = self._width if self._width is not None and self._width < TABLES_FROM else None
        is_active = node.id in self._active
        text = Text(drawn("● ", "* ") if is_active else drawn("○ ", "o "), style="bold" if is_active else "dim")
        text.append(one_line(node.id))
        if line is not None:
            text.append(f"  {line.role}", style="cyan")
            if width is None:
                text.append(f"  {one_line(line.text)}", style="" if is_active else "dim")
        run = None if line is None else self._runs.get(line.run_id)
        if is_first_of_run and run is not None:
            text.append("  run ").append(one_line(run.run_id)).append(" ").append_text(_status(run))
        if node.id in self._forks:
            text.append(f"  fork: {len(self._forks[node.id].children)} turns follow", style="bold magenta")
        if node.id == self._leaf:
            text.append(f"  {drawn('←', '<-')} the active path ends here", style="bold")
        if line is not None and width is not None:
            said = Text(f"  {one_line(line.text)}", style="" if is_active else "dim")
            said.truncate(max(width - _LEVEL_COLUMNS * (2 * level + 1), _LEAST_SHOWN), overflow="ellipsis")
            text.append("\n").append_text(said)
        return text


def _status(run: RunInfo) -> Text:
    return Text(run.status, style=_STATUS_STYLE.get(run.status, "dim"))
