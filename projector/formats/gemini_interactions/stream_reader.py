"""Streams of Gemini's Interactions, and interactions that came whole: text, thoughts, calls, Google's own tools, usage.

The interface streams `step.…` events; its older form has `content.…` events in their place.
Source: *Streaming interactions* and the reference of *Interactions* of the Gemini API documentation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from projector import events as ev
from projector.formats.format import FormatError, StreamEnd
from projector.formats.gemini_interactions.growing import Answer
from projector.formats.gemini_interactions.parts import PROVIDER, RESULT, result_parts, result_status
from projector.formats.shared.fields import Fields, says_nothing
from projector.formats.shared.stream import StreamReader, maybe_text, need, need_object, need_text
from projector.json_text import InvalidJson, JsonText, decode, join_fields, raw, split, split_array

if TYPE_CHECKING:
    from collections.abc import Callable

_EXPECTED: Final = 'an event of an interaction was expected, as in {"event_type": "step.delta", …}, or a whole interaction'
_OF_INTERACTION: Final = ("id", "object", "status", "usage", "steps", "outputs", "input", "errors")
_OPEN: Final = ("in_progress", "queued", "idle")
_BROKEN: Final = ("failed", "cancelled")
_OUTCOMES: Final = {
    "failed": "failed", "cancelled": "cancelled", "incomplete": "incomplete", "budget_exceeded": "incomplete",
}  # fmt: skip


class InteractionsStream(StreamReader[dict[str, JsonText]]):
    """Turns the events of one or more streamed interactions of a run into events of the conversation.

    `mint()` gives the id of the next message. An interaction that came whole is one chunk; what this version does not
    know is kept as `raw`.
    """

    PROVIDER = PROVIDER
    EXPECTED = _EXPECTED
    CALLED = "the {!r} event"
    HAS_DONE = True

    def __init__(self, run_id: str, mint: Callable[[], str]) -> None:
        super().__init__(run_id, mint)
        self._draft: Answer | None = None
        self._results: dict[JsonText, dict[str, JsonText]] = {}
        self._has_come_back: set[JsonText | None] = set()
        """The calls whose results were told."""

    def _refusal(self, error: InvalidJson) -> FormatError:
        return FormatError(f"{_EXPECTED} ({error})")

    def _read(self, text: JsonText) -> tuple[str, dict[str, JsonText]]:
        fields = split(text)
        kind = decode(fields.get("event_type", "null"))
        if isinstance(kind, str):
            return kind, fields
        if fields.get("object") == '"interaction"' or ("status" in fields and fields.keys() & {"steps", "outputs"}):
            return "interaction", fields
        if not says_nothing(fields.get("error", "null")):
            return "error", fields
        if self._draft is None:
            raise FormatError(f"{_EXPECTED}, not {sorted(fields)[:8]}")
        return "", fields

    def _take(self, kind: str, fields: dict[str, JsonText], text: JsonText) -> list[ev.Body] | None:  # noqa: ARG002 - one shape
        step = _TAKES.get(kind)
        return None if step is None else step(self, fields)

    def start(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        """`interaction.created`: a response begins."""
        interaction = need_object(fields, "interaction")
        return self._start(maybe_text(interaction, "id")) + self._known().note_news(_rest(interaction))

    def update(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        """`interaction.status_update`."""
        status = maybe_text(fields, "status") or ""
        if status in _BROKEN:
            self._conclude(_end_of(status, fields))
        return [] if self._draft is None else self._draft.measure(fields.get("usage", "null"))

    def start_step(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        """`step.start`, `content.start`."""
        index, step = need(fields, "index"), need(fields, "step" if "step" in fields else "content")
        is_result = need_text(split(step), "type") == RESULT
        if is_result:
            _check_result(split(step))
        bodies, draft = self._open()
        if is_result:
            self._results[index] = split(step)
            return bodies
        return bodies + draft.begin_step(index, step)

    def grow_step(self, fields: dict[str, JsonText]) -> list[ev.Body] | None:
        """`step.delta`, `content.delta`."""
        index, delta = need(fields, "index"), need(fields, "delta")
        need_text(split(delta), "type")
        if index in self._results:
            said = self._results[index] | {name: text for name, text in split(delta).items() if name != "type"}
            _check_result(said)
        bodies, draft = self._open()
        if index in self._results:
            self._results[index] = said
            return bodies
        grown = draft.take_delta(index, delta)
        return bodies or None if grown is None else bodies + grown

    def stop_step(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        """`step.stop`, `content.stop`."""
        index = need(fields, "index")
        bodies, draft = self._open()
        return bodies + draft.end_step(index) + self._end_result(index)

    def finish(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        """`interaction.completed`: how it ends, and usage."""
        interaction = need_object(fields, "interaction")
        bodies, draft = self._open()
        return bodies + self._finish(draft, interaction)

    def whole(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        """An interaction that came whole."""
        return self._start(maybe_text(fields, "id")) + self._finish(self._known(), fields)

    def fail(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        """`error`."""
        self._end = StreamEnd("failed", error=fields.get("error"))
        return []

    def _finish(self, draft: Answer, interaction: dict[str, JsonText]) -> list[ev.Body]:
        given = interaction.get("steps", interaction.get("outputs", "[]"))
        steps = split_array(given) if given.startswith("[") else []
        status = maybe_text(interaction, "status")
        for step in steps:
            fields = split(step)
            if need_text(fields, "type") == RESULT:
                _check_result(fields)
        draft.check_list(steps)
        used = draft.measure(interaction.get("usage", "null"))  # the last that may raise
        bodies = self._take_list(draft, steps) + draft.note_news(_rest(interaction)) + used
        if status in _OPEN:
            return bodies
        self._conclude(_end_of(status, interaction))
        if status in _BROKEN:
            return bodies
        return bodies + self._seal(draft)

    def _take_list(self, draft: Answer, steps: list[JsonText]) -> list[ev.Body]:
        """The steps as the end has them: those that were streamed are corrected, the others come behind them."""
        bodies: list[ev.Body] = []
        for at, (step, index) in enumerate(zip(steps, draft.match(steps), strict=True)):
            fields, new = split(step), f"list {at}"
            if need_text(fields, "type") == RESULT:
                bodies += self._take_result(new, fields)
            elif index is not None:
                bodies += draft.correct(index, step)
            else:
                bodies += draft.begin_step(new, step) + draft.end_step(new)
        return bodies

    def _take_result(self, index: JsonText, fields: dict[str, JsonText]) -> list[ev.Body]:
        call_id = fields.get("call_id")
        if call_id in self._has_come_back:
            return []
        index = next((known for known, result in self._results.items() if result.get("call_id") == call_id), index)
        self._results[index] = self._results.get(index, {}) | fields
        return self._end_result(index)

    def _close(self) -> list[ev.Body]:
        if self._draft is None or self._draft.is_finished or self._end.outcome != "incomplete":
            return []
        self._end = StreamEnd("completed")
        return self._seal(self._draft)

    def _seal(self, draft: Answer) -> list[ev.Body]:
        results = [body for index in list(self._results) for body in self._end_result(index)]
        return [*results, *draft.seal_all(), *draft.finish("complete")]

    def _end_result(self, index: JsonText) -> list[ev.Body]:
        """A function's result inside a response is a message of its own."""
        fields = self._results.pop(index, None)
        if fields is None:
            return []
        result = _result(fields)
        self._has_come_back.add(fields.get("call_id"))
        parts, status = raw(result_parts(result)), result_status(result)
        return [ev.ToolResult(self._run_id, self._mint(), result.text("call_id"), status, parts)]

    def _start(self, ref: str | None) -> list[ev.Body]:
        bodies, self._draft = self._begin_next(self._draft, Answer, ref)
        self._results, self._has_come_back = {}, set()
        return bodies

    def _known(self) -> Answer:
        assert self._draft is not None
        return self._draft

    def _open(self) -> tuple[list[ev.Body], Answer]:
        """The response that is open; a stream whose beginning is lost has one too."""
        bodies = self._start(None) if self._draft is None or self._draft.is_finished else []
        return bodies, self._known()


def _result(fields: dict[str, JsonText]) -> Fields:
    return Fields(join_fields(fields), "the result")


def _check_result(fields: dict[str, JsonText]) -> None:
    """Raises `FormatError` for what is no result, or the beginning of one."""
    result = _result(fields)
    result_parts(result), result_status(result)


def _rest(interaction: dict[str, JsonText]) -> dict[str, JsonText]:
    return {name: text for name, text in interaction.items() if name not in _OF_INTERACTION}


def _end_of(status: str | None, fields: dict[str, JsonText]) -> StreamEnd:
    outcome: Any = _OUTCOMES.get(status or "", "completed")
    told = next((fields[name] for name in ("errors", "error") if not says_nothing(fields.get(name, "null"))), None)
    return StreamEnd(outcome, status, told if outcome == "failed" else None)


_TAKES: Final[dict[str, Callable[[InteractionsStream, dict[str, JsonText]], list[ev.Body] | None]]] = {
    "interaction.created": InteractionsStream.start,
    "interaction.start": InteractionsStream.start,
    "interaction.status_update": InteractionsStream.update,
    "step.start": InteractionsStream.start_step,
    "content.start": InteractionsStream.start_step,
    "step.delta": InteractionsStream.grow_step,
    "content.delta": InteractionsStream.grow_step,
    "step.stop": InteractionsStream.stop_step,
    "content.stop": InteractionsStream.stop_step,
    "interaction.completed": InteractionsStream.finish,
    "interaction.complete": InteractionsStream.finish,
    "interaction": InteractionsStream.whole,
    "error": InteractionsStream.fail,
}
