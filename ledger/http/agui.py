"""AG-UI over HTTP: what a thread holds and what its run goes on to say, for a client that connects whenever it likes."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ledger.errors import LedgerError
from ledger.exports import with_media
from ledger.http.agui_pieces import fit, in_pieces
from ledger.http.watched import events_behind, look_at, redacted_behind
from projector.formats.agui.stream_events import WITHDRAWN, withdrawn
from projector.formats.agui.stream_writer import AguiStreamWriter
from projector.formats.agui.writer import write
from projector.json_text import InvalidJson, decode, dump
from projector.settle import settle
from stream import Diverged, Truncated
from stream.http import EventStream, Problem
from stream.http.bodies import read_body
from stream.http.openapi import EVENTS, TEXT, Content, describe
from stream.http.sse import BrokenOff, frame
from stream.logger import Logger

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence

    from starlette.requests import Request

    from ledger.http.watched import Watched
    from ledger.ledger import Ledger
    from projector import Message
    from stream import Event
    from stream.http import Service

    Handler = Callable[[Request], Awaitable[EventStream]]

_LOG: Final = Logger("tailfold.http")
MAX_SHOWN: Final = 1000
_ENDS: Final = ("RUN_FINISHED", "RUN_ERROR")
_OVERTAKEN: Final = {
    "type": "RUN_ERROR", "code": "overtaken", "message": "what comes next is not in the log any more: connect again",
}  # fmt: skip
_TAKEN_BACK: Final = {
    "type": "RUN_ERROR", "code": "taken_back", "message": "what was shown was taken back, and the run is over: connect again",
}  # fmt: skip
Wire = list[dict[str, Any]]


class RunAgentInput(msgspec.Struct):
    """What of the request's body counts here: the log knows the messages better than the client, which keeps some of its own.

    Source: AG-UI 1.0, RunAgentInput.
    """

    threadId: str  # noqa: N815 - the protocol's name
    runId: str  # noqa: N815 - the same
    messages: list[Any] | None = None


class Agui:
    """The endpoint. A thread of AG-UI is a conversation, and the run that it shows is the one on the active path."""

    def __init__(self, ledger: Ledger, service: Service) -> None:
        self._ledger = ledger
        self._service = service

    def routes(self) -> list[tuple[str, Handler, list[str]]]:
        """Path, endpoint, methods."""
        return [("/v1/agui/connect", self.connect, ["POST"])]

    @describe(
        "agents", "A thread for a client of AG-UI: what it holds, and what its run goes on to say, until it ends",
        body=Content("RunAgentInput; `threadId` is the conversation.", RunAgentInput),
        answers={200: Content("Events of AG-UI 1.0.", TEXT, EVENTS)}, problems=(413, 422),
    )  # fmt: skip
    async def connect(self, request: Request) -> EventStream:
        """RUN_STARTED, MESSAGES_SNAPSHOT, what is open opened again, and what comes, until the run ends.

        Where none is under way RUN_FINISHED comes at once; a thread that nobody knows is an empty one. Where what comes
        has gone from the log before a slow client had it the run ends with RUN_ERROR, `overtaken`. Where a step or a message
        is taken back that has gone out, another MESSAGES_SNAPSHOT comes, and all that is open begins anew behind it.
        """
        asked = _read(await read_body(request, self._service.max_body_bytes))
        await self._service.check("read", "conversation", asked.threadId, request)
        return await self.answer(asked.threadId, asked.runId, asked.messages)

    async def answer(self, thread_id: str, run_id: str, messages: Sequence[Any] | None = None) -> EventStream:
        """The same for a program's own endpoint, which has looked at the request. `run_id` names a run that is none.

        `messages` are those of the client: reasoning among them that was taken back meanwhile it would keep.
        """
        watched = await look_at(self._ledger.engine, thread_id)
        run_id = run_id if watched.run is None else watched.run.run_id
        writer = AguiStreamWriter(thread_id=thread_id, run_id=run_id)
        thoughts = [
            str(each.get("id")) for each in messages or () if isinstance(each, dict) and each.get("role") == "reasoning"
        ]
        begun = _without(thoughts, await self._begin(writer, watched, run_id))
        return EventStream(self._events(writer, watched, begun, thoughts), self._service.followers)

    async def _begin(self, writer: AguiStreamWriter, watched: Watched, run_id: str) -> Wire:
        """How the client gets to where the conversation stands; earlier messages than it can take stay away."""
        path = await self._shown(watched)
        if watched.run is not None:
            events = writer.resume([watched.run], path)
        else:
            named = {"threadId": watched.conversation, "runId": run_id}
            snapshot = {"type": "MESSAGES_SNAPSHOT", "messages": write(path).payload}
            events = [{"type": "RUN_STARTED"} | named, snapshot, {"type": "RUN_FINISHED"} | named]
        return fit(events)

    async def _shown(self, watched: Watched) -> Sequence[Message]:
        engine, name, leaf = self._ledger.engine, watched.conversation, watched.leaf
        path = [] if leaf is None else await engine.tables.path(name, leaf, MAX_SHOWN)
        said = () if watched.run is None else settle(watched.run, None).messages
        return (await with_media(engine, name, [*path, *said])).messages

    async def _events(
        self, writer: AguiStreamWriter, watched: Watched, begun: Wire, thoughts: list[str]
    ) -> AsyncGenerator[bytes, None]:
        yield _frames(begun)
        wire, thoughts = begun, thoughts + _thoughts(begun)
        try:
            while watched.run is not None and wire[-1]["type"] not in _ENDS:
                async with aclosing(events_behind(self._service, watched)) as batches:
                    async for batch in batches:
                        wire, last = _until_end(writer, batch)
                        thoughts += _thoughts(wire)
                        if last is not None and wire and wire[-1]["type"] in _ENDS:
                            yield _frames(wire[:-1])
                            gone = await redacted_behind(self._service, watched.conversation, last)
                            wire = withdrawn(gone) or wire[-1:]
                        yield _frames(wire)  # what says nothing here is a heartbeat
                        if wire and (wire[-1]["type"] in _ENDS or _is_withdrawn(wire[-1])):
                            break
                if wire[-1]["type"] not in _ENDS:
                    yield _frames(writer.close())
                    try:
                        writer, watched, wire = await self._anew(watched.conversation, watched.run.run_id, thoughts)
                    except (LedgerError, Problem) as error:  # an operator mends that, and the client comes back
                        _LOG.error("http.replay_failed", conversation=watched.conversation, error=type(error).__name__)
                        raise BrokenOff from error
                    yield _frames(wire)
        except (Truncated, Diverged):
            yield _frames([_OVERTAKEN])

    async def _anew(self, thread_id: str, run_id: str, thoughts: list[str]) -> tuple[AguiStreamWriter, Watched, Wire]:
        """What is shown instead where something was taken back that has gone out: all as it stands, in the same run.

        Under the ids that whoever connects anew would see, or what is the same would stand elsewhere for him.
        """
        watched = await look_at(self._ledger.engine, thread_id)
        writer = AguiStreamWriter(thread_id=thread_id, run_id=run_id)
        if watched.run is not None and watched.run.run_id == run_id:
            _, *begun = await self._begin(writer, watched, run_id)
            return writer, watched, _without(thoughts, begun)
        ended = await self._ledger.tables.run(thread_id, run_id)
        is_well = watched.run is None and ended is not None and ended.outcome == "completed"
        watched = watched._replace(run=None)
        _, *begun, end = await self._begin(writer, watched, run_id)
        return writer, watched, _without(thoughts, [*begun, end if is_well else _TAKEN_BACK])


def _without(thoughts: list[str], begun: Wire) -> Wire:
    """For a client that has shown these: it keeps all the reasoning that it has, unless it is told of some."""
    [at] = [number for number, event in enumerate(begun) if event["type"] == "MESSAGES_SNAPSHOT"]
    messages = begun[at]["messages"]
    if not thoughts or any(message["role"] == "reasoning" for message in messages):
        return begun
    none = {"id": thoughts[-1].rstrip("~") + "~", "role": "reasoning", "content": ""}
    return [*begun[:at], begun[at] | {"messages": [*messages, none]}, *begun[at + 1 :]]


def _thoughts(wire: Wire) -> list[str]:
    """The ids of what is shown as reasoning from here on."""
    begun = [event["messageId"] for event in wire if event["type"] == "REASONING_START"]
    told = [message for event in wire for message in event.get("messages", ())]
    return [message["id"] for message in told if message["role"] == "reasoning"] + begun


def _until_end(writer: AguiStreamWriter, batch: Iterable[Event]) -> tuple[Wire, Event | None]:
    """What a batch says, as far as the run goes on or all that it says counts, and the last of its events that says it."""
    wire: Wire = []
    last: Event | None = None
    for last in batch:
        wire += writer.feed(last)
        if wire and (wire[-1]["type"] in _ENDS or _is_withdrawn(wire[-1])):
            break
    return wire, last


def _is_withdrawn(event: dict[str, Any]) -> bool:
    return (event["type"], event.get("name")) == ("CUSTOM", WITHDRAWN)


def _read(body: bytes) -> RunAgentInput:
    try:
        asked: RunAgentInput = decode(body, RunAgentInput)
    except InvalidJson as error:
        raise Problem(422, "invalid_input", f"the body is no RunAgentInput of AG-UI: {error}") from error
    return asked


def _frames(wire: Wire) -> bytes:
    return b"".join([frame(dump(event).encode()) for event in in_pieces(wire)])
