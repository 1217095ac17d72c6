"""Every limit of a log, in one place, and the checks that enforce them before anything is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from stream.checks import check_kind, check_list, shown
from stream.errors import InvalidEvent, InvalidId
from stream.records import NewEvent, Producer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stream.records import Event

MAX_ID_BYTES: Final = 256
MAX_RUN_ID_BYTES: Final = 200
MAX_TYPE_BYTES: Final = 64
MAX_EVENT_BYTES: Final = 64 * 1024 * 1024
MAX_APPEND_BYTES: Final = 64 * 1024 * 1024
MAX_APPEND_EVENTS: Final = 10_000
MAX_PAGE_BYTES: Final = 16 * 1024 * 1024  # a page of `read` ends behind the event that reaches this, whatever its limit
MAX_INTEGER: Final = 2**63 - 1
PROTOCOL_PREFIX: Final = "ds:"  # ids of streams that serve a protocol and are no conversations begin so
_LISTS: Final = (list, tuple)


class Limits(msgspec.Struct, frozen=True):
    """What one event and one append may be in a store: bytes of data, and events. A backend may take less than these."""

    event_bytes: int = MAX_EVENT_BYTES
    append_events: int = MAX_APPEND_EVENTS
    append_bytes: int = MAX_APPEND_BYTES


LIMITS: Final = Limits()


def check_id(what: str, value: object, *, max_bytes: int = MAX_ID_BYTES) -> str:
    """Returns `value`, or raises `InvalidId` unless it is 1 to `max_bytes` bytes of UTF-8 without NUL."""
    if type(value) is str and value.isascii() and 0 < len(value) <= max_bytes and "\0" not in value:  # nearly all are
        return value
    why = _why_odd(value, max_bytes)
    if why or not isinstance(value, str):
        raise InvalidId(f"{what} {shown(value)} {why}: use 1 to {max_bytes} bytes of UTF-8 without NUL")
    return value


def check_position(what: str, value: object) -> int:
    """Returns `value`, or raises `ValueError` unless it is a whole number of at least 0 that a store can hold."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_INTEGER:
        raise ValueError(f"{what} must be a whole number from 0 to {MAX_INTEGER}, not {shown(value)}")
    return value


def check_prefix(what: str, value: object) -> str:
    """Returns `value`, or raises `InvalidId` unless an id can begin with it; the empty one is of all."""
    return "" if isinstance(value, str) and not value else check_id(what, value)


def check_events(events: Sequence[NewEvent], *, first_index: int = 0, limits: Limits = LIMITS) -> None:
    """Raises `InvalidEvent` with the index of the first event that no store takes."""
    if type(events) not in _LISTS:  # nearly all are
        try:
            check_list("events", events, "NewEvents")
        except ValueError as error:
            raise InvalidEvent(first_index, str(error)) from error
    if len(events) > limits.append_events:
        raise InvalidEvent(limits.append_events, f"an append holds at most {limits.append_events} events, not {len(events)}")
    max_event_bytes, max_append_bytes = limits.event_bytes, limits.append_bytes
    total_bytes = 0
    for index, event in enumerate(events, first_index):
        if not isinstance(event, NewEvent):
            raise InvalidEvent(index, f"it is {shown(event)}, not a NewEvent")
        kind: object = event.type
        data: object = event.data
        is_plain = type(kind) is str and kind.isascii() and 0 < len(kind) <= MAX_TYPE_BYTES and "\0" not in kind
        why = "" if is_plain else _why_odd(kind, MAX_TYPE_BYTES)
        if why:
            raise InvalidEvent(index, f"its type {why}: use 1 to {MAX_TYPE_BYTES} bytes of UTF-8 without NUL")
        if not isinstance(data, bytes):
            raise InvalidEvent(index, f"its data is {type(data).__name__}, not bytes")
        size_bytes = len(data)
        if size_bytes > max_event_bytes:
            raise InvalidEvent(index, f"its data is {size_bytes} bytes, the limit is {max_event_bytes}")
        total_bytes += size_bytes
        if total_bytes > max_append_bytes:
            raise InvalidEvent(index, f"the append grows over {max_append_bytes} bytes here: split it")


def cut_page(events: list[Event]) -> list[Event]:
    """The events up to the one that reaches `MAX_PAGE_BYTES`."""
    size_bytes = 0
    for count, event in enumerate(events, 1):
        size_bytes += len(event.data)
        if size_bytes >= MAX_PAGE_BYTES:
            return events[:count]
    return events


def check_producer(producer: Producer) -> None:
    """Raises `InvalidId` or `ValueError` for a producer that no store takes."""
    check_kind("producer", producer, Producer, "a Producer")
    check_id("producer id", producer.id)
    check_position("producer epoch", producer.epoch)
    check_position("producer seq", producer.seq)


def _why_odd(text: object, max_bytes: int) -> str:
    if not isinstance(text, str):
        return f"is {type(text).__name__}, not text"
    if not text:
        return "is empty"
    if len(text) > max_bytes:
        return f"is {len(text)} characters long"
    try:
        size_bytes = len(text.encode())
    except UnicodeEncodeError:
        return "holds a lone surrogate"
    if size_bytes > max_bytes:
        return f"is {size_bytes} bytes long"
    return "holds a NUL" if "\0" in text else ""
