"""POST: appends to a stream, closes it, or both in one step; the repeats of a producer are known as such."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from stream.errors import ProducerFenced, ProducerGap, SeqConflict
from stream.http.durable import messages
from stream.http.durable import state as kinds
from stream.http.durable.headers import CLOSED, NEXT_OFFSET, about, is_closing, read_media, read_producer
from stream.http.problems import Problem
from stream.limits import MAX_APPEND_EVENTS
from stream.records import NewEvent

if TYPE_CHECKING:
    from starlette.datastructures import Headers

    from stream.http.durable.state import State
    from stream.http.durable.streams import Stream, Streams
    from stream.records import Producer

_MAX_SEQUENCE_BYTES: Final = 1024
_BESIDE: Final = 8  # events of an append that are no messages


class Request:
    """What a POST asks for. Raises `Problem` 400 for headers that can't be."""

    def __init__(self, headers: Headers, body: bytes) -> None:
        self.producer = read_producer(headers)
        self.is_closing = is_closing(headers)
        self.media = read_media(headers)
        self.sequence = headers.get("Stream-Seq")
        self.body = body
        if self.sequence is not None and len(self.sequence) > _MAX_SEQUENCE_BYTES:
            raise Problem(400, "invalid_header", f"Stream-Seq has at most {_MAX_SEQUENCE_BYTES} characters")


async def append(streams: Streams, stream: Stream, request: Request) -> Response | None:
    """The answer once it is durable; None where the stream has gone meanwhile. Raises `Problem` (2.4, 2.5)."""
    async with stream.lock:
        while stream.is_there:
            head, state, producer = stream.head, stream.state, request.producer
            watermark = await streams.watermark(stream, producer.id) if producer else None
            answer = decide(state, request, watermark)
            if answer is not None:
                await streams.refresh(stream)
                if stream.head != head:  # what the watermark told of may be newer than the state
                    continue
                await streams.renew(stream)
                return answer
            try:
                result = await streams.append(stream, events_of(state, request), head=head, producer=producer)
                if not result.duplicate:
                    return _accepted(stream.state, request)
            except (SeqConflict, ProducerFenced, ProducerGap):
                pass
            await streams.refresh(stream)  # another process was first
    return None


def decide(state: State, request: Request, watermark: Producer | None) -> Response | None:
    """The answer to a request that appends nothing, or None. Raises `Problem` for what is refused."""
    if not request.body and not request.is_closing:
        raise Problem(400, "empty_body", "there is nothing to append: send a body, or Stream-Closed: true")
    if state.is_closed:
        return _of_closed(state, request)
    if request.body:
        _check_media(state, request.media)
    if request.producer is not None:
        answer = _of_producer(state, request.producer, watermark)
        if answer is not None:
            return answer
    if request.sequence is not None and state.sequence is not None and request.sequence <= state.sequence:
        raise Problem(409, "sequence_conflict", "Stream-Seq is not greater than that of the last append")
    return None


def events_of(state: State, request: Request) -> list[NewEvent]:
    """The events that are appended, as one whole. Raises `Problem` 400 or 413."""
    events = [NewEvent(kinds.SEQUENCE, request.sequence.encode())] if request.sequence is not None else []
    if request.body:
        parts = split(request.body, state.config.media)
        if not parts:
            raise Problem(400, "empty_array", "an empty array holds no message")
        events += [NewEvent(kinds.DATA, part) for part in parts]
    if request.is_closing:
        events.append(NewEvent(kinds.CLOSE, kinds.encode_closing(request.producer)))
    return events


def split(body: bytes, media: str) -> list[bytes]:
    """The messages of a body. Raises `Problem` 400 for what is no JSON, 413 for too many."""
    return messages.split(body, media, most=MAX_APPEND_EVENTS - _BESIDE)


def _check_media(state: State, media: str | None) -> None:
    if media is None:
        raise Problem(400, "no_content_type", f"send a Content-Type: this stream is of {state.config.media}")
    if messages.base_of(media) != messages.base_of(state.config.media):
        raise Problem(409, "content_type_conflict", f"this stream is of {state.config.media}", headers=about(state))


def _of_closed(state: State, request: Request) -> Response:
    producer = request.producer
    is_repeat = producer == state.closing if producer is not None else not request.body
    if not is_repeat:
        raise Problem(409, "closed", "the stream is closed: nothing is appended any more", headers=about(state))
    told = {"Producer-Epoch": str(producer.epoch), "Producer-Seq": str(producer.seq)} if producer else {}
    return Response(status_code=204, headers=about(state) | told)


def _of_producer(state: State, producer: Producer, watermark: Producer | None) -> Response | None:
    if watermark is not None and producer.epoch < watermark.epoch:
        told = {"Producer-Epoch": str(watermark.epoch)}
        raise Problem(403, "fenced", f"epoch {watermark.epoch} of this producer has begun", headers=told)
    if watermark is None or producer.epoch > watermark.epoch:
        if watermark is not None and producer.seq:
            raise Problem(400, "invalid_header", "a new epoch begins with Producer-Seq 0")
        expected = 0
    else:
        expected = watermark.seq + 1
    if producer.seq > expected:
        told = {"Producer-Expected-Seq": str(expected), "Producer-Received-Seq": str(producer.seq)}
        raise Problem(409, "producer_gap", f"the next append of this producer is {expected}", headers=told)
    if producer.seq == expected:
        return None
    told = {"Producer-Epoch": str(producer.epoch), "Producer-Seq": str(expected - 1)}
    return Response(status_code=204, headers={NEXT_OFFSET: str(state.end)} | told)


def _accepted(state: State, request: Request) -> Response:
    headers = {NEXT_OFFSET: str(state.end)} | ({CLOSED: "true"} if request.is_closing else {})
    if request.producer is None:
        return Response(status_code=204, headers=headers)
    headers |= {"Producer-Epoch": str(request.producer.epoch), "Producer-Seq": str(request.producer.seq)}
    return Response(status_code=200 if request.body else 204, headers=headers)
