"""The events of AG-UI for what happens in a conversation, one by one as it comes, in an order that its client accepts.

Each run begins and ends, and all is closed in between. Messages that are known whole are written as if they had come
event by event; what events can't carry (media of a user, errors of tools, activities, what AG-UI itself added to a
message) stands in a MESSAGES_SNAPSHOT at the end. The client asks: RUN_STARTED first, RUN_FINISHED or RUN_ERROR last,
no START of an id that is open, CONTENT, ARGS and END only between, and nothing open when a run has finished.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from projector import events as ev
from projector.formats.agui.client_view import ClientView
from projector.formats.agui.outgoing_message import OutgoingMessage, Wire
from projector.formats.agui.parts import PROVIDER
from projector.formats.agui.stream_events import interrupt, is_more_than_events, message_bodies, usage_of, whole, withdrawn
from projector.formats.agui.writer import Writer, write, write_runs
from projector.formats.shared.call_refs import CallRefs
from projector.formats.shared.live import Custom, bodies_so_far, body_of, drafts_in_order, end_of, one_result
from projector.json_text import plain, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from projector.formats.format import StreamEnd
    from projector.message import Message
    from projector.run_draft import RunDraft
    from stream import Event, NewEvent

_AS_THEY_CAME: Final = ("STATE_SNAPSHOT", "STATE_DELTA", "ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA", "RAW", "CUSTOM")
"""What AG-UI said beside messages and may be said again at any place of a run."""


def write_stream(messages: Sequence[Message], *, thread_id: str | None = None) -> Wire:
    """The events that give a client these messages, run by run; the last run may have calls that wait.

    Ids are derived as `agui.write` does it, the thread's is that of the first run unless it is given.
    """
    written = write_runs(messages).payload
    writer = AguiStreamWriter(thread_id=thread_id or (written[0][0] if written else "empty"))
    events: Wire = []
    for run_id, pieces in groupby(written, key=lambda item: item[0]):
        events += writer.feed(ev.RunStarted(run_id, None, "submit", run_id))
        for _, piece in pieces:
            writer.expect(piece["id"], [piece])
            events += [event for body in message_bodies(run_id, piece) for event in writer.feed(body)]
        events += writer.feed(ev.RunFinished(run_id, "completed"))
    if any(is_more_than_events(piece) for _, piece in written):
        events.insert(-1, {"type": "MESSAGES_SNAPSHOT", "messages": [piece for _, piece in written]})
    return events


class AguiStreamWriter:
    """Turns events of a conversation into AG-UI events, each as soon as it comes; no input or output, no clock.

    Runs that are open at once are one run of AG-UI, which has no place for two: it bears the name of the first and
    ends with the last. With `run_id` only that run goes out. Ids are those that `agui.write` derives; every message
    of the assistant names ours in its metadata, so that its parts are read as one. A step is a STEP, a pause ends the
    run with its interrupts, usage stands with the end. Approvals, citations, media and later annotations have no event.
    What a reset or a redaction takes back has gone out: CUSTOM `tailfold.withdrawn` names the messages, and a client
    gets them anew. What can't be applied (an event of a message that nobody began) is left out; `feed` never raises.
    Memory holds what is open, and the ids of calls.
    """

    def __init__(self, *, thread_id: str | None = None, run_id: str | None = None) -> None:
        self._thread, self._only = thread_id, run_id
        self._runs: dict[str, dict[str, Any]] = {}
        """Open runs, the usage of each by request; the first one's name is that of the run of AG-UI."""
        self._name: str | None = None
        self._error: StreamEnd | None = None
        self._steps: dict[tuple[str, int], tuple[str, list[str]]] = {}
        """Open steps: the name of each, and the messages that began in it."""
        self._over: dict[str, tuple[int, list[str]]] = {}
        """Of each open run its newest step, where that is over: it may still be taken back."""
        self._calls: set[str] = set()
        """The ids of calls that have gone out."""
        self._shown: frozenset[str] = frozenset()
        """The ids of calls that a client shows: it takes another call under the same id for more of that one."""
        self._refs = CallRefs()
        self._messages: dict[str, OutgoingMessage] = {}
        self._expected: dict[str, list[dict[str, Any]]] = {}

    def feed(self, event: ev.Body | Event | NewEvent) -> Wire:
        """The AG-UI events that one event of the log becomes, maybe none. A type that nobody knows is none."""
        body = body_of(event)
        handle = _HANDLERS.get(type(body))
        return [] if handle is None else handle(self, body)

    def expect(self, message_id: str, pieces: Sequence[dict[str, Any]]) -> None:
        """What `agui.write` gives for a message whose events are still to come, as whoever plays it again knows it.

        Then ids, metadata and encrypted values that only its end would say go out with its beginning.
        """
        self._expected[message_id] = list(pieces)

    def resume(self, runs: Iterable[RunDraft], shown: Sequence[Message] = ()) -> Wire:
        """The events that bring a client to where these open runs stand, for following from there.

        RUN_STARTED, then a MESSAGES_SNAPSHOT of `shown` (the committed messages that they stand behind, and their own, which
        may say more than events) and of what they have said so far, and what is open is opened again under its ids: text and
        reasoning go on behind what the snapshot says of them, a call is left out of it and comes once more with its
        arguments so far. A run that waits for a person ends.
        """
        runs, view = tuple(runs), ClientView()
        ids = {run.run_id for run in runs}
        own = {message.id: message for message in shown if message.run_id in ids}
        pieces = write([message for message in shown if message.run_id not in ids]).payload
        self._shown = frozenset(call["id"] for piece in pieces for call in piece.get("toolCalls", ()))
        events = [event for run in runs for body in bodies_so_far(run) for event in self.feed(body)]
        view.take(events)
        for draft in (draft for run in runs for draft in drafts_in_order(run)):
            is_more = draft.id in own and draft.role not in ("assistant", "tool") and draft.status is not None
            pieces += write([own[draft.id]]).payload if is_more else view.pieces_of(draft.id)
        begun = [event for event in events if event["type"] == "RUN_STARTED"]
        ended = [event for event in events if event["type"] == "RUN_FINISHED"]
        steps = [{"type": "STEP_STARTED", "stepName": name} for name, _ in self._steps.values()]
        opened = [event for message in self._messages.values() for event in message.reopen(view)]
        return [*begun, {"type": "MESSAGES_SNAPSHOT", "messages": pieces}, *steps, *opened, *ended] if begun else []

    def close(self) -> Wire:
        """The events that end whatever is open, for one who is told anew by `resume` of another writer where all stands."""
        return self._close({message.run_id for message in self._messages.values()} | {run_id for run_id, _ in self._steps})

    def start_run(self, body: ev.RunStarted) -> Wire:
        """A run begins, unless one is open already."""
        return self._ensure(body.run_id)

    def _ensure(self, run_id: str) -> Wire:
        """The run is on the wire; one whose beginning was not seen begins with what is seen of it."""
        if run_id in self._runs or (self._only is not None and run_id != self._only):
            return []
        self._runs[run_id] = {}
        if self._name is not None:
            return []
        self._name, self._thread = run_id, self._thread or run_id
        return [{"type": "RUN_STARTED", "threadId": self._thread, "runId": run_id}]

    def start_message(self, body: ev.MessageStarted) -> Wire:
        """A message begins; its events begin with its first block."""
        events = self._ensure(body.run_id)
        if body.run_id in self._runs and body.message_id not in self._messages:
            self._messages[body.message_id] = OutgoingMessage(
                body, self._expected.pop(body.message_id, None), self._calls, self._shown
            )
            for (run_id, _), (_, began) in self._steps.items():
                if run_id == body.run_id:
                    began.append(body.message_id)
            if body.run_id in self._over:
                self._over[body.run_id][1].append(body.message_id)
        return events

    def start_block(self, body: ev.BlockStarted) -> Wire:
        """A block begins."""
        message = self._messages.get(body.message_id)
        events = [] if message is None else message.start(body)
        ref = None if message is None else message.ref_of(body.block)
        if ref and body.tool_call_id is not None:
            self._refs.begin(body.tool_call_id, body.message_id, ref)
        return events

    def grow_block(self, body: ev.BlockDelta) -> Wire:
        """A delta goes out as a delta."""
        message = self._messages.get(body.message_id)
        return [] if message is None else message.grow(body)

    def seal_block(self, body: ev.BlockSealed) -> Wire:
        """A block is whole."""
        message = self._messages.get(body.message_id)
        ref = None if message is None else message.ref_of(body.block)
        if ref and body.tool_call_id is not None:
            self._refs.begin(body.tool_call_id, body.message_id, ref)
        return [] if message is None else message.seal(body)

    def finish_message(self, body: ev.MessageFinished) -> Wire:
        """A message is whole, or as whole as it gets."""
        message = self._messages.pop(body.message_id, None)
        return [] if message is None else message.finish()

    def answer(self, body: ev.ToolResult) -> Wire:
        """A tool's result; its call is over."""
        events = self._ensure(body.run_id)
        if body.run_id not in self._runs:
            return events
        ref = self._refs.answer(body.tool_call_id)
        events += [event for message in self._messages.values() for event in message.end_call(ref)]
        body = replace(body, tool_call_id=ref)
        expected = self._expected.pop(body.message_id, None)
        written = Writer().pieces(one_result(body)) if expected is None else []
        return events + [event for piece in expected or written for event in whole(piece)]

    def take_step(self, body: ev.RunStep) -> Wire:
        """A step begins, ends or is taken back."""
        events, at = self._ensure(body.run_id), (body.run_id, body.n)
        name = f"step {body.n}" if body.run_id == self._name else f"step {body.n} of {body.run_id}"
        over_n, over = self._over.get(body.run_id, (None, []))
        is_over = body.phase == "reset" and over_n == body.n
        if body.run_id not in self._runs or ((body.phase == "started") == (at in self._steps) and not is_over):
            return events
        if body.phase == "started":
            self._steps[at] = (name, [])
            self._over.pop(body.run_id, None)
            return [*events, {"type": "STEP_STARTED", "stepName": name}]
        name, began = (name, over) if is_over else self._steps[at]
        if body.phase == "finished":
            del self._steps[at]
            self._over[body.run_id] = (body.n, began)
            return [*events, {"type": "STEP_FINISHED", "stepName": name}]
        open_ones = [message for message in self._messages.values() if message.run_id == body.run_id]
        events += [event for message in open_ones for event in message.take_back()]
        left = [message.id for message in open_ones]
        if is_over:
            self._over[body.run_id] = (body.n, left)
        else:
            self._steps[at] = (name, left)
        taken_back = list(dict.fromkeys([*began, *(message.id for message in open_ones)]))
        for message_id in taken_back:
            self._refs.forget(message_id)
        return events + withdrawn(taken_back)

    def use(self, body: ev.RunUsage) -> Wire:
        """Usage is told when the run ends."""
        if body.run_id in self._runs:
            self._runs[body.run_id][body.request_id] = usage_of(body)
        return []

    def redact(self, body: ev.MessageRedacted) -> Wire:
        """What has gone out of the message counts no longer."""
        if self._name is None:
            return []
        message = self._messages.get(body.message_id)
        return [*([] if message is None else message.take_back()), *withdrawn([body.message_id])]

    def pause(self, body: ev.RunPaused) -> Wire:
        """The run of AG-UI is over, and another one begins with whatever comes next."""
        if body.run_id not in self._runs or len(self._runs) > 1:
            return []
        asked = plain(text_of(body.interrupts) or "[]")
        asked = [interrupt(one) for one in asked if isinstance(one, dict)] if isinstance(asked, list) else []
        outcome = {"type": "interrupt", "interrupts": asked}
        self._over.pop(body.run_id, None)
        return self._leave(self._runs.pop(body.run_id), outcome)

    def finish_run(self, body: ev.RunFinished | ev.RunRecovered) -> Wire:
        """A run has ended; the run of AG-UI ends with the last one."""
        used, end = self._runs.pop(body.run_id, None), end_of(body)
        self._over.pop(body.run_id, None)
        if used is None:
            return []
        self._error = end if end.outcome == "failed" else self._error
        if self._runs:
            next(iter(self._runs.values())).update({f"{body.run_id} {name}": told for name, told in used.items()})
            return self._close({body.run_id})
        return self._leave(used, {"type": "cancelled"} if end.outcome == "cancelled" else None)

    def _leave(self, used: dict[str, Any], outcome: dict[str, Any] | None) -> Wire:
        """The run of AG-UI ends: all is closed; after an error what is open was never whole."""
        usage = {"usage": list(used.values())} if used else {}
        named: dict[str, Any] = {"threadId": self._thread, "runId": self._name}
        error, self._error, self._name = self._error, None, None
        if error is not None:
            self._messages, self._steps = {}, {}
            self._calls.clear()
            return [{"type": "RUN_ERROR", "message": error.error or "the run has failed"} | usage]
        return [*self.close(), {"type": "RUN_FINISHED"} | named | ({"outcome": outcome} if outcome else {}) | usage]

    def _close(self, run_ids: set[str]) -> Wire:
        """Whatever is open of these runs ends."""
        of_runs = [message.id for message in self._messages.values() if message.run_id in run_ids]
        events = [event for message_id in of_runs for event in self._messages.pop(message_id).finish()]
        ended = [at for at in self._steps if at[0] in run_ids]
        return events + [{"type": "STEP_FINISHED", "stepName": self._steps.pop(at)[0]} for at in ended]

    def tell(self, body: Custom) -> Wire:
        """What a program tells those who follow."""
        return [] if self._name is None else [{"type": "CUSTOM", "name": body.name, "value": body.value}]

    def repeat(self, body: ev.RawEvent) -> Wire:
        """What nobody understood goes out as RAW, what AG-UI had said itself as it came; only within a run."""
        if self._name is None:
            return []
        event = plain(text_of(body.event) or "null")
        if body.provider == PROVIDER and isinstance(event, dict) and event.get("type") in _AS_THEY_CAME:
            return [event]
        return [{"type": "RAW", "event": event, "source": body.provider}]


_HANDLERS: Final[dict[type, Callable[[AguiStreamWriter, Any], Wire]]] = {
    ev.RunStarted: AguiStreamWriter.start_run,
    ev.RunStep: AguiStreamWriter.take_step,
    ev.RunPaused: AguiStreamWriter.pause,
    ev.RunUsage: AguiStreamWriter.use,
    ev.RunFinished: AguiStreamWriter.finish_run,
    ev.RunRecovered: AguiStreamWriter.finish_run,
    ev.MessageStarted: AguiStreamWriter.start_message,
    ev.MessageFinished: AguiStreamWriter.finish_message,
    ev.MessageRedacted: AguiStreamWriter.redact,
    ev.BlockStarted: AguiStreamWriter.start_block,
    ev.BlockDelta: AguiStreamWriter.grow_block,
    ev.BlockSealed: AguiStreamWriter.seal_block,
    ev.ToolResult: AguiStreamWriter.answer,
    ev.RawEvent: AguiStreamWriter.repeat,
    Custom: AguiStreamWriter.tell,
}
