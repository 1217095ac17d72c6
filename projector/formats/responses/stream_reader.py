"""Responses streams: text, reasoning with its summaries, tools of the client and the server, approvals, compaction, usage.

Events of the stream become events of a conversation, one by one; memory holds what is open, not what has passed. Items
are told apart by their place in the output, for some servers give them new ids with each event. What the end of an item
says beyond its deltas is added; states of running tools, previews of images and padding are dropped. A stream that is
resumed goes on where it was: what came before is dropped by its number. A whole response is taken as one chunk.
Source: the public API reference of *Responses, Streaming events*; field names as in `facts/formats.md` §3 of the design.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from projector import events as ev
from projector.formats.format import FormatError, StreamEnd
from projector.formats.responses.growing import Response
from projector.formats.shared.fields import items_of, says_nothing, text_of_field
from projector.formats.shared.openai_items import PROVIDER, item_blocks
from projector.json_text import InvalidJson, JsonText, decode, dump, join_fields, raw, split

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_DONE: Final = "[DONE]"
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


class ResponsesStream:
    """Turns the events of one or more streamed responses of a run into events of the conversation.

    `mint()` gives the id of the next message. What this version does not know is kept as `raw`.
    """

    def __init__(self, run_id: str, mint: Callable[[], str]) -> None:
        self._run_id = run_id
        self._mint = mint
        self._response: Response | None = None
        self._last_ref: str | None = None  # of the newest response that has ended
        self._steps = 0
        self._numbers = _Numbers()
        self._end = StreamEnd("incomplete")

    def feed(self, chunk: bytes | str | dict[str, Any]) -> list[ev.Body]:
        """The events that one stream event becomes: its JSON text (the `data` of an SSE event), or the parsed form.

        Raises `FormatError` for what is no Responses event.
        """
        text = chunk if isinstance(chunk, str) else dump(chunk) if isinstance(chunk, dict) else _decode_utf8(chunk)
        if text.strip() == _DONE:
            return []
        try:
            fields = split(text)
            kind = _kind_of(fields)
        except InvalidJson as error:
            raise FormatError('a JSON object with a "type" was expected, as in {"type": "response.created", …}') from error
        if self._response is None and self._steps == 0 and not _may_begin(kind):
            raise FormatError(f'a Responses stream begins with "response.created", not with {kind!r}')
        try:
            if kind.startswith("response.") and self._numbers.is_old(fields, is_start=self._is_another(kind, fields)):
                return []
            bodies = self._handle(kind, fields)
        except (InvalidJson, KeyError, TypeError, ValueError, AttributeError) as error:
            raise FormatError(f"the {kind!r} event lacks what it needs ({type(error).__name__}: {error})") from error
        return [ev.RawEvent(PROVIDER, raw(text))] if bodies is None else bodies

    def end(self) -> StreamEnd:
        """How the run would end here: `incomplete` in the middle of a response, `failed` after an error."""
        return StreamEnd("incomplete") if self._response is not None and self._end.outcome != "failed" else self._end

    def _handle(self, kind: str, fields: Mapping[str, JsonText]) -> list[ev.Body] | None:
        if kind in _BEGINS:
            return self._begin(split(fields["response"]), is_start=kind == "response.created")
        if kind in _ENDS:
            return self._finish(split(fields["response"]), kind.removeprefix("response."))
        if kind.startswith("response."):
            return self._inside(kind, fields)
        if kind == "error":
            named = fields.get("error", "null")
            self._end = StreamEnd("failed", error=join_fields(fields) if says_nothing(named) else named)
            return []
        return self._take_whole(fields) if kind == "" else [] if kind in _PINGS else None

    def _inside(self, kind: str, fields: Mapping[str, JsonText]) -> list[ev.Body] | None:
        if kind.rpartition(".")[2] in _STATES:
            return []
        if self._response is not None:
            return self._response.take(kind, fields)
        if self._last_ref is not None:
            return None  # behind the end of a response
        begun = self._start({})  # the beginning was missed
        try:
            return [*begun, *(self._inside(kind, fields) or ())]
        except Exception:
            self._response, self._steps = None, self._steps - 1  # nobody is told that it began
            raise

    def _begin(self, response: Mapping[str, JsonText], *, is_start: bool) -> list[ev.Body]:
        ref = text_of_field(response, "id")
        if self._response is None and ref is not None and ref == self._last_ref:
            return []
        if self._response is not None and (self._response.ref == ref or not is_start):
            return self._response.annotate(_noted(response))  # the same once more, or as another state
        return self._start(response)

    def _is_another(self, kind: str, fields: Mapping[str, JsonText]) -> bool:
        """Whether another response begins, which counts its events anew."""
        if kind != "response.created":
            return False
        ref = text_of_field(split(fields["response"]), "id")
        return ref is None or ref != (self._response.ref if self._response is not None else self._last_ref)

    def _start(self, response: Mapping[str, JsonText]) -> list[ev.Body]:
        bodies: list[ev.Body] = []
        if self._response is not None:  # a response spliced into another one
            bodies += self._close(self._response, "partial")
        ref = text_of_field(response, "id")
        self._steps += 1
        self._response = Response(self._run_id, self._mint(), ref, self._steps)
        if self._end.outcome != "failed":
            self._end = StreamEnd("incomplete")
        return [
            *bodies,
            ev.RunStep(self._run_id, self._steps, "started"),
            ev.MessageStarted(self._run_id, self._response.message_id, "assistant", provider_ref=ref),
            *self._response.annotate(_noted(response)),
        ]

    def _finish(self, fields: Mapping[str, JsonText], how: str) -> list[ev.Body]:
        ref = text_of_field(fields, "id")
        if self._response is None and ref is not None and ref == self._last_ref:
            return []  # the same end once more
        output = items_of(_or_empty(fields.get("output", "[]")), "output")
        _check_end(fields, output)  # before anything is changed
        bodies = self._start(fields) if self._response is None else []
        response = self._response
        assert response is not None
        response.request_id = ref or response.request_id
        is_whole = how in ("completed", "incomplete")
        for number, item in enumerate(output):
            bodies += response.take_missing(number, item, is_whole=is_whole)
        if is_whole:
            bodies += response.seal_rest()
        bodies += response.annotate(_noted(fields))
        bodies += response.use(fields.get("usage", "null"))
        bodies += self._close(response, "complete" if is_whole else "partial")
        self._last_ref = ref
        if self._end.outcome != "failed":  # an error in the stream is not undone by what follows
            self._end = _end_of(fields, how)
        return bodies

    def _close(self, response: Response, status: Any) -> list[ev.Body]:
        self._response = None
        return [ev.MessageFinished(response.message_id, status), ev.RunStep(self._run_id, response.step, "finished")]

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
            raise TypeError(f"its {name} is no object")


def _or_empty(text: JsonText) -> JsonText:
    return "[]" if says_nothing(text) else text


def _decode_utf8(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise FormatError(f"it is no UTF-8 text ({error.reason} at byte {error.start})") from error
