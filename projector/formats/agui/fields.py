"""What the events of AG-UI have in common: ids under either spelling, how a message begins, what is noted of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from projector.formats.agui.reader import hint_of
from projector.json_text import join_fields

if TYPE_CHECKING:
    from projector.formats.shared.fields import Fields
    from projector.json_text import JsonText

_TEXT_ROLES: Final = ("assistant", "user", "system", "developer")
_SNAKE: Final = {
    "messageId": "message_id", "toolCallId": "tool_call_id", "toolCallName": "tool_call_name", "runId": "run_id",
    "parentMessageId": "parent_message_id", "entityId": "entity_id", "encryptedValue": "encrypted_value",
}  # fmt: skip
"""Some producers write the names of the Python package."""


class Beginning(NamedTuple):
    """How a message of AG-UI begins; `group` is our own message it is a part of, if we wrote it."""

    role: Any = "assistant"
    name: str | None = None
    group: object = None


def beginning_of(event: Fields) -> Beginning:
    """How the message of an event begins. Raises `FormatError` for a role that no text has."""
    role = event.maybe_text("role") or "assistant"
    if role == "reasoning":
        role = "assistant"
    if role not in _TEXT_ROLES:
        raise event.wrong(f"the role {role!r} is none of {', '.join(_TEXT_ROLES)}")
    return Beginning(role, event.maybe_text("name"), hint_of(event).get("message"))


def maybe_ref(event: Fields, name: str) -> str | None:
    """A field that is text, if it is there, in either spelling."""
    found = event.maybe_text(name)
    return found if found is not None or name not in _SNAKE else event.maybe_text(_SNAKE[name])


def need_ref(event: Fields, name: str) -> str:
    """The same of a field that must be there. Raises `FormatError`."""
    found = maybe_ref(event, name)
    if found is None:
        raise event.wrong(f'"{name}" should be text, and it is not there')
    return found


def notes_of(event: Fields) -> dict[str, JsonText]:
    """What an event says of its message beside content. Everything else would repeat the event itself."""
    kept = {name: event.raw(name) for name in ("metadata", "subagentRunId")}
    return {name: text for name, text in kept.items() if text is not None}


def interrupt_of(fields: Fields) -> JsonText:
    """A question to a person, in our words; what we have no word for stays."""
    known = {"id": "id", "reason": "reason", "toolCallId": "tool_call_id", "responseSchema": "schema"}
    ours = {name: fields.raw(theirs) for theirs, name in known.items()}
    return join_fields({name: text for name, text in ours.items() if text is not None} | fields.rest(*known))
