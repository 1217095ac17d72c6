"""What is answered of conversations, as the types that the OpenAPI document shows. Times in ms since 1970."""

from __future__ import annotations

from typing import Any

import msgspec

from ledger.records import RunInfo


class ConversationShown(msgspec.Struct):
    """One line of the list. `metadata` holds the names and values that the conversation was described with."""

    conversation: str
    messages: int
    runs: int
    leaf: str | None
    projected_seq: int
    active_at: int
    archived: bool
    title: str | None
    metadata: dict[str, Any]
    erased: dict[str, Any] | None
    labels: list[str]


class ConversationPage(msgspec.Struct):
    """Newest activity first. `next` is the `after` of the next page, null on the last."""

    conversations: list[ConversationShown]
    next: str | None


class BlockShown(msgspec.Struct, omit_defaults=True):
    """One part of a message, in order. What it does not have is left out."""

    kind: str
    text: str
    sealed: bool
    number: int = 0
    name: str | None = None
    tool_call_id: str | None = None
    media_type: str | None = None
    provider_ref: str | None = None
    fields: dict[str, str] = {}
    signature: str | None = None
    opaque: Any = None
    input: Any = None
    parse: str | None = None
    status: str | None = None
    parts: Any = None
    citations: list[Any] = []
    approval: Any = None


class MessageShown(msgspec.Struct, omit_defaults=True):
    """A message. `status` is `partial` where it was never finished; `seq` is that of its first event."""

    id: str
    parent_id: str | None
    run_id: str
    role: str
    status: str
    blocks: list[BlockShown]
    created_at: int
    seq: int
    name: str | None = None
    provider_ref: str | None = None
    metadata: dict[str, Any] = {}
    unknown: list[Any] = []


class OpenRunShown(msgspec.Struct):
    """A run without an end, and what it has said up to `last_seq`: nothing of it is in the transcript yet."""

    run_id: str
    seq: int
    last_seq: int
    messages: list[MessageShown]


class ConversationInFull(ConversationShown):
    """With where its log stands, and what is under way. Null where the log can't be read."""

    incarnation: str
    floor: int
    head: int
    open_runs: list[OpenRunShown] | None


class TranscriptPage(msgspec.Struct):
    """Committed messages, oldest first. `next` is the `before` of the page that comes ahead of it, null on the first."""

    conversation: str
    messages: list[MessageShown]
    next: str | None


class RunPage(msgspec.Struct):
    """In the order of their start. `next` is the `after` of the next page, null on the last."""

    runs: list[RunInfo]
    next: int | None


class CancelAnswer(msgspec.Struct):
    """`is_asked` is false for a run that had ended: nothing was changed. `outcome` is null while it goes on."""

    conversation: str
    run_id: str
    is_asked: bool
    outcome: str | None


class CompactionWanted(msgspec.Struct, forbid_unknown_fields=True):
    """Keep the last `replay_window` events for clients; let go what nothing but the log keeps; or only say what would be."""

    replay_window: int = 0
    drop_unkept: bool = False
    dry_run: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.replay_window < 2**63:
            raise ValueError("replay_window is a whole number from 0 on")


class CompactionAnswer(msgspec.Struct):
    """How far the log was let go, and what binds its floor."""

    conversation: str
    dry_run: bool
    floor_before: int
    floor: int
    head: int
    binds: str | None
    unkept: int


class Appended(msgspec.Struct):
    """The numbers of the first and the last event that were appended."""

    first_seq: int
    last_seq: int
