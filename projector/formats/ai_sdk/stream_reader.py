"""The AI SDK's UI message stream: steps, text and reasoning, tools with approvals, files, sources, data, and back.

Each step is a message of ours; results of tools are messages behind it. A reset takes a step back. What is transient
or preliminary is kept as it came, for it is no part of the message, and so is what this version does not know.
Source: the published chunk schema of the AI SDK 7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from projector import events as ev
from projector.formats.ai_sdk.growing import Step, merge_metadata
from projector.formats.ai_sdk.parts import (
    DATA,
    PROVIDER,
    SHELL,
    WHOLE,
    ToolOutcome,
    denial_parts,
    other_block,
    output_parts,
    server_block,
)
from projector.formats.ai_sdk.stream_writer import write_stream
from projector.formats.format import FormatError, StreamEnd
from projector.formats.shared.fields import Fields
from projector.formats.shared.history import text_parts
from projector.formats.shared.stream import StreamReader, typed_fields
from projector.json_text import JsonText, decode, dump, join_fields, raw, split

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["AiSdkStream", "write_stream"]
_ENDS: Final = {"error": "failed", "interrupted": "incomplete"}
_OF_REQUESTS: Final = {"approvalId": "id", "reason": "requestReason", "approvalDescriptor": "descriptor"}


class AiSdkStream(StreamReader[Fields]):
    """Turns the chunks of one or more UI message streams into events of the conversation.

    `mint()` gives the id of the next message.
    """

    PROVIDER = PROVIDER
    EXPECTED = 'a JSON object with a "type" was expected, as in {"type": "start"}'
    CALLED = "the {} chunk"

    def __init__(self, run_id: str, mint: Callable[[], str]) -> None:
        super().__init__(run_id, mint)
        self._begun = False
        self._begins = False
        self._step: Step | None = None
        self._over: Step | None = None
        """The step before, as long as it can be reset."""
        self._first: Step | None = None
        self._ref: JsonText | None = None
        self._metadata: JsonText | None = None
        self._calls: dict[str, tuple[str, Step]] = {}
        """Of calls without a result: their kind and where they are."""
        self._approvals: dict[str, str] = {}

    def _read(self, text: JsonText) -> tuple[str, Fields]:
        fields, kind = typed_fields(text, "the chunk")
        if not self._begun and kind not in _HANDLERS and not kind.startswith(DATA):
            raise FormatError(f"a UI message stream begins with a chunk such as start, not with {kind!r}")
        return kind, fields

    def _take(self, kind: str, fields: Fields, text: JsonText) -> list[ev.Body] | None:  # noqa: ARG002 - one shape
        handle = _HANDLERS.get(kind) or (AiSdkStream.take_data if kind.startswith(DATA) else None)
        bodies = None if handle is None else handle(self, fields)
        self._begun = True
        return bodies

    def _close(self) -> list[ev.Body]:
        return [] if self._step is None else self._finish(None)

    def start(self, chunk: Fields) -> list[ev.Body] | None:
        """A UIMessage begins; a second one only while the first is not finished changes nothing but what it says."""
        ref, bodies = chunk.maybe_text("messageId"), []
        if self._end.outcome != "incomplete":
            bodies = self._end_step()
            self._first, self._metadata, self._ref, self._over = None, None, None, None
            self._end = StreamEnd("incomplete")
        self._ref = dump(ref) if ref is not None else self._ref
        return bodies + self._learn(chunk.raw("messageMetadata"))

    def start_step(self, chunk: Fields) -> list[ev.Body] | None:  # noqa: ARG002 - one shape
        """`start-step`: its message begins with its first part."""
        bodies = self._end_step()
        self._begins, self._over = True, None
        return bodies

    def finish_step(self, chunk: Fields) -> list[ev.Body] | None:  # noqa: ARG002 - one shape
        """`finish-step`. A part of a merged stream may still be open."""
        step = self._step
        return self._end_step() if step is not None and not step.texts and not step.calls else []

    def reset_step(self, chunk: Fields) -> list[ev.Body] | None:  # noqa: ARG002 - one shape
        """`reset-step`: what the step has said is taken back."""
        step = self._step or self._over
        self._step = self._over = None
        if step is None:
            return []
        self._calls = {name: found for name, found in self._calls.items() if found[1] is not step}
        self._first = None if self._first is step else self._first
        self._begins = step.shell["step"] == "true"
        return step.reset()

    def start_text(self, chunk: Fields) -> list[ev.Body] | None:
        """`text-start`, `reasoning-start`."""
        kind, ref = _kind(chunk), chunk.text("id")
        bodies, step = self._open()
        step.start_text(kind, ref, chunk.raw("providerMetadata"))
        return bodies

    def grow_text(self, chunk: Fields) -> list[ev.Body] | None:
        """`text-delta`, `reasoning-delta`."""
        delta, key = chunk.text("delta"), f"{_kind(chunk)} {chunk.text('id')}"
        bodies: list[ev.Body] = []
        if self._step is None or key not in self._step.texts:
            if self._step is not None and key in self._step.ended:
                return None
            bodies = self.start_text(chunk) or []  # its beginning was missed
        step = self._step
        assert step is not None
        text = step.texts[key]
        text.metadata = chunk.raw("providerMetadata") or text.metadata
        return bodies + step.grow_text(text, delta)

    def end_text(self, chunk: Fields) -> list[ev.Body] | None:
        """`text-end`, `reasoning-end`."""
        citations, step = [item for item, _ in chunk.items("citations")], self._step
        text = step.texts.get(f"{_kind(chunk)} {chunk.text('id')}") if step is not None else None
        if step is None or text is None:
            return None
        text.metadata = chunk.raw("providerMetadata") or text.metadata
        return step.end_text(text, citations)

    def start_call(self, chunk: Fields) -> list[ev.Body] | None:
        """`tool-input-start`."""
        tool_call_id, _ = chunk.text("toolCallId"), chunk.text("toolName")
        bodies, step = self._open()
        if tool_call_id in step.calls:
            return None
        bodies += step.start_call(chunk)
        self._calls[tool_call_id] = (step.calls[tool_call_id].kind, step)
        return bodies

    def grow_call(self, chunk: Fields) -> list[ev.Body] | None:
        """`tool-input-delta`."""
        tool_call_id, delta, step = chunk.text("toolCallId"), chunk.text("inputTextDelta"), self._step
        return step.grow(step.calls[tool_call_id], delta) if step is not None and tool_call_id in step.calls else None

    def take_call(self, chunk: Fields) -> list[ev.Body] | None:
        """`tool-input-available`, also of a call that nobody has begun."""
        tool_call_id, given = chunk.text("toolCallId"), split(chunk.source).get("input")
        bodies, step = [], self._step
        if step is None or tool_call_id not in step.calls:
            if tool_call_id in self._calls:
                return None  # it was whole before
            bodies = self.start_call(chunk) or []
            step = self._calls[tool_call_id][1]
        return bodies + step.seal_call(tool_call_id, given if given is not None else "null", chunk)

    def fail_call(self, chunk: Fields) -> list[ev.Body] | None:
        """`tool-input-error`: the input is not what the tool takes, and that is its result."""
        error, given = chunk.text("errorText"), chunk.raw("input")
        tool_call_id, bodies, step = chunk.text("toolCallId"), [], self._step
        if step is None or tool_call_id not in step.calls:
            if tool_call_id in self._calls:
                return None
            bodies = self.start_call(chunk) or []
            step = self._calls[tool_call_id][1]
        is_broken = given is not None and decode(given) == "".join(step.calls[tool_call_id].pieces)
        bodies += step.seal_call(tool_call_id, None if is_broken else given, chunk)
        return bodies + self._answer(tool_call_id, ToolOutcome("error", text_parts(error), {}))

    def take_output(self, chunk: Fields) -> list[ev.Body] | None:
        """`tool-output-available`. What is preliminary is no result."""
        if chunk.is_true("preliminary"):
            return None
        parts = output_parts(split(chunk.source).get("output"))
        return self._answer(chunk.text("toolCallId"), ToolOutcome("ok", parts, _rest(chunk)), chunk)

    def take_error(self, chunk: Fields) -> list[ev.Body] | None:
        """`tool-output-error`."""
        outcome = ToolOutcome("error", text_parts(chunk.text("errorText")), _rest(chunk))
        return self._answer(chunk.text("toolCallId"), outcome, chunk)

    def take_denial(self, chunk: Fields) -> list[ev.Body] | None:
        """`tool-output-denied`."""
        tool_call_id = chunk.text("toolCallId")
        _, step = self._calls.get(tool_call_id, ("", None))
        known = split(step.shell.get("approvals", "{}")) if step is not None else {}
        return self._answer(tool_call_id, ToolOutcome("denied", denial_parts(known.get(tool_call_id)), {}))

    def ask(self, chunk: Fields) -> list[ev.Body] | None:
        """`tool-approval-request`: a person is asked. What only the AI SDK knows of it stays with the message."""
        tool_call_id, approval_id = chunk.text("toolCallId"), chunk.text("approvalId")
        found = self._calls.get(tool_call_id)
        if found is None:
            return None
        self._approvals[approval_id] = tool_call_id
        rest = {_OF_REQUESTS.get(name, name): text for name, text in chunk.rest("type", "toolCallId").items()}
        bodies = [*found[1].seal_if_whole(tool_call_id), ev.ToolApproval(tool_call_id, approval_id)]
        return bodies + (self._note(found[1], tool_call_id, rest) if rest.keys() != {"id"} else [])

    def decide(self, chunk: Fields) -> list[ev.Body] | None:
        """`tool-approval-response`: a person has answered."""
        approval_id, tool_call_id = chunk.text("approvalId"), self._approvals.get(chunk.text("approvalId"))
        if tool_call_id is None or tool_call_id not in self._calls:
            return None
        bodies: list[ev.Body] = [ev.ToolApproval(tool_call_id, approval_id, chunk.is_true("approved"))]
        reason = {"reason": text} if (text := chunk.raw("reason")) is not None else {}
        return bodies + (self._note(self._calls[tool_call_id][1], tool_call_id, reason) if reason else [])

    def take_whole(self, chunk: Fields) -> list[ev.Body] | None:
        """Sources, files and parts of one chunk."""
        block = other_block(chunk)
        bodies, step = self._open()
        return bodies + step.put(block)

    def take_data(self, chunk: Fields) -> list[ev.Body] | None:
        """`data-NAME`; what is transient reaches no message."""
        return None if chunk.is_true("transient") else self.take_whole(chunk)

    def take_metadata(self, chunk: Fields) -> list[ev.Body] | None:
        """`message-metadata`."""
        return self._learn(chunk.raw("messageMetadata"))

    def finish(self, chunk: Fields) -> list[ev.Body] | None:
        """`finish`."""
        reason, metadata = chunk.maybe_text("finishReason"), chunk.raw("messageMetadata")
        bodies = self._finish(reason) + self._learn(metadata)
        return [*bodies, ev.RawEvent(PROVIDER, raw(chunk.source))] if metadata is not None and self._first is None else bodies

    def abort(self, chunk: Fields) -> list[ev.Body] | None:
        """`abort`: somebody has stopped it."""
        self._end = StreamEnd("cancelled", finish_reason=chunk.maybe_text("reason"))
        return self._leave()

    def fail(self, chunk: Fields) -> list[ev.Body] | None:
        """`error`: what is whole is kept, what is open stays partial."""
        self._end = StreamEnd("failed", error=dump({"message": chunk.text("errorText")}))
        return self._leave()

    def _finish(self, reason: str | None) -> list[ev.Body]:
        bodies = self._step.end_parts() if self._step is not None else []
        if self._end.outcome not in ("failed", "cancelled"):  # an error is not undone by what follows
            self._end = StreamEnd(_ENDS.get(reason or "", "completed"), finish_reason=reason)
        return bodies + self._end_step()

    def _open(self) -> tuple[list[ev.Body], Step]:
        """The message of this step, begun if need be."""
        if self._step is not None:
            return [], self._step
        self._steps += 1
        step = self._step = Step(self._run_id, self._mint(), self._steps, begins=self._begins)
        self._begins = False
        if self._ref is not None:
            step.shell["id"] = self._ref
        if self._first is None:
            self._first = step
            step.shell |= {"metadata": self._metadata} if self._metadata is not None else {}
        return step.start(), step

    def _end_step(self) -> list[ev.Body]:
        step, self._step = self._step, None
        self._over = step or self._over
        return [] if step is None else step.leave()

    def _leave(self) -> list[ev.Body]:
        step, self._step = self._step, None
        return step.leave() if step is not None and not step.texts and not step.calls else []

    def _learn(self, metadata: JsonText | None) -> list[ev.Body]:
        """Metadata of the UIMessage, which stands with its first message."""
        if metadata is None:
            return []
        self._metadata = merge_metadata(self._metadata, metadata)
        if self._first is None:
            return []
        self._first.shell["metadata"] = self._metadata
        return self._first.annotate() if self._first.is_finished else []

    def _note(self, step: Step, tool_call_id: str, rest: dict[str, JsonText]) -> list[ev.Body]:
        known = split(step.shell.get("approvals", "{}"))
        merged = split(known.get(tool_call_id, "{}")) | rest
        step.shell["approvals"] = join_fields(known | {tool_call_id: join_fields(merged)})
        return step.annotate() if step.is_finished else []

    def _answer(self, tool_call_id: str, outcome: ToolOutcome, chunk: Fields | None = None) -> list[ev.Body]:
        kind, _ = self._calls.pop(tool_call_id, ("", None))
        is_server = chunk is not None and kind != "tool_call" and chunk.is_true("providerExecuted")
        if kind == "server_tool_call" or is_server:
            bodies, step = self._open()
            return bodies + step.put(server_block(tool_call_id, outcome))
        message_id, status = self._mint(), cast("ev.ToolStatus", outcome.status)
        result = ev.ToolResult(self._run_id, message_id, tool_call_id, status, raw(outcome.parts))
        noted = raw(f'{{"{SHELL}":{join_fields(outcome.rest)}}}')
        return [result, ev.MessageAnnotated(message_id, noted)] if outcome.rest else [result]


def _kind(chunk: Fields) -> str:
    return chunk.text("type").partition("-")[0]


def _rest(chunk: Fields) -> dict[str, JsonText]:
    text = chunk.raw("providerMetadata")
    return {} if text is None else {"resultProviderMetadata": text}


_HANDLERS: Final[dict[str, Callable[[AiSdkStream, Fields], list[ev.Body] | None]]] = {
    "start": AiSdkStream.start,
    "start-step": AiSdkStream.start_step,
    "finish-step": AiSdkStream.finish_step,
    "reset-step": AiSdkStream.reset_step,
    "message-metadata": AiSdkStream.take_metadata,
    "finish": AiSdkStream.finish,
    "abort": AiSdkStream.abort,
    "error": AiSdkStream.fail,
    **dict.fromkeys(("text-start", "reasoning-start"), AiSdkStream.start_text),
    **dict.fromkeys(("text-delta", "reasoning-delta"), AiSdkStream.grow_text),
    **dict.fromkeys(("text-end", "reasoning-end"), AiSdkStream.end_text),
    "tool-input-start": AiSdkStream.start_call,
    "tool-input-delta": AiSdkStream.grow_call,
    "tool-input-available": AiSdkStream.take_call,
    "tool-input-error": AiSdkStream.fail_call,
    "tool-output-available": AiSdkStream.take_output,
    "tool-output-error": AiSdkStream.take_error,
    "tool-output-denied": AiSdkStream.take_denial,
    "tool-approval-request": AiSdkStream.ask,
    "tool-approval-response": AiSdkStream.decide,
    **dict.fromkeys(WHOLE, AiSdkStream.take_whole),
}
