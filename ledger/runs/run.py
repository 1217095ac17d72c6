"""A run: one producer's work on a conversation, from `run.started` to its end."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal, Self, get_args

import anyio

from ledger.checks import check_json, check_patch
from ledger.errors import LedgerError, RunEnded, RunLost
from ledger.runs import answer as answers
from ledger.runs.calls import Calls
from ledger.runs.contents import check_content, check_input, check_result, read_content, read_result
from ledger.runs.media import RunMedia
from projector import events as ev
from projector.formats import STREAMS, FormatError, StreamEnd
from projector.formats.shared.history import HistoryMessage, message_bodies
from projector.json_text import InvalidJson, raw
from stream import InvalidEvent, ProducerFenced, StreamError, follow
from stream.checks import check_choice, check_name, check_text, shown
from stream.limits import check_id, check_position
from stream.logger import Logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from types import TracebackType

    from ledger.engine import Engine
    from ledger.runs.answer import Answer
    from ledger.runs.contents import File
    from ledger.runs.outbox import Outbox
    from projector import Block
    from projector.events import Outcome, Role, ToolStatus
    from projector.formats import StreamFormat
    from projector.formats.shared.media_refs import Attachment
    from projector.json_text import JsonText

OnError = Literal["failed", "incomplete"]
ROLES: Final = get_args(ev.Role)
STATUSES: Final = get_args(ev.ToolStatus)
ENDS: Final = get_args(OnError)
_OUTCOMES: Final = get_args(ev.Outcome)
_LOG: Final = Logger("tailfold.ledger")


class Run:
    """Takes in what an agent produces, and makes it durable in the background; made by `Ledger.run`.

    As a context manager it ends the run: `completed` (or what its stream says) normally, by an exception `failed`, or what
    `on_error` says, `cancelled` by a cancellation. If the end can't be written the run stays open, to be recovered. Every
    method raises what an append in the background has failed with, `RunLost` when another writer has ended the run, and
    `RunEnded` when it was finished here; a call that is cancelled has taken in all or nothing. Times are in ms.

        await run.message("user", "How warm is it?")
        call = await run.tool_call("weather", {"city": "Oslo"})
        await run.tool_result(call, {"celsius": 4})
        await run.text("It is 4 degrees.")
    """

    def __init__(
        self,
        engine: Engine,
        conversation: str,
        run_id: str,
        outbox: Outbox,
        *,
        provider_format: str | None,
        on_error: OnError,
        ended: Callable[[Run], Awaitable[None]],
    ) -> None:
        self.conversation = conversation
        self.run_id = run_id
        self._outbox = outbox
        self.begun_seq = outbox.acknowledged_seq
        self._ended = ended
        self._on_error = on_error
        self._media = RunMedia(engine, conversation, run_id)
        self._calls = Calls(engine, conversation)
        self._numbers = itertools.count(1)
        self._format: StreamFormat | None = STREAMS[provider_format](run_id, self._mint) if provider_format else None
        self._steps = 0
        self._answer: Answer | None = None
        self._answered: str | None = None
        self._finishing: asyncio.Task[None] | None = None
        self._outcome: Outcome | None = None
        self._is_closed = False

    @property
    def acknowledged_seq(self) -> int:
        """Everything of this run up to here is durable."""
        return self._outbox.acknowledged_seq

    async def feed(self, chunk: bytes | str | dict[str, Any]) -> None:
        """One chunk of the provider's stream, in the format the run was begun with; media in it go to the media store.

        Raises `FormatError` for a chunk that is not of this format, `ValueError` if the run has no format.
        """
        if self._format is None:
            raise ValueError(f"run {self.run_id!r} was begun without a format: begin it with one of {', '.join(STREAMS)}")
        await self._make_room()
        try:
            await self._put(self._format.feed(chunk), self._answer)
        except InvalidEvent as error:
            raise FormatError(f"the chunk does not fit: {error.why}") from error

    async def step(self) -> None:
        """Says that a prompt goes out to the model, by which results age; streams that are fed say it themselves."""
        await self._make_room()
        await self._put([*answers.end(self._answer), ev.RunStep(self.run_id, self._steps + 1, "started")], None)
        self._steps += 1

    async def message(
        self, role: Role, content: str | Sequence[str | File | Block], *, name: str | None = None,
        metadata: Mapping[str, Any] | None = None, created_at: int | None = None,
    ) -> str:  # fmt: skip
        """A whole message; returns its id. What the assistant was saying piece by piece is finished before it.

        `content` is text, or a list of texts, `File`s and `Block`s. `name` is that of the speaker, `metadata` are names and
        values of your own (`Message.metadata`), `created_at` the time in ms of what is recorded later. Raises `ValueError`
        for what none of them can be, `OSError` for the path of a `File` that can't be read, `UnknownMedia` for an id.
        """
        check_choice("role", role, ROLES)
        pieces = check_content("content", content)
        if name is not None:
            check_text("name", name)
        patch = {} if metadata is None else check_patch("metadata", metadata)
        if created_at is not None:
            check_position("created_at", created_at)
        blocks, media = await read_content(pieces, self._media.type_of)
        await self._make_room()
        message_id = self._mint()
        said = HistoryMessage(role, blocks, name=name, created_at=created_at, metadata=patch)
        await self._put([*answers.end(self._answer), *message_bodies(self.run_id, message_id, said)], None, media)
        if role == "assistant":
            self._answered = message_id
        return message_id

    async def text(self, delta: str) -> None:
        """Text of an assistant's message, which goes on until the next message, tool result, step or the end."""
        await self._say("text", delta)

    async def reasoning(self, delta: str) -> None:
        """What the assistant thinks, in the message that `text` and `tool_call` go on with.

        It is shown to people. To its provider goes only what that has signed, which a stream that is fed brings.
        """
        await self._say("reasoning", delta)

    async def tool_call(self, name: str, input: dict[str, Any] | str, *, id: str | None = None) -> str:  # noqa: A002
        """A tool call of the assistant, in the message that `text` goes on with; returns its id, which is made up if not given.

        `input` are its arguments, as a dict, or as the text that a model wrote, whether that is JSON or not. Raises
        `ValueError`, `InvalidId`.
        """
        check_name("name", name)
        given = check_input("input", input)
        call_id = f"call_{secrets.token_hex(12)}" if id is None else check_id("id", id)
        await self._make_room()
        said = answers.call(self._answer, self.run_id, self._mint, name, call_id, given)
        await self._put(said.bodies, said.answer)
        self._answered = said.answer.message_id
        return call_id

    async def tool_result(
        self, tool_call_id: str, result: object, *, status: ToolStatus = "ok", created_at: int | None = None
    ) -> str:
        """The result of a tool call that was made before: a message of its own, whose id is returned.

        `result` is text, a `File`, a list with `File`s or parts (`{"kind": "text", "text": …}`), or any other JSON value, which
        is kept as it is (`Block.parts`). Raises `UnknownToolCall` for a call that neither this run nor the conversation has,
        `ValueError`, `InvalidJson` for what is no JSON, `OSError` and `UnknownMedia` as `message` does.
        """
        check_text("tool_call_id", tool_call_id)
        given = check_result("result", result)
        check_choice("status", status, STATUSES)
        if created_at is not None:
            check_position("created_at", created_at)
        await self._make_room()  # the call may be on its way
        await self._calls.require(tool_call_id)
        parts, media = await read_result(given, self._media.type_of)
        await self._make_room()
        message_id = self._mint()
        body = ev.ToolResult(self.run_id, message_id, tool_call_id, status, raw(parts), created_at)
        await self._put([*answers.end(self._answer), body], None, media)
        return message_id

    async def usage(
        self, *, input: int | None = None, output: int | None = None, cached: int | None = None,  # noqa: A002
        cache_write: int | None = None, reasoning: int | None = None, request_id: str | None = None,
    ) -> None:  # fmt: skip
        """The tokens of one request, as totals: `cached` and `cache_write` lie inside `input`, `reasoning` inside `output`.

        The last word on a request counts. `request_id` is the provider's; without it the request is the one that the newest
        message of the assistant answered. Raises `ValueError` for what is no number of tokens, and where none is given.
        """
        counts = {"input": input, "output": output, "cached": cached, "cache_write": cache_write, "reasoning": reasoning}
        for name, count in counts.items():
            if count is not None:
                check_position(name, count)
        if not any(count is not None for count in counts.values()):
            raise ValueError(f"usage must say how many tokens there were: give one or more of {', '.join(counts)}")
        if request_id is not None:
            check_id("request_id", request_id)
        await self._make_room()
        request_id = request_id or self._answered or self.run_id
        await self._put([ev.RunUsage(self.run_id, request_id, input, output, cached, cache_write, reasoning)], self._answer)

    async def wait_for_cancel_request(self) -> str | None:
        """Returns when somebody, in whatever process, has asked this run to stop (`Ledger.cancel`), with who it was.

        It asks only: wait for it beside your work, and leave the block. Raises what `stream.follow` raises.
        """
        async for event in follow(self._outbox.store, self.conversation, after=self.begun_seq):
            if event.type == ev.RunCancelRequested.TYPE:
                with suppress(InvalidJson):
                    body = ev.read_body(event.type, event.data)
                    if isinstance(body, ev.RunCancelRequested) and body.run_id == self.run_id:
                        return body.by
        raise AssertionError("a stream has no end")

    async def flush(self) -> int:
        """Returns when everything so far is durable, with the seq of it."""
        self._require_open()
        await self._media.wait()
        with self._losing():
            return await self._outbox.flush()

    async def finish(self, outcome: Outcome | None = None, *, finish_reason: str | None = None, error: object = None) -> None:
        """Ends the run and commits it; without an outcome as its stream says, or `completed`. Safe to call again.

        A cancelled caller does not stop it. If it raises, the run is still open: call it again, or recover it; but `RunEnded`
        is for a run that has ended with another outcome, which stays. Raises `ValueError` for an outcome that is none, and
        `InvalidJson` for an error that JSON can't say.
        """
        self._outbox.home.check()
        if outcome is not None and outcome not in _OUTCOMES:
            raise ValueError(f"{shown(outcome)} is no outcome of a run: use {', '.join(_OUTCOMES)}")
        if finish_reason is not None:
            check_text("finish_reason", finish_reason)
        error_text = None if error is None else check_json("error", error)
        if self._finishing is None or (self._finishing.done() and self._failed(self._finishing)):
            end = self._how_it_ended(outcome, finish_reason, error_text)
            self._finishing = asyncio.create_task(self._finish(end), name=f"tailfold end of {self.run_id}")
            self._finishing.add_done_callback(self._failed)  # a caller who is gone need not hear of it
        with anyio.CancelScope(shield=True):
            await asyncio.shield(self._finishing)
        if self._outcome is not None and outcome not in (None, self._outcome):
            raise RunEnded(f"run {self.run_id!r} has ended as {self._outcome}, and stays so")

    async def close(self) -> None:
        """Leaves the run without ending it, after what it has said is durable or refused: it stays open."""
        self._outbox.home.check()
        self._is_closed = True
        await self._media.wait()
        try:
            await self._outbox.flush()
        except StreamError as why:
            _LOG.warning("run.tail_lost", conversation=self.conversation, run_id=self.run_id, error=type(why).__name__)
        await self._outbox.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.finish()
            return
        try:
            if self._outcome is not None:  # it had ended before
                await self.finish()
            elif isinstance(error, Exception):
                await self.finish(self._on_error, error={"type": type(error).__name__, "message": _message(error)})
            else:
                await self.finish("cancelled")
        except (StreamError, LedgerError) as why:  # the caller hears of its own error, the run stays open
            _LOG.warning("run.left_open", conversation=self.conversation, run_id=self.run_id, error=type(why).__name__)

    async def _finish(self, end: StreamEnd) -> None:
        try:
            await self._write_end(end)
        except RunLost:
            await self._outbox.close()
            await self._ended(self)
            raise
        await self._outbox.close()
        await self._ended(self)

    async def _write_end(self, end: StreamEnd) -> None:
        await self._media.wait()
        with self._losing():
            if not self._is_closed:
                outcome: Any = end.outcome
                bodies = answers.end(self._answer) if outcome == "completed" else []
                self._outbox.put([*bodies, ev.RunFinished(self.run_id, outcome, end.finish_reason, raw(end.error))])
                self._is_closed = True
                self._outcome = outcome
            await self._outbox.flush()

    def _how_it_ended(self, outcome: Outcome | None, finish_reason: str | None, error: JsonText | None) -> StreamEnd:
        said = self._format.end() if self._format is not None else StreamEnd("completed")
        if outcome is None:
            return said
        return StreamEnd(outcome, finish_reason or said.finish_reason, said.error if error is None else error)

    def _mint(self) -> str:
        return f"{self.run_id}.{next(self._numbers)}"

    async def _say(self, kind: Literal["text", "reasoning"], delta: str) -> None:
        check_text("delta", delta)
        self._require_open()
        if not self._is_ready():
            await self._make_room()
        answer = self._answer
        if answer is not None and answer.grows == kind and self._outbox.grow(answer.message_id, answer.block, delta):
            self._answered = answer.message_id
            return
        said = answers.say(self._answer, self.run_id, self._mint, kind, delta)
        self._outbox.put(said.bodies)
        self._answer, self._answered = said.answer, said.answer.message_id

    async def _put(self, bodies: Sequence[ev.Body], answer: Answer | None, media: Sequence[Attachment] = ()) -> None:
        """Takes events in, and what is being said from then on; refused events change nothing."""

        def take(taken: Sequence[ev.Body]) -> None:
            self._outbox.put(taken)
            self._calls.note(taken)
            self._answer = answer

        await self._media.put(bodies, media, take)

    async def _make_room(self) -> None:
        self._require_open()
        if self._is_ready():
            return
        await self._media.wait()
        with self._losing():
            await self._outbox.room()
        self._require_open()  # it may have ended meanwhile

    def _is_ready(self) -> bool:
        """Whether there is nothing to wait for, as a rule."""
        return self._media.is_idle and self._outbox.has_room()

    def _require_open(self) -> None:
        if self._is_closed or self._finishing is not None:
            raise RunEnded(f"run {self.run_id!r} has ended: begin a new run")

    def _losing(self) -> _Losing:
        return _Losing(self)

    @staticmethod
    def _failed(task: asyncio.Task[None]) -> bool:
        return task.cancelled() or task.exception() is not None


class _Losing:
    """Says in the ledger's words that this writer was fenced."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, ProducerFenced):
            raise RunLost(self._run.conversation, self._run.run_id) from error


def _message(error: Exception) -> str:
    """What an exception says; of one that can't say it, nothing, so that the run ends all the same."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - it is a caller's own class
        return ""
