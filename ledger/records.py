"""What the ledger tells about conversations and runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from projector.json_text import JsonText, decode, learn, plain
from projector.run_draft import Usage

if TYPE_CHECKING:
    from projector import End
    from projector.run_draft import RunDraft


class ConversationInfo(msgspec.Struct, frozen=True, gc=False):
    """One line of a listing of conversations.

    `messages` counts what is on any path, `projected_seq` is how far of the log the ledger has taken in, `active_at` the
    time (ms) of the newest message. `metadata_text` is what it holds of `metadata`, each value as JSON text; `labels` of it,
    a list of texts, can be asked for. `erased` says how much there was of a conversation that was erased.
    """

    conversation: str
    messages: int
    runs: int
    leaf: str | None
    projected_seq: int
    active_at: int
    archived: bool = False
    title: str | None = None
    metadata_text: dict[str, JsonText] = msgspec.field(default_factory=dict, name="metadata")
    erased: dict[str, Any] | None = None

    @property
    def metadata(self) -> dict[str, Any]:
        """Names and values that were noted of it, made anew of their JSON each time they are asked for."""
        return {name: decode(text) for name, text in self.metadata_text.items()}

    @property
    def labels(self) -> list[str]:
        """The texts in `labels` of its metadata."""
        found = decode(self.metadata_text.get("labels", "[]"))
        return [label for label in found if isinstance(label, str)] if isinstance(found, list) else []


def present_conversation(info: ConversationInfo) -> dict[str, Any]:
    """What is listed of a conversation as plain values, JSON text decoded."""
    record: dict[str, Any] = msgspec.to_builtins(info)
    return record | {"labels": info.labels, "metadata": {name: plain(text) for name, text in info.metadata_text.items()}}


class RunInfo(msgspec.Struct, frozen=True, gc=False):
    """One run; times in ms, usage by request, `prompts` the seqs at which its steps began.

    `status` is `created`, `streaming` or, where the log can't be read, `open`; of a run that ended `committed`,
    `superseded` (a sibling that started later is committed), `failed` or `cancelled`.
    """

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
    prompts: tuple[int, ...] = ()

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
            prompts=run.prompts,
        )


learn(RunInfo)
