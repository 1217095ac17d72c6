"""Exchanges woven into conversations: each request goes on from what was said before, and each answer is kept.

A loop sends its history again with each request. What a request repeats is known again, an answer by what it says; an
answer that no request repeats is a branch, and so are requests that share their beginning and then differ.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from projector.formats.shared.history import History, is_left_out
from projector.formats.shared.payloads import media_of
from projector.json_text import InvalidJson, decode, dump

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from projector.formats.recordings.exchanges import Sent
    from projector.formats.shared.history import HistoryMessage, Loss
    from projector.json_text import JsonText
    from projector.message import Block

_INSTRUCTIONS: Final = ("system", "developer")
_SAID: Final = ("text", "refusal")
_MINTED: Final = re.compile(r"\.call\d+$")


class Woven(NamedTuple):
    """A conversation, and of which of its messages which answer is kept as it came: (turn, answer) by their place."""

    history: History
    answers: dict[int, tuple[int, int]]


class Turn(NamedTuple):
    """An exchange: what was asked, and what each answer to it says; `is_kept` of one that is kept as it came."""

    sent: Sent
    answers: Sequence[tuple[tuple[HistoryMessage, ...], bool]]
    losses: tuple[Loss, ...] = ()


def weave(turns: Sequence[Turn]) -> list[Woven]:
    """The conversations in these exchanges, in the order of their first requests."""
    trees: list[_Tree] = []
    for number, turn in enumerate(turns):
        drafts = turn.sent.history.drafts
        place = _find(trees, turn, list(map(_key, drafts)))
        if place is None:
            place = _Place(_Tree(), None, drafts)
            trees.append(place.tree)
        place.tree.add(number, turn, place)
    return [tree.woven() for tree in trees]


class _Place(NamedTuple):
    """How far a request is known: behind which message of a tree it goes on, and with what.

    `is_said` if more of it is known than instructions.
    """

    tree: _Tree
    at: int | None
    rest: Sequence[HistoryMessage]
    is_said: bool = False
    known: int = 0


class _Tree:
    """The messages of a conversation while exchanges are added."""

    def __init__(self) -> None:
        self.drafts: list[HistoryMessage] = []
        self._keys: list[str] = []
        self._same: dict[tuple[int | None, str], int] = {}
        """By its parent and its key, the message that was put there last."""
        self._answered: dict[int | None, list[int]] = {}
        self._answers: dict[int, tuple[int, int]] = {}
        self._refs: dict[str, int] = {}
        self._metadata: dict[str, JsonText] = {}
        self._losses: dict[str, Loss] = {}

    def add(self, number: int, turn: Turn, place: _Place) -> None:
        """A request from where it is known, and its answers behind it."""
        at = place.at
        for draft in place.rest:
            at = self._put(draft, at)
        for which, (answer, is_kept) in enumerate(turn.answers):
            self._answer((number, which), answer, at, is_kept=is_kept)
        self._metadata = turn.sent.history.metadata
        for loss in (*turn.sent.history.losses, *turn.losses):
            self._losses.setdefault(loss.what, loss)

    def find(self, drafts: Sequence[HistoryMessage], keys: Sequence[str]) -> _Place:
        """How far these messages are known."""
        count, at, start = len(drafts), None, 0
        is_said = False
        while start < len(drafts):
            found = self._step(at, drafts, keys, start)
            if found is None:
                break
            at, behind = found
            if behind is None:
                start += 1
            else:
                drafts, keys, start = behind, list(map(_key, behind)), 0
            is_said = is_said or self.drafts[at].role not in _INSTRUCTIONS
        rest = drafts[start:]
        return _Place(self, at, rest, is_said or (count > 0 and not rest), count - len(rest))

    def behind(self, ref: str, drafts: Sequence[HistoryMessage]) -> _Place | None:
        """The place behind the answer that its provider gave this id; instructions that stand above are not repeated."""
        at = self._refs.get(ref)
        if at is None:
            return None
        rest = [draft for draft in drafts if draft.role not in _INSTRUCTIONS or not self._has_above(at, draft)]
        return _Place(self, at, rest, is_said=True)

    def woven(self) -> Woven:
        """The conversation as it is by now."""
        history = History(tuple(self.drafts), metadata=self._metadata, losses=tuple(self._losses.values()))
        return Woven(history, self._answers)

    def _answer(self, name: tuple[int, int], answer: Sequence[HistoryMessage], at: int | None, *, is_kept: bool) -> None:
        """An answer ends its run; one that is kept as it came is a run of its own."""
        if is_kept and at is not None:
            self.drafts[at] = replace(self.drafts[at], ends_run=self.drafts[at].ends_run or "completed")
        for draft in answer:
            at = self._put(replace(draft, ends_run=draft.ends_run or "completed"), at)
            self._answered.setdefault(self.drafts[at].parent, []).append(at)
            if draft.provider_ref is not None:
                self._refs[draft.provider_ref] = at
            if is_kept:
                self._answers[at] = name

    def _put(self, draft: HistoryMessage, parent: int | None) -> int:
        number = len(self.drafts)
        self.drafts.append(replace(draft, parent=parent))
        self._keys.append(_key(draft))
        self._same[parent, self._keys[number]] = number
        return number

    def _has_above(self, at: int | None, draft: HistoryMessage) -> bool:
        key = _key(draft)
        while at is not None:
            if self._keys[at] == key:
                return True
            at = self.drafts[at].parent
        return False

    def _step(
        self, at: int | None, drafts: Sequence[HistoryMessage], keys: Sequence[str], start: int
    ) -> tuple[int, Sequence[HistoryMessage] | None] | None:
        """The latest message behind `at` that stands at `start`, and what follows if that is no more as it was."""
        same = self._same.get((at, keys[start]), -1)
        for child in reversed(self._answered.get(at, ()) if drafts[start].role == "assistant" else ()):
            if child <= same:
                break
            behind = None if is_left_out(self.drafts[child]) else _behind_answer(self.drafts[child], drafts[start:])
            if behind is not None:
                return child, behind
        return None if same < 0 else (same, None)


def _find(trees: Sequence[_Tree], turn: Turn, keys: Sequence[str]) -> _Place | None:
    """Where a request goes on: behind the answer that it names, or in the tree that knows most of it."""
    sent = turn.sent
    drafts = sent.history.drafts
    if sent.goes_on_from is not None:
        named = (tree.behind(sent.goes_on_from, drafts) for tree in reversed(trees))
        if (found := next((place for place in named if place is not None), None)) is not None:
            return found
    places = (tree.find(drafts, keys) for tree in reversed(trees))
    return max((place for place in places if place.is_said), key=lambda place: place.known, default=None)


def _behind_answer(answer: HistoryMessage, drafts: Sequence[HistoryMessage]) -> Sequence[HistoryMessage] | None:
    """What follows where these messages begin with an answer; some send each of its calls with its result."""
    blocks: list[Block] = []
    results: list[HistoryMessage] = []
    for at, draft in enumerate(drafts):
        if draft.role == "assistant":
            blocks += draft.blocks
            names = _renamed_calls(answer.blocks, blocks)
            if names is not None:
                return (
                    [_rename(each, names) for each in (*results, *drafts[at + 1 :])] if names else [*results, *drafts[at + 1 :]]
                )
        elif draft.role != "tool" or at == 0:
            return None
        else:
            results.append(draft)
    return None


def _renamed_calls(ours: Sequence[Block], theirs: Sequence[Block]) -> dict[str, str] | None:
    """Whether a message repeats an answer; the ids that its calls have in it, where nobody gave them one."""
    calls = [block for block in ours if block.kind == "tool_call"], [block for block in theirs if block.kind == "tool_call"]
    if list(map(_call, calls[0])) != list(map(_call, calls[1])):
        return None
    said = _text(ours), _text(theirs)
    if said[0] != said[1] and (said[1] or not calls[0]):
        return None
    if not calls[0] and not said[0]:
        return None
    names: dict[str, str] = {}
    for one, other in zip(*calls, strict=True):
        here, there = one.tool_call_id or "", other.tool_call_id or ""
        if here != there and not (_is_minted(here) or _is_minted(there)):
            return None
        names |= {there: here} if here != there else {}
    return names


def _is_minted(call_id: str) -> bool:
    """Whether a call got its id of us, for its provider gives none."""
    return not call_id or _MINTED.search(call_id) is not None


def _rename(draft: HistoryMessage, names: Mapping[str, str]) -> HistoryMessage:
    blocks = [replace(block, tool_call_id=names.get(block.tool_call_id or "", block.tool_call_id)) for block in draft.blocks]
    return replace(draft, blocks=tuple(blocks))


def _text(blocks: Sequence[Block]) -> str:
    return "".join(block.text for block in blocks if block.kind in _SAID).strip()


def _call(block: Block) -> tuple[str | None, str]:
    given = block.input_text or block.text
    try:
        return block.name, json.dumps(decode(given or "{}"), sort_keys=True)
    except (InvalidJson, TypeError):
        return block.name, given


def _key(draft: HistoryMessage) -> str:
    """What makes a message the same one in a later request; marks of caching do not."""
    role = "system" if draft.role in _INSTRUCTIONS else draft.role
    return dump([role, *map(_said, draft.blocks)])


def _said(block: Block) -> list[Any]:
    media = msgspec.to_builtins(media_of(block)) if block.kind == "media" else None
    call = _call(block) if block.kind == "tool_call" else None
    return [block.kind, "" if call else block.text, block.tool_call_id, block.parts, call, media]
