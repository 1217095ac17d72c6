"""What the ledger tells about conversations and runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from projector.draft import Usage

if TYPE_CHECKING:
    from projector import End
    from projector.draft import RunDraft


class ConversationInfo(msgspec.Struct, frozen=True):
    """One line of a listing of conversations. `projected_seq` is how far of the log the ledger has taken in."""

    conversation: str
    messages: int
    runs: int
    leaf: str | None
    projected_seq: int


class RunInfo(msgspec.Struct, frozen=True):
    """One run. `status` is `open`, `committed`, `failed` or `cancelled`; times in ms, usage by request."""

    conversation: str
    run_id: str
    status: str
    parent_message_id: str | None
    trigger: str
    seq: int
    started_at: int
    model: str | None = None
    provider: str | None = None
    outcome: str | None = None
    recovered: str | None = None
    finish_reason: str | None = None
    error: str | None = None
    end_seq: int | None = None
    ended_at: int | None = None
    messages: int = 0
    usage: dict[str, Usage] = {}

    @classmethod
    def of(cls, conversation: str, run: RunDraft, end: End | None, messages: int) -> RunInfo:
        """What is told of a run, open or ended."""
        return cls(
            conversation=conversation,
            run_id=run.run_id,
            status="open" if end is None else end.status,
            parent_message_id=run.parent_message_id,
            trigger=run.trigger,
            seq=run.seq,
            started_at=run.started_at,
            model=run.model,
            provider=run.provider,
            outcome=None if end is None else end.outcome,
            recovered=None if end is None else end.recovered,
            finish_reason=None if end is None else end.finish_reason,
            error=None if end is None else end.error,
            end_seq=None if end is None else end.seq,
            ended_at=None if end is None else end.at,
            messages=messages,
            usage=run.usage,
        )
