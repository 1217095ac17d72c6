"""AG-UI 1.0 events: START, CONTENT and END or CHUNK, reasoning, tools, snapshots, interrupts, errors, and back.

A message of ours is one response of the model: its reasoning, what it says and its calls, up to the first result.
Steps of AG-UI are parts of a program, no prompts; they and state, activities, custom and raw events are kept as they
came, and so is what this version does not know. `rawEvent` and times are not kept. Memory holds what is open, and of
each message the ids and a digest, for a snapshot may say it again. Source: the documentation of AG-UI's events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast, get_args

from projector import events as ev
from projector.formats.agui.fields import Beginning, beginning_of, interrupt_of, maybe_ref, need_ref, notes_of
from projector.formats.agui.known import Known
from projector.formats.agui.open import Opened
from projector.formats.agui.parts import PROVIDER, SHELL, any_parts
from projector.formats.agui.reader import drafts_of, hint_of, without_hint
from projector.formats.agui.stream_writer import write_stream
from projector.formats.format import FormatError, StreamEnd
from projector.formats.shared.fields import Fields
from projector.formats.shared.stream import StreamReader, typed_fields
from projector.json_text import JsonText, dump, join_fields, raw

if TYPE_CHECKING:
    from collections.abc import Callable

    from projector.formats.agui.growing import Answer
    from projector.formats.agui.known import News
    from projector.formats.shared.history import HistoryMessage

    Handler = Callable[["AguiStream", Fields], list[ev.Body] | None]

__all__ = ["AguiStream", "write_stream"]
_FORMER: Final = {
    "THINKING_START": "REASONING_START",
    "THINKING_END": "REASONING_END",
    "THINKING_CONTENT": "REASONING_MESSAGE_CONTENT",
    "THINKING_TEXT_MESSAGE_START": "REASONING_MESSAGE_START",
    "THINKING_TEXT_MESSAGE_CONTENT": "REASONING_MESSAGE_CONTENT",
    "THINKING_TEXT_MESSAGE_END": "REASONING_MESSAGE_END",
}
"""Names of before 1.0, whose events have no ids."""
_KEPT: Final = {
    "STEP_STARTED", "STEP_FINISHED", "STATE_SNAPSHOT", "STATE_DELTA", "ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA", "RAW", "CUSTOM",
    "SUBAGENT_STARTED", "SUBAGENT_FINISHED", "SUBAGENT_ERROR",
}  # fmt: skip
"""They say nothing of a message, and end none."""
_CHUNKS: Final = {"TEXT_MESSAGE_CHUNK": "text", "TOOL_CALL_CHUNK": "call", "REASONING_MESSAGE_CHUNK": "reasoning"}
_OF_RUNS: Final = {"type", "threadId", "thread_id", "runId", "run_id", "timestamp", "outcome", "usage"}
_OUTCOMES: Final = {"interrupt": ("completed", "interrupt"), "cancelled": ("cancelled", None)}
_USAGE: Final = {
    "input": "inputTokens", "output": "outputTokens", "cached": "cachedInputTokens", "cache_write": "cacheWriteInputTokens",
    "reasoning": "reasoningTokens",
}  # fmt: skip


class AguiStream(StreamReader[Fields]):
    """Turns the events of one or more AG-UI runs into events of the conversation.

    `mint()` gives the id of the next message. Of a MESSAGES_SNAPSHOT only what no event has said is taken: see
    `Known.compare`. What RUN_STARTED gives as its input is the conversation's past and is kept as it came.
    """

    PROVIDER = PROVIDER
    EXPECTED = 'a JSON object with a "type" was expected, as in {"type": "RUN_STARTED", …}'
    CALLED = "the {} event"

    def __init__(self, run_id: str, mint: Callable[[], str]) -> None:
        super().__init__(run_id, mint)
        self._begun = False
        self._known = Known()
        self._opened = Opened(run_id, mint)
        self._started: dict[str | None, Beginning] = {}
        """Messages of AG-UI between START and END."""
        self._chunk: tuple[str, str | None] | None = None
        self._phase: str | None = None
        self._owed: list[ev.Body] = []

    def _read(self, text: JsonText) -> tuple[str, Fields]:
        event, kind = typed_fields(text, "the event")
        if not self._begun and kind not in _KEPT and _FORMER.get(kind, kind) not in _HANDLERS:
            raise FormatError(f"an AG-UI stream begins with an event such as RUN_STARTED, not with {kind!r}")
        return kind, event

    def _take(self, kind: str, fields: Fields, text: JsonText) -> list[ev.Body] | None:
        handle = _HANDLERS.get(_FORMER.get(kind, kind))
        if handle is not None and kind != "REASONING_ENCRYPTED_VALUE":
            if self._chunk is not None and kind not in _CHUNKS:
                self._read_all(kind, handle, fields)
            self._owed += ([] if kind in _CHUNKS else self._end_chunk()) + self._opened.settle()
        bodies = None if handle is None else handle(self, fields)
        self._begun = True
        owed, self._owed = self._owed, []
        return owed + ([ev.RawEvent(PROVIDER, raw(text))] if bodies is None else bodies)

    def _close(self) -> list[ev.Body]:
        if not self._begun or self._end.outcome != "incomplete":
            return []
        self._end = StreamEnd("completed")
        owed, self._owed = self._owed, []
        return owed + self._end_chunk() + self._opened.finish_all()

    def start_run(self, event: Fields) -> list[ev.Body] | None:
        """RUN_STARTED: kept, for it names the run there and may give its input."""
        bodies = self._opened.leave()
        self._started, self._end = {}, StreamEnd("incomplete")
        return [*bodies, ev.RawEvent(PROVIDER, raw(event.source))]

    def finish_run(self, event: Fields) -> list[ev.Body] | None:
        """RUN_FINISHED: whatever was not closed is whole."""
        outcome = event.object("outcome")
        kind = "success" if outcome is None else outcome.text("type")
        said: list[ev.Body] = []
        if outcome is not None and "interrupts" in outcome:
            asked = [interrupt_of(fields) for fields in outcome.objects("interrupts")]
            said.append(ev.RunPaused(self._run_id, raw("[" + ",".join(asked) + "]")))
        for number, used in enumerate(event.objects("usage"), 1):
            counts = {ours: used.whole(theirs) for ours, theirs in _USAGE.items()}
            request_id = f"{maybe_ref(event, 'runId') or self._run_id}:{number}"
            said.append(ev.RunUsage(self._run_id, request_id, **counts, raw=raw(used.source)))
        if event.names() - _OF_RUNS:
            said.append(ev.RawEvent(PROVIDER, raw(event.source)))
        self._started = {}
        if self._end.outcome != "failed":  # an error is not undone by what follows
            ended, reason = _OUTCOMES.get(kind, ("completed", None))
            self._end = StreamEnd(ended, finish_reason=reason)
        return self._opened.finish_all() + said

    def fail(self, event: Fields) -> list[ev.Body] | None:
        """RUN_ERROR: what is whole is kept, what is open stays partial."""
        self._started = {}
        self._end = StreamEnd("failed", error=join_fields(event.rest("type", "timestamp", "threadId", "runId")))
        return self._opened.leave()

    def start_text(self, event: Fields) -> list[ev.Body] | None:
        """TEXT_MESSAGE_START."""
        ref, begin = need_ref(event, "messageId"), beginning_of(event)
        bodies, answer = self._begin(ref, begin)
        self._known.say(begin.role, ref, "")
        self._started[ref] = begin
        answer.open_refs.add(ref)
        answer.only_reasoning = False
        named = {"name": dump(begin.name)} if begin.name is not None and not bodies else {}
        answer.learn(ref, notes_of(event) | named)  # its name comes too late for a message that began with reasoning
        return bodies

    def grow_text(self, event: Fields) -> list[ev.Body] | None:
        """TEXT_MESSAGE_CONTENT, also of a message that nobody has begun, and of one that goes on behind a result."""
        ref = need_ref(event, "messageId")
        return self._say("text", ref, event.text("delta"), self._started.get(ref, beginning_of(event)), notes_of(event))

    def end_text(self, event: Fields) -> list[ev.Body] | None:
        """TEXT_MESSAGE_END."""
        ref = need_ref(event, "messageId")
        self._started.pop(ref, None)
        answer = self._opened.at(ref)
        if answer is None:
            return []
        answer.learn(ref, notes_of(event))
        answer.open_refs.discard(ref)
        return answer.close_text(ref) + self._opened.settle()

    def start_phase(self, event: Fields) -> list[ev.Body] | None:
        """REASONING_START: a phase, whose id may be that of its message or another one."""
        self._phase = maybe_ref(event, "messageId")
        return []

    def start_thought(self, event: Fields) -> list[ev.Body] | None:
        """REASONING_MESSAGE_START."""
        ref = maybe_ref(event, "messageId")
        bodies, answer = self._begin(ref, beginning_of(event))
        self._known.say("reasoning", ref, "")
        answer.open_refs.add(ref)
        answer.learn(ref, notes_of(event))
        return bodies

    def grow_thought(self, event: Fields) -> list[ev.Body] | None:
        """REASONING_MESSAGE_CONTENT."""
        return self._say("reasoning", maybe_ref(event, "messageId"), event.text("delta"), beginning_of(event), notes_of(event))

    def end_thought(self, event: Fields) -> list[ev.Body] | None:
        """REASONING_MESSAGE_END: an encrypted value may follow, so the block ends with what comes next."""
        ref = maybe_ref(event, "messageId")
        answer = self._opened.at(ref) or self._opened.current
        if answer is not None:
            answer.open_refs.discard(ref)
            answer.learn(ref, notes_of(event))
        return []

    def end_phase(self, event: Fields) -> list[ev.Body] | None:  # noqa: ARG002 - one shape
        """REASONING_END."""
        self._phase, answer = None, self._opened.current
        return answer.hush() if answer is not None and answer.thinking_about is not None else []

    def encrypt(self, event: Fields) -> list[ev.Body] | None:
        """REASONING_ENCRYPTED_VALUE: of a call, of a message, or of reasoning that has no text at all."""
        ref, value = need_ref(event, "entityId"), need_ref(event, "encryptedValue")
        signer = str(hint_of(event).get("signer") or PROVIDER)
        if event.maybe_text("subtype") == "tool-call":
            owner = self._opened.calling(ref)
            if owner is None or ref not in owner.calls:
                return None
            owner.calls[ref].value, owner.calls[ref].signer = value, signer
            return []
        answer = self._opened.current
        if answer is not None and answer.thinking_about is not None and ref in (answer.thinking_about, self._phase):
            answer.sign_thought(value, signer)
            return []
        holder = self._opened.at(ref)
        if holder is not None and (holder.holds(ref) or ref in holder.open_refs):
            holder.learn(ref, {"encryptedValue": dump(value)})
            return []
        if ref != self._phase:
            return None
        bodies, thinking = self._begin(ref, beginning_of(event))
        bodies += thinking.speak("reasoning", ref, "")
        thinking.sign_thought(value, signer)
        return bodies

    def start_call(self, event: Fields) -> list[ev.Body] | None:
        """TOOL_CALL_START. The same call once more is a replay."""
        return self._begin_call(event, need_ref(event, "toolCallId"))

    def grow_call(self, event: Fields) -> list[ev.Body] | None:
        """TOOL_CALL_ARGS."""
        tool_call_id, delta = need_ref(event, "toolCallId"), event.text("delta")
        answer = self._opened.calling(tool_call_id)
        if answer is None or tool_call_id not in answer.calls or answer.calls[tool_call_id].has_ended:
            return None
        answer.calls[tool_call_id].learn(notes_of(event))
        return answer.grow_call(tool_call_id, delta)

    def end_call(self, event: Fields) -> list[ev.Body] | None:
        """TOOL_CALL_END: an encrypted value may follow, so the call is sealed when something else comes."""
        tool_call_id = need_ref(event, "toolCallId")
        answer = self._opened.calling(tool_call_id)
        if answer is not None and tool_call_id in answer.calls:
            answer.calls[tool_call_id].learn(notes_of(event))
            answer.calls[tool_call_id].has_ended = True
        return []

    def take_result(self, event: Fields) -> list[ev.Body] | None:
        """TOOL_CALL_RESULT: what the model says after it is another message."""
        tool_call_id, ref = need_ref(event, "toolCallId"), maybe_ref(event, "messageId")
        parts = any_parts(event.raw("content") or event.raw("result") or '""', event.place)
        given = hint_of(event).get("status")
        status = cast("ev.ToolStatus", given if given in get_args(ev.ToolStatus) else "ok")
        bodies = self._opened.answered(tool_call_id)
        self._known.answer(tool_call_id)
        message_id = self._opened.mint()
        shell = join_fields(({} if ref is None else {"id": dump(ref)}) | without_hint(notes_of(event)))
        return [
            *bodies,
            ev.ToolResult(self._run_id, message_id, tool_call_id, status, raw(parts)),
            ev.MessageAnnotated(message_id, raw(f'{{"{SHELL}":[{shell}]}}')),
        ]

    def take_chunk(self, event: Fields) -> list[ev.Body] | None:
        """The short forms: another id ends what went on before, and so does any other event."""
        sort = _CHUNKS[event.text("type")]
        ref = maybe_ref(event, "toolCallId" if sort == "call" else "messageId")
        if ref is None and self._chunk is not None and self._chunk[0] == sort:
            ref = self._chunk[1]
        begin, notes, delta = beginning_of(event), notes_of(event), event.maybe_text("delta") or ""
        if sort != "call":
            is_same, holder = self._chunk == (sort, ref), self._opened.at(ref)
            was_started = not is_same and holder is not None and ref in holder.open_refs
            bodies = [] if is_same else self._end_chunk()
            bodies += self._say(sort, ref, delta, self._started.get(ref, begin), notes)
            if not was_started:
                self._chunk = (sort, ref)
                self._begin(ref, begin, joins=True)[1].open_refs.add(ref)
            return bodies
        answer = self._opened.calling(ref)
        if ref is not None and answer is not None and ref in answer.calls and not answer.calls[ref].has_ended:
            return answer.grow_call(ref, delta)
        tool_call_id = need_ref(event, "toolCallId")
        need_ref(event, "toolCallName"), maybe_ref(event, "parentMessageId")  # before anything ends
        bodies = self._end_chunk() + self._opened.settle()
        begun = self._begin_call(event, tool_call_id)
        if begun is None:
            return [*bodies, ev.RawEvent(PROVIDER, raw(event.source))]
        self._chunk = (sort, tool_call_id)
        caller = self._opened.calling(tool_call_id)
        return bodies + begun + (caller.grow_call(tool_call_id, delta) if caller is not None else [])

    def take_snapshot(self, event: Fields) -> list[ev.Body] | None:
        """MESSAGES_SNAPSHOT: what no event has said. It is kept where it says something else than they did."""
        news, drafts = self._news(event)
        self._known.become(news.others)
        bodies: list[ev.Body] = [ev.BlockSealed(*place, text=text) for place, text in news.texts.items()]
        for tool_call_id, arguments in news.arguments.items():
            answer = self._opened.calling(tool_call_id)
            if answer is not None:
                bodies += answer.grow_call(tool_call_id, arguments) + answer.seal_call(tool_call_id)
        for message in news.messages:
            self._known.learn(message)
        for draft in drafts:
            bodies += self._opened.take_in(draft)
        bodies += self._opened.settle()
        return [*bodies, ev.RawEvent(PROVIDER, raw(event.source))] if news.differs else bodies

    def _read_all(self, kind: str, handle: Handler, event: Fields) -> None:
        """Raises `FormatError` where an event lacks what it needs, before anything ends: what is refused ends nothing."""
        if kind == "MESSAGES_SNAPSHOT":
            self._news(event)
        else:
            handle(AguiStream(self._run_id, str), event)

    def _news(self, event: Fields) -> tuple[News, list[HistoryMessage]]:
        """What a snapshot says that is new, and the messages that it becomes. Raises `FormatError`."""
        news = self._known.compare(event.objects("messages"), self._opened.waiting, self._opened.growing)
        return news, drafts_of(news.messages)

    def _begin(self, ref: str | None, begin: Beginning, *, joins: bool = False) -> tuple[list[ev.Body], Answer]:
        return self._opened.place(ref, begin.group, role=begin.role, name=begin.name, joins=joins)

    def _say(self, kind: str, ref: str | None, delta: str, begin: Beginning, notes: dict[str, JsonText]) -> list[ev.Body]:
        self._known.say("reasoning" if kind == "reasoning" else begin.role, ref, delta)
        bodies, answer = self._begin(ref, begin, joins=ref is None and kind == "text")
        if ref in self._started:  # it went on behind a result
            answer.open_refs.add(ref)
        answer.learn(ref, notes)
        bodies += answer.speak(kind, ref, delta)
        if kind == "text" and ref is not None and answer.growing is not None:
            self._known.stands(ref, answer.message_id, answer.growing.number)
        return bodies

    def _begin_call(self, event: Fields, tool_call_id: str) -> list[ev.Body] | None:
        name, parent = need_ref(event, "toolCallName"), maybe_ref(event, "parentMessageId")
        if not self._known.call(tool_call_id):
            return None
        bodies, answer = self._begin(parent, Beginning(group=beginning_of(event).group), joins=parent is None)
        self._opened.call(tool_call_id, answer)
        bodies += answer.start_call(tool_call_id, name, tool_call_id if parent is None else parent)
        answer.calls[tool_call_id].learn(notes_of(event))
        return bodies

    def _end_chunk(self) -> list[ev.Body]:
        if self._chunk is None:
            return []
        (sort, ref), self._chunk = self._chunk, None
        answer = self._opened.calling(ref) if sort == "call" else self._opened.at(ref) or self._opened.current
        if answer is None:
            return []
        if sort == "call":
            if ref in answer.calls:
                answer.calls[ref].has_ended = True
            return []
        answer.open_refs.discard(ref)
        return answer.close_text(ref)


_HANDLERS: Final[dict[str, Handler]] = {
    "RUN_STARTED": AguiStream.start_run,
    "RUN_FINISHED": AguiStream.finish_run,
    "RUN_ERROR": AguiStream.fail,
    "TEXT_MESSAGE_START": AguiStream.start_text,
    "TEXT_MESSAGE_CONTENT": AguiStream.grow_text,
    "TEXT_MESSAGE_END": AguiStream.end_text,
    "REASONING_START": AguiStream.start_phase,
    "REASONING_MESSAGE_START": AguiStream.start_thought,
    "REASONING_MESSAGE_CONTENT": AguiStream.grow_thought,
    "REASONING_MESSAGE_END": AguiStream.end_thought,
    "REASONING_END": AguiStream.end_phase,
    "REASONING_ENCRYPTED_VALUE": AguiStream.encrypt,
    "TOOL_CALL_START": AguiStream.start_call,
    "TOOL_CALL_ARGS": AguiStream.grow_call,
    "TOOL_CALL_END": AguiStream.end_call,
    "TOOL_CALL_RESULT": AguiStream.take_result,
    "MESSAGES_SNAPSHOT": AguiStream.take_snapshot,
    **dict.fromkeys(_CHUNKS, AguiStream.take_chunk),
}
