"""The vocabulary: what the body of each event holds. Names on disk are for ever.

A body is one JSON object. `Raw` fields are of free form and stay the JSON text they were. Unknown fields are legal;
`unknown_fields` finds them. A type that nothing uses yet comes with its first user.
"""

from __future__ import annotations

from typing import ClassVar, Final, Literal

import msgspec
from msgspec import Raw

from projector.json_text import NOTHING, InvalidJson, JsonText, decode, encode, split
from stream import NewEvent
from stream.limits import MAX_ID_BYTES, MAX_RUN_ID_BYTES, check_id

Role = Literal["system", "developer", "user", "assistant", "tool"]
Outcome = Literal["completed", "cancelled", "failed", "incomplete"]
Action = Literal["commit", "fail", "cancel"]
ToolStatus = Literal["ok", "error", "denied", "interrupted", "synthetic"]
Kind = Literal[
    "text", "reasoning", "redacted_reasoning", "tool_call", "server_tool_call", "server_tool_result",
    "media", "source", "refusal", "compaction", "data", "provider",
]  # fmt: skip

MessageStatus = Literal["complete", "partial"]


class Body(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Base of all bodies; `TYPE` is the event's type."""

    TYPE: ClassVar[str]


class ConversationCreated(Body, frozen=True):
    """A conversation is named before anything is said in it."""

    TYPE: ClassVar = "conversation.created"
    title: str | None = None
    metadata: Raw = NOTHING


class ConversationUpdated(Body, frozen=True):
    """A new title where one is given; `metadata` is a JSON object that is merged, null takes a field away."""

    TYPE: ClassVar = "conversation.updated"
    title: str | None = None
    metadata: Raw = NOTHING


class ConversationArchived(Body, frozen=True):
    """Out of the way in listings; `archived` false brings it back."""

    TYPE: ClassVar = "conversation.archived"
    archived: bool = True


class ConversationErased(Body, frozen=True):
    """What is left of everything before it: how much there was."""

    TYPE: ClassVar = "conversation.erased"
    messages: int
    runs: int
    events: int


class BranchSelected(Body, frozen=True):
    """Makes another leaf the active one."""

    TYPE: ClassVar = "branch.selected"
    message_id: str


class MediaAdded(Body, frozen=True):
    """Bytes that the ledger's media store holds, by their SHA-256."""

    TYPE: ClassVar = "media.added"
    media_id: str
    media_type: str
    size: int
    location: str | None = None


class ContextCompacted(Body, frozen=True):
    """A summary that stands for messages in what the model sees, from `turn` on; it changes nothing else.

    `made_of` is a digest of what they said: once they say something else, it stands for nothing.
    """

    TYPE: ClassVar = "context.compacted"
    turn: int
    covers: list[str]
    summary: str
    strategy: str
    tokens_before: int
    tokens_after: int
    reason: str | None = None
    role: Literal["user", "assistant"] | None = None
    made_of: str | None = None


class ContextExpanded(Body, frozen=True):
    """A message is shown to the model in full again, or a part of it: items of a list, or lines, the end excluded."""

    TYPE: ClassVar = "context.expanded"
    turn: int
    message_id: str
    item_range: tuple[int, int] | None = None
    strategy: str | None = None
    tokens_before: int = 0
    tokens_after: int = 0
    reason: str | None = None
    made_of: str | None = None


class ProviderSessionChanged(Body, frozen=True):
    """What a provider that keeps histories itself holds of this one; the newest of each provider counts."""

    TYPE: ClassVar = "provider.session"
    provider: str
    state: Literal["opened", "sending", "acked", "invalidated"]
    session_id: str | None
    sent_through: str | None = None
    held: list[str] = []
    system_fingerprint: str = ""
    prefix_fingerprint: str = ""
    working_directory: str | None = None
    sending: bool = False
    expires_at: int | None = None
    reason: str | None = None


Choice = ContextCompacted | ContextExpanded | ProviderSessionChanged
"""What is remembered of how the model's view was made."""


class RunStarted(Body, frozen=True):
    """The parent is fixed here."""

    TYPE: ClassVar = "run.started"
    run_id: str
    parent_message_id: str | None
    trigger: str
    producer: str
    model: str | None = None
    provider: str | None = None
    created_at: int | None = None


class RunCancelRequested(Body, frozen=True):
    """Asks the producer to stop, from any process."""

    TYPE: ClassVar = "run.cancel_requested"
    run_id: str
    by: str | None = None


class RunStep(Body, frozen=True):
    """One step is one prompt to the model; `reset` drops what the step brought."""

    TYPE: ClassVar = "run.step"
    run_id: str
    n: int
    phase: Literal["started", "finished", "reset"]


class RunPaused(Body, frozen=True):
    """A human is asked."""

    TYPE: ClassVar = "run.paused"
    run_id: str
    interrupts: Raw = NOTHING


class RunResumed(Body, frozen=True):
    """A human has answered."""

    TYPE: ClassVar = "run.resumed"
    run_id: str
    answers: Raw = NOTHING


class RunUsage(Body, frozen=True):
    """Totals of one request, in tokens; cached, cache_write and reasoning lie inside them. Replaced, never added."""

    TYPE: ClassVar = "run.usage"
    run_id: str
    request_id: str
    input: int | None = None
    output: int | None = None
    cached: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    raw: Raw = NOTHING


class RunFinished(Body, frozen=True):
    """The end of a run; the first one counts."""

    TYPE: ClassVar = "run.finished"
    run_id: str
    outcome: Outcome
    finish_reason: str | None = None
    error: Raw = NOTHING


class RunRecovered(Body, frozen=True):
    """The end of a run whose writer was lost."""

    TYPE: ClassVar = "run.recovered"
    run_id: str
    action: Action
    last_seq: int


class MessageStarted(Body, frozen=True):
    """One model response, or one message of another role."""

    TYPE: ClassVar = "message.started"
    run_id: str
    message_id: str
    role: Role
    name: str | None = None
    provider_ref: str | None = None
    created_at: int | None = None


class MessageFinished(Body, frozen=True):
    """No block comes after it."""

    TYPE: ClassVar = "message.finished"
    message_id: str
    status: MessageStatus


class MessageAnnotated(Body, frozen=True):
    """`patch` is a JSON object that is merged into the message's metadata."""

    TYPE: ClassVar = "message.annotated"
    message_id: str
    patch: Raw


class MessageRedacted(Body, frozen=True):
    """Replaces the blocks, keeps identity and order."""

    TYPE: ClassVar = "message.redacted"
    message_id: str
    blocks: Raw
    reason: str | None = None


class BlockStarted(Body, frozen=True):
    """Blocks keep the provider's order; `block` counts from 0."""

    TYPE: ClassVar = "block.started"
    message_id: str
    block: int
    kind: Kind
    name: str | None = None
    tool_call_id: str | None = None
    media_type: str | None = None
    provider_ref: str | None = None


class BlockDelta(Body, frozen=True):
    """The hot path: text behind the text there is."""

    TYPE: ClassVar = "block.delta"
    message_id: str
    block: int
    text: str
    field: str | None = None


class BlockAnnotated(Body, frozen=True):
    """A citation."""

    TYPE: ClassVar = "block.annotated"
    message_id: str
    block: int
    citation: Raw


class BlockSealed(Body, frozen=True):
    """The block is whole. `opaque` is `{provider, payload}`, kept byte for byte.

    `text`, `name` and `tool_call_id` are there where the end says something else than what came before it: they count.
    With a `text` a block may be sealed once more, by an end that says more than the first, as long as its run is open.
    """

    TYPE: ClassVar = "block.sealed"
    message_id: str
    block: int
    signature: str | None = None
    opaque: Raw = NOTHING
    input: Raw = NOTHING
    parse: Literal["ok", "bad"] | None = None
    text: str | None = None
    name: str | None = None
    tool_call_id: str | None = None


class ToolResult(Body, frozen=True):
    """A message of its own, which names its call."""

    TYPE: ClassVar = "tool.result"
    run_id: str
    message_id: str
    tool_call_id: str
    status: ToolStatus
    parts: Raw
    created_at: int | None = None


class ToolApproval(Body, frozen=True):
    """A human is asked for, or has given, leave to run a tool."""

    TYPE: ClassVar = "tool.approval"
    tool_call_id: str
    approval_id: str
    approved: bool | None = None


class RawEvent(Body, frozen=True):
    """What a provider sent and its adapter does not know."""

    TYPE: ClassVar = "raw"
    provider: str
    event: Raw


BODIES: Final[dict[str, type[Body]]] = {
    body.TYPE: body
    for body in (
        ConversationCreated, ConversationUpdated, ConversationArchived, ConversationErased, BranchSelected, MediaAdded,
        RunStarted, RunCancelRequested, RunStep, RunPaused, RunResumed, RunUsage, RunFinished, RunRecovered,
        MessageStarted, MessageFinished, MessageAnnotated, MessageRedacted,
        BlockStarted, BlockDelta, BlockAnnotated, BlockSealed, ToolResult, ToolApproval, RawEvent,
        ContextCompacted, ContextExpanded, ProviderSessionChanged,
    )
}  # fmt: skip
_DECODERS: Final = {kind: msgspec.json.Decoder(body) for kind, body in BODIES.items()}
_IDS: Final = ("run_id", "message_id", "producer", "parent_message_id", "media_id")
_LIMITS: Final = {
    body: [(name, MAX_RUN_ID_BYTES if name in ("run_id", "producer") else MAX_ID_BYTES) for name in _IDS if name in fields]
    for body, fields in ((body, body.__struct_fields__) for body in BODIES.values())
}
"""The ids in each body, and how long each may be."""
_OBJECTS: Final = {body: [name for name in ("patch", "metadata") if name in body.__struct_fields__] for body in BODIES.values()}


def to_event(body: Body) -> NewEvent:
    """The event that carries a body."""
    return NewEvent(body.TYPE, encode(body))


def read_body(kind: str, data: bytes) -> Body | None:
    """The body of an event, None for a type nobody knows. Raises `InvalidJson` for what does not fit its type."""
    decoder = _DECODERS.get(kind)
    if decoder is None:
        return None
    try:
        if not data.isascii():
            data.decode()  # what is of free form is not looked at below
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):  # or legal all the same
        body: Body = decode(data, BODIES[kind])
        return body


def unknown_fields(body: Body, data: bytes) -> dict[str, JsonText]:
    """The fields of `data` that its type does not know, as JSON text."""
    if data == encode(body):  # what we wrote ourselves: the usual case, and cheap
        return {}
    known = body.__struct_fields__
    return {name: text for name, text in split(data).items() if name not in known}


def check_objects(body: Body) -> None:
    """Raises `InvalidJson` for a patch or metadata that is no JSON object."""
    for name in _OBJECTS[type(body)]:
        value = getattr(body, name)
        if value is not NOTHING and bytes(value):
            try:
                split(bytes(value))
            except InvalidJson as error:
                raise InvalidJson(f"{name} is no JSON object: {error}") from error


def check_ids(body: Body) -> None:
    """Raises `InvalidId` for an id in a body that no store takes."""
    for name, max_bytes in _LIMITS[type(body)]:
        value = getattr(body, name)
        if value is not None:
            check_id(name, value, max_bytes=max_bytes)
