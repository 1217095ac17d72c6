"""The chunks of the AI SDK's UI message stream for what happens in a conversation, one by one as it comes.

There is one `start` to `finish` for each answer of the assistant. A stream has no other messages: what a user says
stands in the client's own list. What chunks can't carry (the name of a file, parts that are no chunks) is in the
UIMessage only. Messages that are known whole are written as if they had come event by event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from projector import events as ev
from projector.formats.ai_sdk.outgoing_message import OutgoingMessage
from projector.formats.ai_sdk.parts import DATA, PROVIDER
from projector.formats.ai_sdk.stream_chunks import Chunks, finish_chunk, message_bodies
from projector.formats.ai_sdk.writer import write
from projector.formats.outgoing.display import HINT
from projector.formats.shared.live import Custom, bodies_so_far, body_of, end_of
from projector.json_text import plain, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from projector.message import Message
    from projector.run_draft import RunDraft
    from stream import Event, NewEvent

WITHDRAWN: Final = f"{HINT}-withdrawn"
"""Of data: what was taken back that no chunk takes back."""
_BEGINNINGS: Final = (ev.RunStarted, ev.RunStep, ev.MessageStarted)


def write_stream(messages: Sequence[Message]) -> Chunks:
    """The chunks that give a client what the assistant says in these messages. Ids are derived as `write` does it."""
    writer = AiSdkStreamWriter()
    chunks: Chunks = []
    for message in write(messages).payload:
        if message["role"] == "assistant":
            ref = message["id"]
            writer.expect(ref, [message])
            for body in (ev.RunStarted(ref, None, "submit", ref), *message_bodies(message), ev.RunFinished(ref, "completed")):
                chunks += writer.feed(body)
    return chunks


class AiSdkStreamWriter:
    """Turns events of a conversation into chunks, each as soon as it comes; no input or output, no clock.

    A run is one UIMessage under the run's id, each message of the assistant a step of it. A client can't tell two
    answers apart that stream at once, so a run that begins while another one is open waits until that has ended, and
    what has come of it goes out then. A run that nobody ends lets others wait for ever: with `run_id` only that run
    goes out. A call whose input is no JSON goes out with its result. A reset takes back the newest step. Usage stands
    with `finish`, what a program tells (`custom`) is data that no message keeps, and so is `data-tailfold-withdrawn`,
    which names the messages of which a redaction took back what had gone out, or a step of which a client can't take back
    all (it takes back one message). What can't be applied is left out;
    `feed` never raises. Memory holds what is open, and of runs that wait what has come.
    """

    def __init__(self, *, run_id: str | None = None) -> None:
        self._only = run_id
        self._run_id: str | None = None
        self._message: OutgoingMessage | None = None
        self._owners: dict[str, str] = {}
        """The runs of messages that are open."""
        self._step: int | None = None
        self._usage: dict[str, ev.RunUsage] = {}
        self._waiting: list[ev.Body] = []
        self._expected: dict[str, dict[str, Any]] = {}

    def feed(self, event: ev.Body | Event | NewEvent) -> Chunks:
        """The chunks that one event of the log becomes, maybe none. A type that nobody knows is none."""
        body = body_of(event)
        handle = _HANDLERS.get(type(body))
        if body is None or handle is None:
            return []
        run_id = self._run_of(body)
        self._learn(body)
        if run_id is None or run_id == self._run_id:
            return handle(self, body)
        if self._only is not None and run_id != self._only:
            return []
        if self._run_id is None:
            if not isinstance(body, _BEGINNINGS):
                return []
            self._run_id = run_id
            return handle(self, body)
        if isinstance(body, ev.Body):
            self._waiting.append(body)
        return []

    def expect(self, message_id: str, pieces: Sequence[dict[str, Any]]) -> None:
        """The UIMessage that `ai_sdk.write` gives for a message whose events are still to come, as a list of one.

        Then what only its end would say goes out with its beginning.
        """
        [self._expected[message_id]] = pieces

    def resume(self, runs: Iterable[RunDraft]) -> Chunks:
        """The chunks that bring a client to where these open runs stand, from their `start`, for following from there."""
        return [chunk for run in runs for body in bodies_so_far(run) for chunk in self.feed(body)]

    def begin(self, body: ev.RunStarted | ev.RunStep) -> Chunks:
        """A run begins; its UIMessage begins with what the assistant says. A step begins, or is taken back."""
        if not isinstance(body, ev.RunStep) or body.phase == "finished":
            return []
        if body.phase == "started":
            self._step = body.n
            if self._message is not None:
                self._message.begin_step_of_run()
            return []
        if self._message is None or body.n != self._step:
            return []
        chunks, is_told = self._message.reset()
        return chunks if is_told else chunks + self._tell(WITHDRAWN, {"step": body.n})

    def start_message(self, body: ev.MessageStarted) -> Chunks:
        """The UIMessage begins with the assistant's first message."""
        expected = self._expected.pop(body.message_id, None)
        if body.role != "assistant":
            return []
        begins = self._message is None
        self._message = self._message or OutgoingMessage()
        self._message.begin(body.message_id, body.run_id, expected)
        metadata = {"messageMetadata": expected["metadata"]} if expected and "metadata" in expected else {}
        return [{"type": "start", "messageId": expected["id"] if expected else body.run_id} | metadata] if begins else []

    def change(self, body: Any) -> Chunks:
        """Something happens in what the assistant says."""
        return [] if self._message is None else self._message.take(body)

    def use(self, body: ev.RunUsage) -> Chunks:
        """Usage is told when the run ends."""
        self._usage[body.request_id] = body
        return []

    def finish_run(self, body: ev.RunFinished | ev.RunRecovered) -> Chunks:
        """The run has ended, and with it its UIMessage; the next one that waits begins."""
        end, message, used = end_of(body), self._message, self._usage
        self._message, self._run_id, self._step, self._usage = None, None, None, {}
        chunks: Chunks = []
        if end.outcome == "failed":
            chunks.append({"type": "error", "errorText": end.error or "the run has failed"})
        elif message is not None and end.outcome == "cancelled":
            chunks.append({"type": "abort"} | ({"reason": end.finish_reason} if end.finish_reason else {}))
        elif message is not None:
            chunks += [*message.finish(), finish_chunk(end.outcome, end.finish_reason, used)]
        waiting, self._waiting = self._waiting, []
        return chunks + [chunk for waiter in waiting for chunk in self.feed(waiter)]

    def redact(self, body: ev.MessageRedacted) -> Chunks:
        """What has gone out of the message counts no longer."""
        return self._tell(WITHDRAWN, {"messageIds": [body.message_id]})

    def tell(self, body: Custom) -> Chunks:
        """What a program tells those who follow."""
        return self._tell(body.name, body.value)

    def repeat(self, body: ev.RawEvent) -> Chunks:
        """Data of an AI SDK that no message keeps goes out as it came; no client takes what it does not know."""
        chunk = plain(text_of(body.event) or "null") if body.provider == PROVIDER else None
        if self._message is None or not isinstance(chunk, dict):
            return []
        return [chunk] if str(chunk.get("type")).startswith(DATA) and chunk.get("transient") is True else []

    def _tell(self, name: str, value: Any) -> Chunks:
        return [] if self._message is None else [{"type": f"{DATA}{name}", "data": value, "transient": True}]

    def _learn(self, body: ev.Body | Custom) -> None:
        """Whose a message is, as long as it is open; one that waits is learnt again when its turn comes."""
        if isinstance(body, ev.MessageStarted):
            self._owners.setdefault(body.message_id, body.run_id)
        elif isinstance(body, ev.MessageFinished):
            self._owners.pop(body.message_id, None)
        elif isinstance(body, ev.RunFinished | ev.RunRecovered):
            self._owners = {message_id: run_id for message_id, run_id in self._owners.items() if run_id != body.run_id}

    def _run_of(self, body: ev.Body | Custom) -> str | None:
        """The run of an event; None for what belongs to whatever is on the wire."""
        run_id: str | None = getattr(body, "run_id", None)
        message_id = getattr(body, "message_id", None)
        return run_id if run_id is not None or message_id is None else self._owners.get(message_id)


_HANDLERS: Final[dict[type, Callable[[AiSdkStreamWriter, Any], Chunks]]] = {
    ev.RunStarted: AiSdkStreamWriter.begin,
    ev.RunStep: AiSdkStreamWriter.begin,
    ev.RunUsage: AiSdkStreamWriter.use,
    ev.RunFinished: AiSdkStreamWriter.finish_run,
    ev.RunRecovered: AiSdkStreamWriter.finish_run,
    ev.MessageStarted: AiSdkStreamWriter.start_message,
    ev.MessageRedacted: AiSdkStreamWriter.redact,
    **dict.fromkeys(
        (ev.BlockStarted, ev.BlockDelta, ev.BlockAnnotated, ev.BlockSealed, ev.MessageFinished, ev.ToolResult, ev.ToolApproval),
        AiSdkStreamWriter.change,
    ),
    ev.RawEvent: AiSdkStreamWriter.repeat,
    Custom: AiSdkStreamWriter.tell,
}
