"""Takes in a stream of another store: its events in as few messages as they fit in, stored as one batch."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from stream.errors import InvalidEvent, SeqConflict
from stream.nats.client import HEADER
from stream.nats.state import NOWHERE, Mark, State, write_state
from stream.records import NewEvent
from stream.tables.chunks import MAX_CHUNK_EVENTS, checksum, chunk_place, join, pack

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stream.limits import Limits
    from stream.nats.log import Log
    from stream.records import Event, Producer

_MAX_MESSAGES: Final = 1000
_CHUNK_BYTES: Final = 256 * 1024
_EVENT_BYTES: Final = 128
_MAX_MARKS_BYTES: Final = 64 * 1024


async def adopt(
    log: Log, limits: Limits, stream_id: str, events: Sequence[Event], floor: int, origin: int, producers: Sequence[Producer]
) -> None:
    """See `EventStore.adopt`; the arguments are checked. Raises `InvalidEvent` for more than one batch holds."""
    chunks = list(_cut(events, min(_CHUNK_BYTES, limits.append_bytes)))
    if len(chunks) > _MAX_MESSAGES:
        at = chunks[_MAX_MESSAGES][0].seq - floor - 1
        why = f"a stream of more than {_MAX_MESSAGES} messages of {_CHUNK_BYTES} bytes can't be taken in as a whole"
        raise InvalidEvent(at, f"{why}: truncate it before it is copied")
    head = floor + len(events)
    marks = tuple(Mark(each.id, each.epoch, each.seq, head + 1, head) for each in producers)
    if sum(len(mark.id) + 40 for mark in marks) > min(_MAX_MARKS_BYTES, limits.append_bytes):
        raise InvalidEvent(0, f"its {len(marks)} producers are more than one message says: leave out those that have ended")
    name = secrets.token_bytes(16)
    messages = [
        _write(stream_id, chunk, name, State(chunk[-1].seq, len(chunk), floor, origin, left=len(chunks) - number))
        for number, chunk in enumerate(chunks[:-1], 1)
    ]
    messages.append(_write(stream_id, chunks[-1] if chunks else [], name, State(head, 0, floor, origin, marks=marks)))
    subject = log.layout.log(stream_id)
    whole = [(subject, data, headers, None if number else 0) for number, (_, data, headers) in enumerate(messages)]

    sent = False

    async def once() -> None:
        nonlocal sent
        place = await log.place(stream_id)
        if place is not NOWHERE:
            if sent and place.state == messages[-1][0]:  # it was stored, and nobody had said so
                return
            raise SeqConflict(stream_id, 0, place.state.head)
        sent = True
        if len(whole) == 1:
            await log.client.send(*whole[0][:3], expected=0)
        else:
            await log.client.send_batch(whole, name=secrets.token_hex(8))

    await log.client.again(once)


def _cut(events: Sequence[Event], max_bytes: int) -> Iterator[list[Event]]:
    chunk: list[Event] = []
    size_bytes = 0
    for event in events:
        size_bytes += len(event.data) + _EVENT_BYTES
        if chunk and (size_bytes > max_bytes or len(chunk) == MAX_CHUNK_EVENTS):
            yield chunk
            chunk, size_bytes = [], len(event.data) + _EVENT_BYTES
        chunk.append(event)
    if chunk:
        yield chunk


def _write(stream_id: str, events: Sequence[Event], name: bytes, state: State) -> tuple[State, bytes, dict[str, str]]:
    """The state as it is written, the data, and the headers."""
    items = [(event.at, name, pack([NewEvent(event.type, event.data)])) for event in events]
    data = join(items) if items else b""
    crc = checksum(chunk_place(stream_id, state.head), data)
    whole = State(state.head, len(events), state.floor, state.origin, crc=crc, marks=state.marks, left=state.left)
    return whole, data, {HEADER: write_state(whole)}
