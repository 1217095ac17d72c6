"""Cohere Chat streams of both versions, and answers that came whole: text, thinking, plans, calls, citations, usage.

Version 2 streams events of a `type`, the first version lines of an `event_type`.
Source: the API reference of *Chat with streaming* (v2 and v1) of Cohere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from projector.formats.cohere.growing import Answer, first_calls, inner, usage_of
from projector.formats.cohere.parts import PROVIDER, answer_blocks
from projector.formats.format import FormatError, StreamEnd
from projector.formats.shared.fields import Fields, says_nothing
from projector.formats.shared.stream import StreamReader, maybe_object, maybe_text, need, need_object, need_text
from projector.json_text import InvalidJson, JsonText, decode, dump, split, split_array

if TYPE_CHECKING:
    from collections.abc import Callable

    from projector import events as ev

_EXPECTED: Final = (
    'an event of Cohere\'s Chat was expected, as in {"type": "message-start", …}, or a whole answer with a "message"'
)
_PADDING: Final = ("type", "id", "delta", "event_type", "is_finished")
_OF_ANSWER: Final = (
    "id", "message", "finish_reason", "usage", "text", "generation_id", "response_id", "tool_calls", "citations", "meta",
    "chat_history", "event_type", "is_finished",
)  # fmt: skip


class CohereStream(StreamReader[dict[str, JsonText]]):
    """Turns the events of one or more streamed answers of a run into events of the conversation.

    `mint()` gives the id of the next message. An answer that came whole is one chunk; what this version does not know is
    kept as `raw`.
    """

    PROVIDER = PROVIDER
    EXPECTED = _EXPECTED
    CALLED = "the {!r} event"

    def __init__(self, run_id: str, mint: Callable[[], str]) -> None:
        super().__init__(run_id, mint)
        self._draft: Answer | None = None

    def _refusal(self, error: InvalidJson) -> FormatError:
        return FormatError(f"{_EXPECTED} ({error})")

    def _read(self, text: JsonText) -> tuple[str, dict[str, JsonText]]:
        fields = split(text)
        kind = decode(fields.get("type", fields.get("event_type", "null")))
        if isinstance(kind, str) and kind in _TAKES:
            return kind, fields
        if isinstance(kind, str) and self._draft is not None:
            return "", fields
        if fields.get("message", "").startswith("{"):
            return "answer", fields
        if "text" in fields and fields.keys() & {"generation_id", "response_id"}:
            return "first answer", fields
        if kind is None and isinstance(decode(fields.get("message", "null")), str):
            return "error", fields
        if self._draft is None:
            raise FormatError(f"{_EXPECTED}, not {sorted(fields)[:8]}")
        return "", fields

    def _take(self, kind: str, fields: dict[str, JsonText], text: JsonText) -> list[ev.Body] | None:
        if kind == "error":
            self._end = StreamEnd("failed", error=text)
            return []
        if kind in _WHOLE:
            return _WHOLE[kind](self, fields)
        return _TAKES[kind](self, fields) if kind else None

    def start(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        """`message-start`, `stream-start`: an answer begins."""
        return self._start(maybe_text(fields, "id") or maybe_text(fields, "generation_id"))

    def content(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        """`content-start`, `content-delta`."""
        index, content = need(fields, "index"), inner(fields, "content")
        bodies, draft = self._open()
        return bodies + draft.take_content(index, content)

    def content_end(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        """`content-end`."""
        index = need(fields, "index")
        bodies, draft = self._open()
        return bodies + draft.seal(("content", index))

    def plan(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        """`tool-plan-delta`."""
        text = maybe_text(need_object(need_object(fields, "delta"), "message"), "tool_plan") or ""
        bodies, draft = self._open()
        return bodies + draft.plan(text)

    def call(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        """`tool-call-start`, `tool-call-delta`."""
        index, call = need(fields, "index"), inner(fields, "tool_calls")
        bodies, draft = self._open()
        return bodies + draft.take_call(index, call)

    def call_end(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        """`tool-call-end`."""
        index = need(fields, "index")
        bodies, draft = self._open()
        return bodies + draft.seal(("call", index))

    def cite(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        """`citation-start`: one citation, or a list of them."""
        given = need(need_object(need_object(fields, "delta"), "message"), "citations")
        sources = split_array(given) if given.startswith("[") else [given]
        bodies, draft = self._open()
        return bodies + [body for source in sources for body in draft.take_citation(source)]

    def cite_end(self, fields: dict[str, JsonText]) -> list[ev.Body]:  # noqa: ARG002 - one shape
        """`citation-end`: nothing that is not known."""
        return []

    def finish(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        """`message-end`: why it ends, and usage."""
        delta = need_object(fields, "delta")
        reason, used = maybe_text(delta, "finish_reason"), usage_of(delta, "usage")
        bodies, draft = self._open()
        bodies += draft.measure(used)
        more = {name: text for name, text in delta.items() if name not in ("finish_reason", "usage", "error")}
        more |= {name: text for name, text in fields.items() if name not in _PADDING}
        return bodies + draft.note(more) + self._finish(draft, reason, delta.get("error"))

    def speak(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        """`text-generation`."""
        text = need_text(fields, "text")
        bodies, draft = self._open()
        return bodies + draft.speak(text)

    def cite_first(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        """`citation-generation`."""
        sources = split_array(need(fields, "citations"))
        bodies, draft = self._open()
        return bodies + [body for source in sources for body in draft.take_citation(source)]

    def search(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        """`search-queries-generation`, `search-results`: what it looked for and found."""
        bodies, draft = self._open()
        return bodies + draft.note_news({name: text for name, text in fields.items() if name not in _PADDING})

    def call_piece(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        """`tool-calls-chunk`: of the plan, or of a call."""
        delta = maybe_object(fields, "tool_call_delta")
        plan = maybe_text(fields, "text") or maybe_text(delta, "text") or ""
        for name in ("name", "parameters"):
            maybe_text(delta, name)
        bodies, draft = self._open()
        bodies += draft.plan(plan)
        return bodies + (draft.take_first_call(delta) if delta.keys() & {"name", "parameters"} else [])

    def calls(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        """`tool-calls-generation`: all of them."""
        calls = first_calls(split_array(fields.get("tool_calls", "[]")))
        bodies, draft = self._open()
        return bodies + draft.put_first_calls(calls)

    def finish_first(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        """`stream-end`: the answer once more, with usage."""
        response = maybe_object(fields, "response")
        text, calls = maybe_text(response, "text") or "", first_calls(split_array(_list(response, "tool_calls")))
        used, reason = usage_of(response, "meta"), maybe_text(fields, "finish_reason")
        bodies, draft = self._open()
        bodies += draft.speak_whole(text) + draft.put_first_calls(calls) + draft.measure(used)
        return bodies + self._end_first(draft, response, reason)

    def answer(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        """An answer of version 2 that came whole."""
        blocks = answer_blocks(Fields(fields["message"], "the message"))
        bodies = self._start(maybe_text(fields, "id"))
        draft = self._known()
        bodies += [body for block in blocks for body in draft.add(block)]
        bodies += draft.measure(usage_of(fields, "usage"))
        bodies += draft.note({name: text for name, text in fields.items() if name not in _OF_ANSWER})
        return bodies + self._finish(draft, maybe_text(fields, "finish_reason"), None)

    def first_answer(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        """An answer of the first version that came whole."""
        bodies = self._start(maybe_text(fields, "generation_id") or maybe_text(fields, "response_id"))
        draft = self._known()
        bodies += draft.speak(maybe_text(fields, "text") or "")
        bodies += [body for source in split_array(_list(fields, "citations")) for body in draft.take_citation(source)]
        bodies += draft.put_first_calls(first_calls(split_array(_list(fields, "tool_calls"))))
        bodies += draft.measure(usage_of(fields, "meta"))
        return bodies + self._end_first(draft, fields, maybe_text(fields, "finish_reason"))

    def _end_first(self, draft: Answer, response: dict[str, JsonText], reason: str | None) -> list[ev.Body]:
        news = {name: text for name, text in response.items() if name not in _OF_ANSWER and not says_nothing(text)}
        return draft.note_news(news) + self._finish(draft, reason, None)

    def _finish(self, draft: Answer, reason: str | None, error: JsonText | None) -> list[ev.Body]:
        if reason is not None and reason.startswith("ERROR"):
            told = error if error is not None and not says_nothing(error) else dump({"type": reason})
            self._end = StreamEnd("failed", reason, told)
            return []
        self._conclude(StreamEnd("completed", finish_reason=reason))
        return [*draft.seal_all(), *draft.finish("complete")]

    def _start(self, ref: str | None) -> list[ev.Body]:
        bodies, self._draft = self._begin_next(self._draft, Answer, ref)
        return bodies

    def _known(self) -> Answer:
        assert self._draft is not None
        return self._draft

    def _open(self) -> tuple[list[ev.Body], Answer]:
        """The answer that is open; a stream whose beginning is lost has one too."""
        bodies = self._start(None) if self._draft is None or self._draft.is_finished else []
        return bodies, self._known()


def _list(fields: dict[str, JsonText], name: str) -> JsonText:
    return "[]" if says_nothing(fields.get(name, "null")) else fields[name]


_TAKES: Final[dict[str, Callable[[CohereStream, dict[str, JsonText]], list[ev.Body] | None]]] = {
    "message-start": CohereStream.start,
    "content-start": CohereStream.content,
    "content-delta": CohereStream.content,
    "content-end": CohereStream.content_end,
    "tool-plan-delta": CohereStream.plan,
    "tool-call-start": CohereStream.call,
    "tool-call-delta": CohereStream.call,
    "tool-call-end": CohereStream.call_end,
    "citation-start": CohereStream.cite,
    "citation-end": CohereStream.cite_end,
    "message-end": CohereStream.finish,
    "stream-start": CohereStream.start,
    "text-generation": CohereStream.speak,
    "citation-generation": CohereStream.cite_first,
    "search-queries-generation": CohereStream.search,
    "search-results": CohereStream.search,
    "tool-calls-chunk": CohereStream.call_piece,
    "tool-calls-generation": CohereStream.calls,
    "stream-end": CohereStream.finish_first,
}
_WHOLE: Final = {"answer": CohereStream.answer, "first answer": CohereStream.first_answer}
