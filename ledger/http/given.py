"""Events as a client sends them: a JSON array of `{"type", "data"}`, whose data is kept byte for byte."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ledger.http.frames import SNAPSHOT
from projector.json_text import InvalidJson, decode
from projector.json_text import split as split_object
from stream import NewEvent
from stream.http import Problem
from stream.http.durable.messages import MANY_COMMAS
from stream.http.durable.messages import split as split_body
from stream.limits import MAX_APPEND_EVENTS

GIVEN: Final[dict[str, Any]] = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"type": {"type": "string", "minLength": 1, "maxLength": 64}, "data": {"type": "object"}},
        "required": ["type", "data"],
        "additionalProperties": False,
    },
}


class _Given(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    type: str
    data: msgspec.Raw


_FAST: Final = msgspec.json.Decoder(list[_Given])


def read_events(body: bytes) -> list[NewEvent]:
    """The events. Raises `Problem`: 400 for what is no JSON, 422 with index and why for another form, 413 for too many."""
    try:
        if not body.isascii():
            body.decode()
        found = _FAST.decode(body) if body.count(b",") <= MANY_COMMAS else None
        events = _read_slowly(body) if found is None else [NewEvent(one.type, bytes(one.data)) for one in found]
    except (msgspec.MsgspecError, ValueError, RecursionError):  # wrong, or legal all the same
        events = _read_slowly(body)
    for index, event in enumerate(events):
        if event.type == SNAPSHOT:
            raise _refuse(index, f"type {SNAPSHOT!r} is what followers are told where events are gone: use another")
    return events


def _read_slowly(body: bytes) -> list[NewEvent]:
    """Of an array no more is looked at than may be appended at once."""
    items = split_body(body, "application/json", most=MAX_APPEND_EVENTS)
    if body.lstrip()[:1] != b"[":
        raise Problem(422, "invalid_events", "the body is a JSON array of events, each an object with type and data")
    return [_read_one(index, item.decode()) for index, item in enumerate(items)]


def _read_one(index: int, item: str) -> NewEvent:
    try:
        fields = split_object(item)
        kind = decode(fields.pop("type", "null"))
    except InvalidJson as error:
        raise _refuse(index, f"an event is an object with type and data: {error}") from error
    if not isinstance(kind, str):
        raise _refuse(index, "its type is no text")
    if "data" not in fields:
        raise _refuse(index, "it has no data: an object of its own, `{}` for none")
    data = fields.pop("data")
    if fields:
        raise _refuse(index, f"it has more than type and data: {', '.join(sorted(fields))[:80]}")
    return NewEvent(kind, data.encode())


def _refuse(index: int, why: str) -> Problem:
    return Problem(422, "invalid_event", f"event {index}: {why}", index=index, why=why)
