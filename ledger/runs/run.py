"""A run: one producer's work on a conversation, from `run.started` to its end."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self, get_args

import anyio

from ledger.checks import check_json, check_parts
from ledger.errors import LedgerError, RunEnded, RunLost
from projector import events as ev
from projector.formats import STREAMS, FormatError, StreamEnd
from projector.formats.shared.media_refs import Detacher
from projector.json_text import InvalidJson, raw
from stream import InvalidEvent, ProducerFenced, StreamError, follow
from stream.checks import check_choice, check_text, shown
from stream.logger import Logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from types import TracebackType

    from ledger.runs.outbox import Outbox
    from projector.events import Outcome, Role, ToolStatus
    from projector.formats import StreamFormat
    from projector.formats.shared.media_refs import Attachment
    from projector.json_text import JsonText

ROLES: Final = get_args(ev.Role)
STATUSES: Final = get_args(ev.ToolStatus)
_OUTCOMES: Final = get_args(ev.Outcome)
_LOG: Final = Logger("tailfold.ledger")


class Run:
    """Takes in what an agent produces, and makes it durable in the background; made by `Ledger.begin_run`.

    As a context manager it ends the run: `completed` (or what its stream says) normally, `failed` by an exception,
    `cancelled` by a cancellation. If the end can't be written the run stays open, to be recovered. Every method
    raises what an append in the background has failed with, and `RunLost` when another writer has ended the run; a
    call that is cancelled has taken in all or nothing.
    """

    def __init__(
        self,
        conversation: str,
        run_id: str,
        outbox: Outbox,
        *,
        provider_format: str | None,
        ended: Callable[[Run], Awaitable[None]],
        keep: Callable[[Attachment], Awaitable[object]],
    ) -> None:
        self.conversation = conversation
        self.run_id = run_id
        self._outbox = outbox
        self.begun_seq = outbox.acknowledged_seq
        self._ended = ended
        self._keep = keep
        self._detacher = Detacher()
        self._keeping: asyncio.Task[None] | None = None
        self._numbers = itertools.count(1)
        self._format: StreamFormat | None = STREAMS[provider_format](run_id, self._mint) if provider_format else None
        self._steps = 0
        self._open_message: str | None = None
        self._finishing: asyncio.Task[None] | None = None
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
            await self._put(self._format.feed(chunk))
        except InvalidEvent as error:
            raise FormatError(f"the chunk does not fit: {error.why}") from error

    async def step(self) -> None:
        """Says that a prompt goes out to the model, by which results age; streams that are fed say it themselves."""
        await self._make_room()
        self._steps += 1
        self._outbox.put([*self._end_of_message(), ev.RunStep(self.run_id, self._steps, "started")])
        self._open_message = None

    async def message(self, role: Role, text: str) -> str:
        """A whole message; returns its id."""
        check_choice("role", role, ROLES)
        check_text("text", text)
        await self._make_room()
        message_id = self._mint()
        bodies = [
            *self._end_of_message(),
            ev.MessageStarted(self.run_id, message_id, role),
            ev.BlockStarted(message_id, 0, "text"),
            ev.BlockDelta(message_id, 0, text),
            ev.BlockSealed(message_id, 0),
            ev.MessageFinished(message_id, "complete"),
        ]
        self._outbox.put(bodies)
        self._open_message = None
        return message_id

    async def text(self, delta: str) -> None:
        """Text of an assistant's message that goes on until the next message, tool result or the end."""
        check_text("delta", delta)
        await self._make_room()
        bodies: list[ev.Body] = []
        if self._open_message is None:
            message_id = self._mint()
            bodies = [ev.MessageStarted(self.run_id, message_id, "assistant"), ev.BlockStarted(message_id, 0, "text")]
        else:
            message_id = self._open_message
        self._outbox.put([*bodies, ev.BlockDelta(message_id, 0, delta)])
        self._open_message = message_id

    async def tool_result(self, tool_call_id: str, parts: str | list[dict[str, Any]], *, status: ToolStatus = "ok") -> str:
        """The result of a tool call, as text or as parts; a message of its own, whose id is returned."""
        check_text("tool_call_id", tool_call_id)
        check_choice("status", status, STATUSES)
        part_text = raw(check_parts("parts", parts))
        await self._make_room()
        message_id = self._mint()
        result = ev.ToolResult(self.run_id, message_id, tool_call_id, status, part_text)
        ended, self._open_message = self._end_of_message(), None
        await self._put([*ended, result])
        return message_id

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
        await self._wait_for_media()
        with self._losing():
            return await self._outbox.flush()

    async def finish(self, outcome: Outcome | None = None, *, finish_reason: str | None = None, error: object = None) -> None:
        """Ends the run and commits it; without an outcome as its stream says, or `completed`. Safe to call again.

        Raises `ValueError` for an outcome that is none, and for an error that JSON can't say.

        A cancelled caller does not stop it. If it raises, the run is still open: call it again, or recover it.
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

    async def close(self) -> None:
        """Leaves the run without ending it, after what it has said is durable or refused: it stays open."""
        self._outbox.home.check()
        self._is_closed = True
        await self._wait_for_media()
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
            if isinstance(error, Exception):
                await self.finish("failed", error={"type": type(error).__name__, "message": str(error)})
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
        await self._wait_for_media()
        with self._losing():
            if not self._is_closed:
                outcome: Any = end.outcome
                bodies = self._end_of_message() if outcome == "completed" else []
                self._outbox.put([*bodies, ev.RunFinished(self.run_id, outcome, end.finish_reason, raw(end.error))])
                self._is_closed = True
            await self._outbox.flush()

    def _how_it_ended(self, outcome: Outcome | None, finish_reason: str | None, error: JsonText | None) -> StreamEnd:
        said = self._format.end() if self._format is not None else StreamEnd("completed")
        if outcome is None:
            return said
        return StreamEnd(outcome, finish_reason or said.finish_reason, said.error if error is None else error)

    def _mint(self) -> str:
        return f"{self.run_id}.{next(self._numbers)}"

    def _end_of_message(self) -> list[ev.Body]:
        message_id = self._open_message
        if message_id is None:
            return []
        return [ev.BlockSealed(message_id, 0), ev.MessageFinished(message_id, "complete")]

    async def _put(self, bodies: Sequence[ev.Body]) -> None:
        """Takes events in, their media into the media store ahead of them; a caller that is cancelled stops neither."""
        found: list[Attachment] = []
        lean: list[ev.Body] = []
        for body in bodies:
            rest, attachments = self._detacher.detach(body)
            lean += [ev.MediaAdded(media_id, media_type, len(data)) for media_id, media_type, data in attachments]
            lean.append(rest)
            found += attachments
        if not found:
            self._outbox.put(bodies)
            return
        self._keeping = asyncio.create_task(self._keep_and_put(found, lean, bodies), name=f"tailfold media of {self.run_id}")
        await asyncio.shield(self._keeping)

    async def _keep_and_put(self, found: Sequence[Attachment], lean: Sequence[ev.Body], whole: Sequence[ev.Body]) -> None:
        try:
            for attachment in found:
                await self._keep(attachment)
        except StreamError as why:  # nothing is lost for it: the log has the bytes
            _LOG.warning("run.media_inline", conversation=self.conversation, run_id=self.run_id, error=type(why).__name__)
            lean = whole
        self._outbox.put(lean)

    async def _wait_for_media(self) -> None:
        if self._keeping is not None:
            await asyncio.wait([self._keeping])

    async def _make_room(self) -> None:
        self._require_open()
        if self._keeping is None and self._outbox.has_room():  # as a rule
            return
        await self._wait_for_media()
        with self._losing():
            await self._outbox.room()
        self._require_open()  # it may have ended meanwhile

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
