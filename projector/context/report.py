"""What a stage did to a view: every block that was left out, shortened or added, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

from projector.context.facts import Facts, table_in_use
from projector.context.tokens import Tokenizer, estimate, weight_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from projector.message import Block, Message

What = Literal["left_out", "shortened", "changed", "added", "moved"]
_NO_REASONS: Final[dict[str, str]] = {}


class Change(msgspec.Struct, frozen=True, gc=False):  # nothing but text and numbers, and there may be many
    """One thing that is not as on the path. `block` is its place in the message, None for all of it.

    `saved` are the tokens that it takes less than before; negative for what was added. `by` names the plugin, or the
    tool and the policy, that it comes from, where there is one.
    """

    stage: str
    message_id: str
    block: int | None
    what: What
    why: str
    saved: int
    by: str = ""


class StageSum(msgspec.Struct, frozen=True, gc=False):
    """All that a stage did: how many changes of each kind, and the tokens that it saved."""

    stage: str
    left_out: int = 0
    shortened: int = 0
    changed: int = 0
    added: int = 0
    moved: int = 0
    saved: int = 0


def sum_up(changes: Iterable[Change]) -> list[StageSum]:
    """The changes by stage, in the order of the stages."""
    sums: dict[str, StageSum] = {}
    for change in changes:
        known = sums.get(change.stage) or StageSum(change.stage)
        counted = {change.what: getattr(known, change.what) + 1, "saved": known.saved + change.saved}
        sums[change.stage] = msgspec.structs.replace(known, **counted)
    return list(sums.values())


def compare(
    stage: str,
    before: Sequence[Message],
    after: Sequence[Message],
    why: str,
    reasons: Mapping[str, str] = _NO_REASONS,
    tokenizer: Tokenizer = estimate,
    by: Mapping[str, str] = _NO_REASONS,
) -> list[Change]:
    """How the view after a stage differs from the one before. `reasons` say more of single messages than `why` does.

    `by` says of single messages who did it.
    """
    if before is after:
        return []
    telling = _Telling(stage, why, reasons, tokenizer, by)
    if len(before) == len(after):  # the usual case: single messages are changed where they stand
        pairs = [(old, new) for old, new in zip(before, after, strict=True) if old is not new]
        if all(old.id == new.id for old, new in pairs):
            return [one for old, new in pairs for one in telling.changed(old, new)]
    left = {message.id for message in after}
    known = {message.id: message for message in before if message.id in left}
    changes = telling.left_out([message for message in before if message.id not in left])
    for message in after:
        old = known.get(message.id)
        if old is None:
            changes.append(telling.all_of(message, "added", -weight_of(message, tokenizer)))
        elif old is not message:
            changes += telling.changed(old, message)
    moved = _moved(list(known), [message.id for message in after if message.id in known])
    return changes + [Change(stage, name, None, "moved", why, 0, by.get(name, "")) for name in moved]


class _Telling:
    """What a stage did to single messages; it is worked out once for the same message, changed by the same for the same."""

    def __init__(self, stage: str, why: str, reasons: Mapping[str, str], tokenizer: Tokenizer, by: Mapping[str, str]) -> None:
        self._stage, self._why, self._reasons, self._tokenizer, self._by = stage, why, reasons, tokenizer, by
        self._known = table_in_use().known
        self._key = (stage, why, "", tokenizer) if not reasons and not by else None

    def all_of(self, message: Message, what: What, saved: int) -> Change:
        name = message.id
        return Change(self._stage, name, None, what, self._reasons.get(name, self._why), saved, self._by.get(name, ""))

    def left_out(self, messages: Iterable[Message]) -> list[Change]:
        changes: list[Change] = []
        known, whole_key = self._known, self._key
        for message in messages:
            facts = known.get(id(message)) or Facts()
            key = whole_key or self._key_of(message.id)
            if facts.left_out is None or facts.left_out[0] != key:
                facts.left_out = key, self.all_of(message, "left_out", weight_of(message, self._tokenizer))
            changes.append(facts.left_out[1])
        return changes

    def _key_of(self, name: str) -> tuple[str, str, str, Tokenizer]:
        return self._stage, self._reasons.get(name, self._why), self._by.get(name, ""), self._tokenizer

    def changed(self, old: Message, new: Message) -> Sequence[Change]:
        name, facts = new.id, self._known.get(id(new)) or Facts()
        why, by = self._reasons.get(name, self._why), self._by.get(name, "")
        key = (self._stage, why, by, self._tokenizer, old)
        if facts.changes is None or facts.changes[0] != key:
            changes = _changed(self._stage, old, new, why, self._tokenizer)
            facts.changes = key, [msgspec.structs.replace(one, by=by) for one in changes] if by else changes
        changed: Sequence[Change] = facts.changes[1]
        return changed


def _changed(stage: str, old: Message, new: Message, why: str, tokenizer: Tokenizer) -> list[Change]:
    """What is different about a message that stands in both."""
    if old.blocks != new.blocks:
        return _blocks(stage, old, new, why, tokenizer)
    return [] if (old.role, old.name) == (new.role, new.name) else [Change(stage, new.id, None, "changed", why, 0)]


def _blocks(stage: str, old: Message, new: Message, why: str, tokenizer: Tokenizer) -> list[Change]:
    """The blocks that differ. Blocks are told apart by their number, where each has its own, else by their place."""
    if len(old.blocks) == len(new.blocks) == 1 and old.blocks[0].number == new.blocks[0].number:  # the usual case
        saved = weight_of(old, tokenizer) - weight_of(new, tokenizer)
        return [Change(stage, new.id, old.blocks[0].number, "shortened" if saved > 0 else "changed", why, saved)]
    changes = []
    numbered = all(len({block.number for block in message.blocks}) == len(message.blocks) for message in (old, new))
    before = {block.number if numbered else place: block for place, block in enumerate(old.blocks)}
    after = {block.number if numbered else place: block for place, block in enumerate(new.blocks)}
    for place in sorted(before.keys() | after.keys()):
        one, other = before.get(place), after.get(place)
        if one == other:
            continue
        saved = _weight(one, old, tokenizer) - _weight(other, old, tokenizer)
        what: What = "left_out" if other is None else "added" if one is None else "shortened" if saved > 0 else "changed"
        changes.append(Change(stage, new.id, place, what, why, saved))
    return changes


def _weight(block: Block | None, message: Message, tokenizer: Tokenizer) -> int:
    return 0 if block is None else weight_of(msgspec.structs.replace(message, blocks=(block,)), tokenizer)


def _moved(first: Sequence[str], second: Sequence[str]) -> Iterator[str]:
    """What stands elsewhere than before among what both have."""
    if first == second:
        return
    places = {message_id: place for place, message_id in enumerate(first)}
    highest = -1
    for message_id in second:
        if places[message_id] < highest:
            yield message_id
        highest = max(highest, places[message_id])
