"""Responses streams: text, reasoning with its summaries, tools of the client and the server, approvals, compaction, usage.

Events of the stream become events of a conversation, one by one; memory holds what is open, not what has passed. Items
are told apart by their ids, and by their place where those say nothing, for some servers give new ids with each event.
What the end of an item says wins over its deltas; states of running tools, previews of images and padding are dropped.
A stream that is resumed goes on where it was: what came before is dropped by its number. A whole response is one chunk.
Source: the public API reference of *Responses, Streaming events*.
"""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Final

from projector.formats.format import FormatError, StreamEnd
from projector.formats.responses.growing import Output
from projector.formats.shared.fields import items_of, says_nothing, text_of_field
from projector.formats.shared.openai_items import PROVIDER, item_blocks
from projector.formats.shared.stream import StreamReader, maybe_object
from projector.json_text import InvalidJson, JsonText, decode, join_fields, split

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from projector import events as ev

_PINGS: Final = ("ping", "keepalive")
_BEGINS: Final = ("response.created", "response.queued", "response.in_progress")
_ENDS: Final = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
_STATES: Final = (
    "in_progress",
    "searching",
    "completed",
    "failed",
    "interpreting",
    "generating",
    "partial_image",
    "compacting",
)
"""How far a tool is; the end of its item says what became of it."""
_ENDED: Final = {"completed": "completed", "incomplete": "incomplete", "failed": "failed", "cancelled": "cancelled"}
_STILL_OPEN: Final = ("queued", "in_progress")
_OF_REQUEST: Final = {
    "instructions", "tools", "tool_choice", "temperature", "top_p", "top_logprobs", "text", "reasoning", "truncation",
    "max_output_tokens", "max_tool_calls", "parallel_tool_calls", "prompt", "prompt_cache_key", "prompt_cache_retention",
    "prompt_cache_options", "safety_identifier", "user", "store", "background", "frequency_penalty", "presence_penalty",
}  # fmt: skip
"""Fields of a response that repeat what was asked."""
_NOT_NOTED: Final = _OF_REQUEST | {"object", "id", "output", "output_text", "usage", "error", "type"}


class ResponsesStream(StreamReader[dict[str, JsonText]]):
    """Turns the events of one or more streamed responses of a run into events of the conversation.

    `mint()` gives the id of the next message. What this version does not know is kept as `raw`.
    """

    PROVIDER = PROVIDER
    EXPECTED = 'a JSON object with a "type" was expected, as in {"type": "response.created", …}'
    CALLED = "the {!r} event"

    def __init__(self, run_id: str, mint: Callable[[], str]) -> None:
        super().__init__(run_id, mint)
        self._draft: Output | None = None
        self._last_ref: str | None = None  # of the newest response that has ended
        self._numbers = _Numbers()

    def end(self) -> StreamEnd:
        """How the run would end here: `incomplete` in the middle of a response, `failed` after an error."""
        return StreamEnd("incomplete") if self._draft is not None and self._end.outcome != "failed" else self._end

    def _read(self, text: JsonText) -> tuple[str, dict[str, JsonText]]:
        fields = split(text)
        kind = _kind_of(fields)
        if self._draft is None and self._steps == 0 and not _may_begin(kind):
            raise FormatError(f'a Responses stream begins with "response.created", not with {kind!r}')
        return kind, fields

    def _take(self, kind: str, fields: dict[str, JsonText], text: JsonText) -> list[ev.Body] | None:
        before = copy(self._numbers)
        try:
            return self._take_numbered(kind, fields, text)
        except (FormatError, InvalidJson):
            self._numbers = before  # it may come again, and be whole then
            raise

    def _take_numbered(self, kind: str, fields: dict[str, JsonText], text: JsonText) -> list[ev.Body] | None:  # noqa: ARG002
        if kind.startswith("response.") and self._numbers.is_old(fields, is_start=self._is_another(kind, fields)):
            return []
        if kind in _BEGINS:
            return self._begin(maybe_object(fields, "response"), is_start=kind == "response.created")
        if kind in _ENDS:
            return self._finish(maybe_object(fields, "response"), kind.removeprefix("response."))
        if kind.startswith("response."):
            return self._inside(kind, fields)
        if kind == "error":
            named = fields.get("error", "null")
            self._end = StreamEnd("failed", error=join_fields(fields) if says_nothing(named) else named)
            return []
        return self._take_whole(fields) if kind == "" else [] if kind in _PINGS else None

    def _close(self) -> list[ev.Body]:
        """`[DONE]`: some servers leave out that the response is completed."""
        draft, self._draft = self._draft, None
        if draft is None:
            return []
        self._last_ref = draft.ref
        return self._end_of(draft)

    def _inside(self, kind: str, fields: Mapping[str, JsonText]) -> list[ev.Body] | None:
        if kind.rpartition(".")[2] in _STATES:
            return []
        if self._draft is not None:
            return self._draft.take(kind, fields)
        if self._last_ref is not None:
            return None  # behind the end of a response
        begun = self._start({})  # the beginning was missed
        try:
            return [*begun, *(self._inside(kind, fields) or ())]
        except Exception:
            self._draft, self._steps = None, self._steps - 1  # nobody is told that it began
            raise

    def _begin(self, response: Mapping[str, JsonText], *, is_start: bool) -> list[ev.Body]:
        ref = text_of_field(response, "id")
        if self._draft is None and ref is not None and ref == self._last_ref:
            return []
        if self._draft is not None and (self._draft.ref == ref or not is_start):
            return self._draft.learn(_noted(response))  # the same once more, or as another state
        return self._start(response)

    def _is_another(self, kind: str, fields: Mapping[str, JsonText]) -> bool:
        """Whether another response begins, which counts its events anew."""
        if kind != "response.created":
            return False
        ref = text_of_field(maybe_object(fields, "response"), "id")
        return ref is None or ref != (self._draft.ref if self._draft is not None else self._last_ref)

    def _start(self, response: Mapping[str, JsonText]) -> list[ev.Body]:
        bodies, draft = self._begin_next(self._draft, partial(Output, mint=self._mint), text_of_field(response, "id"))
        self._draft = draft
        return bodies + draft.learn(_noted(response))

    def _finish(self, fields: Mapping[str, JsonText], how: str) -> list[ev.Body]:
        ref = text_of_field(fields, "id")
        if self._draft is None and ref is not None and ref == self._last_ref:
            return []  # the same end once more
        output = items_of(_or_empty(fields.get("output", "[]")), "output")
        _check_end(fields, output)  # before anything is changed
        bodies = self._start(fields) if self._draft is None else []
        draft = self._draft
        assert draft is not None
        draft.request_id = ref or draft.request_id
        is_whole = how in ("completed", "incomplete")
        bodies += draft.take_list(output, is_whole=is_whole)
        if is_whole:
            bodies += draft.seal_all()
        bodies += draft.learn(_noted(fields))
        bodies += draft.count(fields.get("usage", "null"))
        bodies += draft.finish("complete" if is_whole else "partial")
        self._draft, self._last_ref = None, ref
        self._conclude(_end_of(fields, how))
        return bodies

    def _take_whole(self, fields: Mapping[str, JsonText]) -> list[ev.Body] | None:
        """A response of the API that was not streamed, or its error."""
        if fields.get("object") == '"response"':
            status = text_of_field(fields, "status")
            if status in _STILL_OPEN:
                return self._begin(fields, is_start=True)
            return self._finish(fields, status if status in _ENDED else "completed")
        if not says_nothing(fields.get("error", "null")):
            self._end = StreamEnd("failed", error=fields["error"])
            return []
        return None


class _Numbers:
    """The numbers that events carry, by which what is sent once more is known."""

    def __init__(self) -> None:
        self._last: int | None = None
        self._count = False  # some servers send always the same one

    def is_old(self, fields: Mapping[str, JsonText], *, is_start: bool) -> bool:
        number = decode(fields.get("sequence_number", "null"))
        if not isinstance(number, int):
            return False
        if is_start:  # the next response counts anew
            self._last, self._count = number, False
        elif self._last is None or number > self._last:
            self._count = self._last is not None
            self._last = number
        else:
            return self._count
        return False


def _kind_of(fields: Mapping[str, JsonText]) -> str:
    """The type of an event; empty for a whole response, and for an error without a type."""
    kind = decode(fields.get("type", "null"))
    is_bare = fields.get("object") == '"response"' or not says_nothing(fields.get("error", "null"))
    if kind is None and is_bare:
        return ""
    if not isinstance(kind, str):
        raise InvalidJson("its type is no text")
    return kind


def _may_begin(kind: str) -> bool:
    return kind.startswith("response.") or kind in ("", "error", *_PINGS)


def _noted(response: Mapping[str, JsonText]) -> dict[str, JsonText]:
    return {name: text for name, text in response.items() if name not in _NOT_NOTED}


def _end_of(response: Mapping[str, JsonText], how: str) -> StreamEnd:
    error = response.get("error", "null")
    details = response.get("incomplete_details", "null")
    reason = None if says_nothing(details) else text_of_field(split(details), "reason")
    return StreamEnd(_ENDED[how], finish_reason=reason, error=None if says_nothing(error) else error)


def _check_end(response: Mapping[str, JsonText], output: Sequence[JsonText]) -> None:
    for item in output:
        item_blocks(item)
    for name in ("usage", "incomplete_details"):
        if not isinstance(decode(response.get(name, "null")), dict | None):
            raise FormatError(f"its {name} is no object")


def _or_empty(text: JsonText) -> JsonText:
    return "[]" if says_nothing(text) else text
