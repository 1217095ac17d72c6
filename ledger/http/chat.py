"""The AI SDK's UI message stream over HTTP: the answer that is under way, from its beginning, for whoever comes back."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, Literal

from starlette.responses import Response

from ledger.http.watched import events_behind, look_at, redacted_behind
from projector import events as ev
from projector.formats.ai_sdk.parts import DATA
from projector.formats.ai_sdk.stream_chunks import RESET, for_version_6
from projector.formats.ai_sdk.stream_writer import WITHDRAWN, AiSdkStreamWriter
from projector.formats.shared.live import body_of, drafts_in_order, end_of
from projector.json_text import dump
from stream import Diverged, Truncated
from stream.http import EventStream
from stream.http.openapi import EVENTS, TEXT, Content, Parameter, describe
from stream.http.queries import query_choice
from stream.http.sse import BrokenOff, frame

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from starlette.requests import Request

    from ledger.http.watched import Watched
    from ledger.ledger import Ledger
    from projector.run_draft import RunDraft
    from stream import Event
    from stream.http import Service

    Handler = Callable[[Request], Awaitable[Response]]

HEADERS: Final = {"x-vercel-ai-ui-message-stream": "v1"}
_VERSIONS: Final = ("6", "7")
_WITHDRAWN: Final = f"{DATA}{WITHDRAWN}"
_DONE: Final = b"data: [DONE]\n\n"
_ENDS: Final = ("finish", "abort", "error")
_ENDINGS: Final = (ev.RunFinished.TYPE, ev.RunRecovered.TYPE, ev.RunPaused.TYPE)
_BEGINNINGS: Final = (ev.MessageStarted.TYPE, ev.ToolResult.TYPE)
_PAUSED: Final = {"type": "finish", "finishReason": "tool-calls"}
"""A person is asked: the client answers only when the stream is over."""
Chunks = list[dict[str, Any]]


class Chat:
    """The endpoint. A chat is a conversation, and the UIMessage that goes out has the id of the run."""

    def __init__(self, ledger: Ledger, service: Service) -> None:
        self._ledger = ledger
        self._service = service

    def routes(self) -> list[tuple[str, Handler, list[str]]]:
        """Path, endpoint, methods."""
        return [("/v1/chat/{id}/stream", self.resume, ["GET"])]

    @describe(
        "agents", "The run of a chat that is under way, for a client of the AI SDK, from its beginning until it ends",
        parameters=[
            Parameter("ai", "The version of the AI SDK that reads it, `6` where it is not given. `7` is told of a step that is "
                      "taken back, where the stream of `6` is broken off, of what was said to a call, and of an interruption.",
                      {"enum": [*_VERSIONS]}),
        ],
        answers={200: Content("The chunks of its UI message stream.", TEXT, EVENTS), 204: Content("No run is under way.")},
    )  # fmt: skip
    async def resume(self, request: Request) -> Response:
        """What the run on the active path has said, from the start of its message, and what comes, until it ends.

        204 where none is under way or nobody knows the chat. The stream ends well only behind `finish`, `abort` or
        `error`; where what comes next can't be told it is broken off, and the next request begins anew. What a program
        tells only those who follow right now (`custom`) is not repeated. Source: AI SDK 6 and 7, UI message stream protocol.
        """
        chat = request.path_params["id"]
        await self._service.check("read", "conversation", chat, request)
        return await self.answer(chat, ai=7 if query_choice(request, "ai", _VERSIONS) == "7" else 6)

    async def answer(self, chat: str, *, ai: Literal[6, 7] = 6, continues: str | None = None) -> Response:
        """The same for a program's own endpoint: of a run that has begun before it is called nothing is missed.

        `ai` is the version that reads it. One of 6 knows no step that is taken back: the stream is broken off there, and
        the client, which comes back, gets what counts. `continues` is the id of the last message that the page has sent
        where that is the assistant's: the page lets it grow by what comes, and would show it twice as another one. Of a
        run that goes on itself (its id is that of the message) only what comes from now on is told, so ask before it does.
        """
        watched = await look_at(self._ledger.engine, chat)
        if watched.run is None:
            return Response(status_code=204)
        return EventStream(self._chunks(watched, watched.run, ai, continues), self._service.followers, HEADERS)

    async def _chunks(
        self, watched: Watched, run: RunDraft, ai: Literal[6, 7], continues: str | None
    ) -> AsyncGenerator[bytes, None]:
        writer = AiSdkStreamWriter(run_id=run.run_id)
        begun = _known(writer.resume([run]), ai)
        if run.step is not None and not begun:  # what a page has of it may have been taken back
            begun = [{"type": "start", "messageId": run.run_id}]
        goes_on = continues == run.run_id
        if goes_on:
            begun = [chunk for chunk in begun if chunk["type"] == "start"]
        yield _frames(_named(begun, continues))
        if run.paused and not goes_on:
            yield _end(begun, _PAUSED)
            return
        shown = {draft.id for draft in drafts_in_order(run)}
        try:
            async with aclosing(events_behind(self._service, watched)) as batches:
                async for batch in batches:
                    chunks: Chunks = []
                    for event in batch:
                        said = _named(_known(writer.feed(event), ai), continues)
                        _require_told(event, said, run.run_id, shown)
                        chunks += said
                        end = _end_of(event, run.run_id)
                        if end is not None:
                            end = chunks.pop() if chunks and chunks[-1]["type"] in _ENDS else end
                            yield _frames(chunks)
                            if not shown.isdisjoint(await redacted_behind(self._service, watched.conversation, event)):
                                raise BrokenOff
                            yield _frames([end]) + _DONE
                            return
                    yield _frames(chunks)  # what says nothing here is a heartbeat
        except (Truncated, Diverged) as error:
            raise BrokenOff from error


def _require_told(event: Event, said: Chunks, run_id: str, shown: set[str]) -> None:
    """Raises `BrokenOff` where something was taken back that has gone out here, and the client has to begin anew.

    `shown` are the messages of the run. What has gone out says which they are, and no table, which is of another moment.
    """
    is_withdrawn = bool(said) and said[-1]["type"] == _WITHDRAWN
    if not is_withdrawn and event.type not in _BEGINNINGS:  # most are pieces of text, and are read once
        return
    body = body_of(event)
    if isinstance(body, ev.MessageStarted | ev.ToolResult) and body.run_id == run_id:
        shown.add(body.message_id)
    if not is_withdrawn:
        return
    if not isinstance(body, ev.MessageRedacted) or body.message_id in shown:
        raise BrokenOff


def _known(chunks: Chunks, ai: Literal[6, 7]) -> Chunks:
    """What this version takes. Raises `BrokenOff` where that can't say it."""
    if ai > 6:
        return chunks
    if any(chunk["type"] == RESET for chunk in chunks):
        raise BrokenOff
    return for_version_6(chunks)


def _named(chunks: Chunks, message_id: str | None) -> Chunks:
    """A UIMessage that begins under another id than that of its run."""
    if message_id is None:
        return chunks
    return [chunk | {"messageId": message_id} if chunk["type"] == "start" else chunk for chunk in chunks]


def _end_of(event: Event, run_id: str) -> dict[str, Any] | None:
    """What a stream ends with, for a run that has said nothing, or is not over."""
    body = body_of(event) if event.type in _ENDINGS else None
    if isinstance(body, ev.RunPaused) and body.run_id == run_id:
        return _PAUSED
    if isinstance(body, ev.RunFinished | ev.RunRecovered) and body.run_id == run_id:
        return {"type": "abort" if end_of(body).outcome == "cancelled" else "finish"}
    return None


def _end(chunks: Chunks, end: dict[str, Any]) -> bytes:
    is_told = bool(chunks) and chunks[-1]["type"] in _ENDS
    return (b"" if is_told else _frames([end])) + _DONE


def _frames(chunks: Chunks) -> bytes:
    return b"".join([frame(dump(chunk).encode()) for chunk in chunks])
