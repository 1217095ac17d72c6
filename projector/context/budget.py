"""Budget: when a history is too long for a model, and a summary that stands for its old part."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Literal

import msgspec
from msgspec.structs import replace

from projector.context.tokens import Tokenizer, estimate, tokens_of
from projector.context.tool_groups import group, group_at, ids_of, pair
from projector.context.windows import check_limit
from projector.message import Block, Message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

Reason = Literal["token_threshold", "hard_cap"]
SUMMARY: Final = "summary:"
"""How the id of a summary begins that stands only in a view."""
_SYSTEM: Final = ("system", "developer")


class Budget(msgspec.Struct, frozen=True):
    """`threshold` and `hard_cap` are parts of `max_tokens`. Raises `ValueError` for what is negative or no number."""

    max_tokens: int
    threshold: float = 0.8
    hard_cap: float = 0.95

    def __post_init__(self) -> None:
        for name in ("max_tokens", "threshold", "hard_cap"):
            value = getattr(self, name)
            if not value >= 0 or math.isinf(value):
                raise ValueError(f"{name} must be a number of 0 or more, not {value}")

    def reason(self, used: int) -> Reason | None:
        """Why something must be done about so many tokens, None if nothing must. 55 of 100 are at a threshold of 0.55."""
        if self._is_at(used, self.hard_cap):
            return "hard_cap"
        return "token_threshold" if self._is_at(used, self.threshold) else None

    def _is_at(self, used: int, part: float) -> bool:
        """Reckoned with the number as it is written: in floating point 0.55 of 100 is a little more than 55."""
        return used >= self.max_tokens * Fraction(str(part))

    def remaining(self, used: int) -> int:
        """How many tokens are left."""
        return max(0, self.max_tokens - used)


class Used(msgspec.Struct, frozen=True):
    """How many tokens a history takes: what the last response said, until something else than its own messages changes."""

    estimate: int = 0
    real: int | None = None
    own: frozenset[str] = frozenset()

    @property
    def tokens(self) -> int:
        """The number that counts."""
        return self.estimate if self.real is None else self.real

    def respond(self, tokens: int, message_ids: Collection[str]) -> Used:
        """A response said how many there were; these messages are its own."""
        return replace(self, real=tokens, own=frozenset(message_ids))

    def change(self, message_id: str | None, estimated: int) -> Used:
        """A message was added, removed or changed, or with None the whole history."""
        if message_id in self.own:
            return replace(self, estimate=estimated)
        return Used(estimated)


class Summary(msgspec.Struct, frozen=True, gc=False):
    """A summary that was recorded: which messages it stands for, and what it weighs beside them (`context.compacted`)."""

    covers: tuple[str, ...]
    summary: str
    role: Literal["user", "assistant"] = "assistant"
    tokens_before: int = 0
    tokens_after: int = 0


def old_part(path: Sequence[Message], *, keep: int, pinned: Collection[str] = ()) -> list[Message]:
    """What a summary would stand for: all but system messages, pinned ones and the `keep` newest groups.

    A tool group is pinned, kept or covered as a whole. Raises `ValueError` for a `keep` that is no whole number from 0.
    """
    check_limit("keep", keep, least=0)
    groups = group([message for message in pair(path) if message.role not in _SYSTEM])
    old = groups[: max(0, len(groups) - keep)]
    known = set(ids_of(path))
    return [
        message
        for one in old
        if not any(message.id in pinned for message in one)
        for message in one
        if message.id in known  # a synthetic result is not of the path
    ]


async def summarize(
    path: Sequence[Message],
    summarizer: Callable[[Sequence[Message]], Awaitable[str]],
    *,
    keep: int,
    pinned: Collection[str] = (),
    role: Literal["user", "assistant"] = "assistant",
    tokenizer: Tokenizer = estimate,
    recorded: Sequence[Summary] = (),
) -> Summary | None:
    """A summary of the old part; None where there is nothing old, it fails, is empty or no shorter: nothing changes.

    Of what a `recorded` summary stands for already the summarizer gets that summary, and what has become old since.
    """
    covered = old_part(path, keep=keep, pinned=pinned)
    given, used = apply_summaries(covered, recorded)
    if not covered or (used is not None and len(given) == 1):
        return None
    try:
        text: object = await summarizer(given)
    except Exception:  # noqa: BLE001 - a failed summary changes nothing
        return None
    if not isinstance(text, str) or not text.strip():
        return None
    before, after = tokens_of(given, tokenizer), tokenizer(text)
    if after >= before:
        return None
    return Summary(tuple(ids_of(covered)), text, role, before, after)


def apply_summaries(
    view: Sequence[Message],
    recorded: Sequence[Summary],
    path: Sequence[Message] | None = None,
    *,
    pinned: Collection[str] = (),
) -> tuple[list[Message], Summary | None]:
    """The view with the last recorded summary all of whose messages are on its path, and that summary.

    System messages come first, then the summary, then what it does not stand for. A summary of another branch is not
    used, so branches never see each other's, and neither is one without text. A tool group that it covers in part, since
    a result has come late, stays in the view as a whole, and so does one that was pinned since. `path` is that of the
    view, where a stage has left some of it out.
    """
    if not recorded:
        return list(view), None
    whole = view if path is None else path
    known = set(ids_of(whole))
    told = ((one, frozenset(one.covers)) for one in reversed(recorded) if one.covers and one.summary.strip())
    used, covers = next(((one, covers) for one, covers in told if covers <= known), (None, frozenset[str]()))
    if used is None:
        return list(view), None
    covered = _covered(whole, known, covers, pinned)
    if not covered:
        return list(view), None
    system = [message for message in view if message.role in _SYSTEM]
    rest = [message for message in view if message.role not in _SYSTEM and message.id not in covered]
    first = next(message for message in whole if message.id in covered)
    said = Block("text", text=used.summary, sealed=True)
    summary = Message(
        f"{SUMMARY}{first.id}", first.parent_id, first.run_id, used.role, "complete", (said,), first.created_at, first.seq
    )
    return [*system, summary, *rest], used


def _covered(whole: Sequence[Message], known: set[str], covers: frozenset[str], pinned: Collection[str]) -> set[str]:
    """What a summary stands for in fact: whole groups alone. A synthetic result is not of the path, and goes with its call."""
    paired = pair(whole)
    ids = set(ids_of(paired))
    system = {message.id for message in paired if message.role in _SYSTEM}
    covered = (ids & covers) | (ids - known)
    open_ = (ids - covered) | system | ids.intersection(pinned)
    for place in [place for place, message in enumerate(paired) if message.id in open_]:  # few
        covered.difference_update(ids_of(group_at(paired, place)))
    return covered
