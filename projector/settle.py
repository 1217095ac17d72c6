"""What an ended run leaves: one pure function, used by both folds, by commit and by verify."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from projector.message import Block, Message
from projector.run_draft import freeze_block

if TYPE_CHECKING:
    from collections.abc import Iterable

    from projector.run_draft import MessageDraft, RunDraft

_OUTCOME: Final = {"commit": "incomplete", "fail": "failed", "cancel": "cancelled"}
_STATUS: Final = {"completed": "committed", "incomplete": "committed", "cancelled": "cancelled", "failed": "failed"}


class End(msgspec.Struct, frozen=True, gc=False):
    """How a run ended. `seq` and `at` are those of the event that ended it, `recovered` the action or None."""

    outcome: str
    seq: int
    at: int
    recovered: str | None = None
    finish_reason: str | None = None
    error: str | None = None

    @property
    def status(self) -> str:
        """`committed`, `cancelled` or `failed`."""
        return _STATUS[self.outcome]


class Settled(msgspec.Struct, frozen=True):
    """The messages of a run: `path` is committed, `off` is kept off the path."""

    path: tuple[Message, ...]
    off: tuple[Message, ...]

    @property
    def messages(self) -> tuple[Message, ...]:
        """All of them, in order of their start."""
        return tuple(sorted((*self.path, *self.off), key=lambda message: message.seq))


def settle(run: RunDraft, end: End | None) -> Settled:
    """What `run` leaves when it ends with `end`; with None, what it shows while it is open.

    Empty blocks, and messages without any other, are left out. Parents follow the order of the messages. Failed:
    what is unfinished is kept off the path. Recovered by cancel: everything is.
    """
    path: list[Message] = []
    off: list[Message] = []
    parent = run.parent_message_id
    nothing_counts = end is not None and end.recovered == "cancel"
    for draft in sorted((*run.live.values(), *run.done.values()), key=lambda draft: draft.seq):
        message = _freeze(run, draft, parent)
        if not message.blocks:
            continue
        if end is not None and end.outcome == "failed" and draft.status is None:
            off.append(message)
            continue
        (off if nothing_counts else path).append(message)
        parent = message.id
    return Settled(tuple(path), tuple(off))


def recovered_outcome(action: str) -> str:
    """`run.recovered` ends a run as one of these outcomes."""
    return _OUTCOME[action]


def _freeze(run: RunDraft, draft: MessageDraft, parent: str | None) -> Message:
    blocks = {number: block for number, (_, block) in draft.sealed.items()}
    blocks |= {number: freeze_block(block) for number, block in draft.live.items()}
    return Message(
        id=draft.id,
        parent_id=parent,
        run_id=run.run_id,
        role=draft.role,
        status=draft.status or "partial",
        blocks=tuple(_with_content(blocks[number] for number in sorted(blocks))),
        created_at=draft.created_at,
        seq=draft.seq,
        name=draft.name,
        provider_ref=draft.provider_ref,
        metadata_text=draft.metadata,
        unknown=tuple(draft.unknown),
    )


def _with_content(blocks: Iterable[Block]) -> Iterable[Block]:
    for block in blocks:
        if block.kind not in ("text", "reasoning") or block.text or block.fields or block.signature:
            yield block
