"""The events of a conversation: as they come to whoever follows, from where he was, and what others add to them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from ledger.errors import LedgerError, UnknownConversation
from ledger.following import take_replay
from ledger.http.answers import Appended
from ledger.http.conversations import TAG, admit, answer
from ledger.http.frames import encode_batch, encode_replay, retry
from ledger.http.given import GIVEN, read_events
from stream import Diverged, InvalidEvent, SeqConflict, StreamError, Truncated
from stream.http import EventStream, Once, Problem
from stream.http.bodies import check_json_type, read_body
from stream.http.openapi import EVENTS, TEXT, Content, Parameter, describe
from stream.http.queries import query_number, query_text, read_number
from stream.http.sse import BrokenOff
from stream.limits import MAX_INTEGER
from stream.logger import Logger

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from starlette.requests import Request
    from starlette.responses import Response

    from ledger.ledger import Ledger
    from stream import Event
    from stream.http import Service
    from stream.http.routes import Handler

    Batch = tuple[Event, ...]

_LOG: Final = Logger("tailfold.http")
INCARNATION: Final = "Tailfold-Incarnation"
_POSITION: Final = {"type": "integer", "minimum": 0, "maximum": MAX_INTEGER}
_MAX_EXPECTED: Final = 2**62  # leaves room for the events
_FOLLOWING: Final = """Each event of the log is one of the stream: `id` is its seq, `event` its type, `data` its body as one
line of JSON, or `{"base64": …}` where the body is no JSON. Comments come while nothing happens. It never ends by itself: an
`EventSource` that loses it comes back with the last id it has, and goes on from there, each event once.

Where a position can't be continued (below the floor of a log that was compacted, beyond its head, of another life of the
store) an event `snapshot` comes first: `{"seq", "incarnation", "messages", "open_runs"}`, all that was said through `seq`,
which is its id; with `transcript`, a link relative to this address, in place of `messages` where they are many. Events after
`seq` follow. Let go what you had, and keep `incarnation`, which every answer has as a header too, with your position."""


class Events:
    """The endpoints."""

    def __init__(self, ledger: Ledger, service: Service) -> None:
        self._ledger = ledger
        self._service = service
        self._encoders: dict[str, tuple[Once[Batch], int]] = {}  # and how many follow, of each conversation

    def routes(self) -> list[tuple[str, Handler, list[str]]]:
        """Path, endpoint, methods."""
        return [
            ("/v1/conversations/{id}/events", self.follow, ["GET"]),
            ("/v1/conversations/{id}/events", self.append, ["POST"]),
        ]

    @describe(
        TAG, "Its events after a position, and those that come, for as long as the client stays",
        detail=_FOLLOWING,
        parameters=[
            Parameter("after", "The last seq that is not wanted; 0 begins at the first.", _POSITION),
            Parameter("Last-Event-ID", "The same, and it counts where both are given.", TEXT, is_header=True),
            Parameter("incarnation", "Of the store that the position is from.", TEXT),
        ],
        answers={200: Content("The events.", TEXT, EVENTS, headers={INCARNATION: "Of the store: a position is of it."})},
        problems=(404,),
    )  # fmt: skip
    async def follow(self, request: Request) -> EventStream:
        """The events after a position as they come, each with its seq as id."""
        conversation = await admit(self._service, "read", request)
        last = request.headers.get("last-event-id")
        after = read_number("Last-Event-ID", last) if last else query_number(request, "after", 0)
        if not after and not last:
            await self._require(conversation)
        source = self._frames(conversation, after, query_text(request, "incarnation"))
        return EventStream(source, self._service.followers, {INCARNATION: self._service.store.incarnation})

    @describe(
        TAG, "Adds events to it, all or none; a conversation begins with its first",
        detail="Bodies are kept byte for byte, and held against their types before: `/v1/schema.json` says what they hold. "
        "To try again safely, send `Expected-Seq` and an `Idempotency-Key` of your own: what was done is answered as it was "
        "the first time. Events of a run that is written by a program's `Run` belong to that program.",
        parameters=[
            Parameter("Expected-Seq", "Append only if this is the last seq.",
                      {**_POSITION, "maximum": _MAX_EXPECTED}, is_header=True),
            Parameter("Idempotency-Key", "Any text of 1 to 256 bytes; it needs `Expected-Seq`.",
                      {"type": "string", "minLength": 1, "maxLength": 256}, is_header=True),
        ],
        body=Content("The events in order.", GIVEN, example=[{"type": "conversation.created", "data": {"title": "Lisbon"}}]),
        answers={200: Content("They are durable.", Appended)}, problems=(404, 408, 409, 413, 415, 422, 507),
    )  # fmt: skip
    async def append(self, request: Request) -> Response:
        """Takes events in."""
        conversation = await admit(self._service, "append", request)
        expected, key = request.headers.get("expected-seq"), request.headers.get("idempotency-key")
        expected_seq = None if expected is None else read_number("Expected-Seq", expected, most=_MAX_EXPECTED)
        if key is not None and expected_seq is None:
            why = "Idempotency-Key goes with Expected-Seq: without it, a repeat can't be told from another append"
            raise Problem(400, "expected_seq_missing", why)
        check_json_type(request)
        given = read_events(await read_body(request, self._service.max_body_bytes))
        try:
            done = await self._ledger.record(conversation, given, expected_seq=expected_seq, append_id=key)
        except SeqConflict as error:
            raise Problem(409, "seq_conflict", str(error), head=error.head) from error
        except InvalidEvent as error:
            raise Problem(422, "invalid_event", str(error), index=error.index, why=error.why) from error
        return answer({"first_seq": done.first_seq, "last_seq": done.last_seq})

    async def _require(self, conversation: str) -> None:
        """Raises `UnknownConversation` for one that never was; who was told a position, also 0, is told what there is.

        A client of server-sent events never comes back after any other answer than 200: what passes must not give one.
        """
        try:
            head = (await self._service.store.bounds(conversation)).head
        except StreamError:
            return
        if not head:
            raise UnknownConversation(conversation)

    async def _frames(self, conversation: str, after: int, incarnation: str | None) -> AsyncGenerator[bytes, None]:
        yield retry()
        with self._encoder(conversation) as encode:
            while True:
                try:
                    with self._service.tails.join(conversation, after=after, incarnation=incarnation) as follower:
                        while True:
                            frames = encode(await follower.next())  # the events are let go while they are sent
                            after = follower.after
                            yield frames
                except (Truncated, Diverged):
                    try:
                        replay = await take_replay(self._ledger.engine, conversation)
                    except LedgerError as error:  # an operator mends that, and the client comes back
                        _LOG.error("http.replay_failed", conversation=conversation, error=type(error).__name__)
                        raise BrokenOff from error
                    yield encode_replay(replay)
                    after, incarnation = replay.last_seq, replay.incarnation

    @contextlib.contextmanager
    def _encoder(self, conversation: str) -> Iterator[Once[Batch]]:
        """What makes frames once for all who follow the same conversation."""
        encode, count = self._encoders.get(conversation) or (Once(encode_batch), 0)
        self._encoders[conversation] = encode, count + 1
        try:
            yield encode
        finally:
            count = self._encoders[conversation][1] - 1
            if count:
                self._encoders[conversation] = encode, count
            else:
                del self._encoders[conversation]
