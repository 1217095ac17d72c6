"""The one door of `feed`: what a chunk is, how its fields are read, and which faults are its own.

A field that is missing or of another type raises `FormatError` where it is read. Nothing else is taken for a fault of
the chunk: what goes wrong in a reader itself comes out as what it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

from projector import events as ev
from projector.formats.format import FormatError, StreamEnd
from projector.formats.shared.fields import Fields, shown
from projector.formats.shared.response import ResponseDraft
from projector.json_text import InvalidJson, JsonText, decode, dump, raw, split

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

F = TypeVar("F")
D = TypeVar("D", bound=ResponseDraft[Any])
DONE: Final = "[DONE]"
_EMPTY: Final = ("null", '""', "[]", "{}")


class StreamReader(ABC, Generic[F]):
    """An adapter from a provider's stream to events of a conversation; `F` is how it reads the fields of a chunk.

    `mint()` gives the id of the next message. What this version does not know is kept as `raw`.
    """

    PROVIDER: ClassVar[str]
    EXPECTED: ClassVar[str]
    """What is said of something that is no chunk at all."""
    CALLED: ClassVar[str]
    """What a chunk is called in an error, with a place for its type."""

    def __init__(self, run_id: str, mint: Callable[[], str]) -> None:
        self._run_id = run_id
        self._mint = mint
        self._steps = 0
        self._end = StreamEnd("incomplete")
        self._draft: ResponseDraft[Any] | None = None
        """The response under way, where a format has one."""

    def feed(self, chunk: bytes | str | dict[str, Any]) -> list[ev.Body]:
        """The events that one chunk becomes: its JSON text (the `data` of an SSE event), or the parsed form.

        Raises `FormatError` for what is no chunk of this format; the stream stands where it stood then.
        """
        try:
            text = _text_of(chunk)
            if text.strip() == DONE:  # no JSON; gateways end streams of every format with it
                return self._close()
            kind, fields = self._read(text)
        except UnicodeDecodeError as error:
            why = f"it is no UTF-8 text: {error.reason} at byte {error.start}"
            raise FormatError(f"{self.EXPECTED} ({why})") from error
        except InvalidJson as error:
            raise self._refusal(error) from error
        before, is_over = (self._draft, self._steps, self._end), self._draft is None or self._draft.is_finished
        try:
            bodies = self._take(kind, fields, text)
        except (FormatError, InvalidJson) as error:
            self._draft, self._steps, self._end = before  # nobody is told of a response that began
            if self._draft is not None:
                self._draft.is_finished = is_over
            raise FormatError(f"{self.CALLED.format(kind)} lacks what it needs ({error})") from error
        return [ev.RawEvent(self.PROVIDER, raw(text))] if bodies is None else bodies

    def end(self) -> StreamEnd:
        """How the run would end here: `incomplete` in the middle of a response, `failed` after an error."""
        return self._end

    @abstractmethod
    def _read(self, text: JsonText) -> tuple[str, F]:
        """The type of a chunk, "" where it has none, and its fields. Raises `InvalidJson`, `FormatError`."""

    @abstractmethod
    def _take(self, kind: str, fields: F, text: JsonText) -> list[ev.Body] | None:
        """The events of a chunk; None for one that nobody knows. Raises `InvalidJson`, `FormatError`.

        What it needs is read before anything is changed in a response that has begun.
        """

    def _close(self) -> list[ev.Body]:
        """The events of `[DONE]`: whatever is open is whole, though the provider's own end was left out."""
        return []

    def _end_of(self, draft: ResponseDraft[Any] | None) -> list[ev.Body]:
        """A response that is open is whole, and so is the run."""
        if draft is None or draft.is_finished:
            return []
        self._conclude(StreamEnd("completed"))
        return [*draft.seal_all(), *draft.finish("complete")]

    def _refusal(self, error: InvalidJson) -> FormatError:  # noqa: ARG002 - some say why
        return FormatError(self.EXPECTED)

    def _begin_next(
        self, old: D | None, make: Callable[[str, str, int, str | None], D], ref: str | None, role: str = "assistant"
    ) -> tuple[list[ev.Body], D]:
        """Another response begins, also in the middle of one, which stays as far as it came."""
        bodies = [] if old is None or old.is_finished else old.finish("partial")
        self._steps += 1
        draft = make(self._run_id, self._mint(), self._steps, ref)
        self._conclude(StreamEnd("incomplete"))
        return [*bodies, *draft.start(role)], draft

    def _conclude(self, end: StreamEnd) -> None:
        """How the run ends; an error in the stream is not undone by what follows."""
        if self._end.outcome != "failed":
            self._end = end


def _text_of(chunk: object) -> JsonText:
    """Raises `InvalidJson` for what is no chunk, whatever the format."""
    if isinstance(chunk, str):
        return chunk
    if isinstance(chunk, dict):
        return dump(chunk)
    if isinstance(chunk, bytes | bytearray):
        return chunk.decode()
    raise InvalidJson(f"a chunk is bytes, text or a dict, not {type(chunk).__name__}")


def typed_fields(text: JsonText, place: str) -> tuple[Fields, str]:
    """A chunk as `Fields`, and its type. Raises `InvalidJson` for what is no object, or has none."""
    try:
        fields = Fields(text, place)
        return fields, fields.text("type")
    except FormatError as error:
        raise InvalidJson(str(error)) from error


def need(fields: Mapping[str, JsonText], name: str) -> JsonText:
    """A field that must be there, as JSON text. Raises `FormatError`."""
    if name not in fields:
        raise FormatError(f'"{name}" is not there')
    return fields[name]


def need_text(fields: Mapping[str, JsonText], name: str) -> str:
    """A field that must be text. Raises `FormatError`."""
    value = decode(fields[name] if name in fields else need(fields, name))
    if isinstance(value, str):
        return value
    raise _wrong(fields, name, "text")


def maybe_text(fields: Mapping[str, JsonText], name: str) -> str | None:
    """A field that is text; None where it is empty, null or not there. Raises `FormatError`."""
    value = decode(fields[name]) if name in fields else None
    if isinstance(value, str):
        return value
    if value:
        raise _wrong(fields, name, "text")
    return None


def need_whole(fields: Mapping[str, JsonText], name: str) -> int:
    """A field that must be a whole number. Raises `FormatError`."""
    try:
        return int(fields[name] if name in fields else need(fields, name))
    except ValueError as error:
        raise _wrong(fields, name, "a whole number") from error


def maybe_whole(fields: Mapping[str, JsonText], name: str) -> int | None:
    """A field that is a whole number, or null, or not there. Raises `FormatError`."""
    value = decode(fields[name]) if name in fields else None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise _wrong(fields, name, "a whole number")
    return value


def sum_of(counts: Mapping[str, JsonText], *names: str) -> int | None:
    """The sum of those that are there; None where none is. Raises `FormatError`."""
    found = [maybe_whole(counts, name) or 0 for name in names if name in counts]
    return sum(found) if found else None


def need_object(fields: Mapping[str, JsonText], name: str) -> dict[str, JsonText]:
    """The fields of a field that must be an object. Raises `FormatError`."""
    try:
        return split(fields[name] if name in fields else need(fields, name))
    except InvalidJson as error:
        raise _wrong(fields, name, "an object") from error


def maybe_object(fields: Mapping[str, JsonText], name: str) -> dict[str, JsonText]:
    """The fields of a field that is an object; none where it is empty, null or not there. Raises `FormatError`."""
    return {} if fields.get(name, "null") in _EMPTY else need_object(fields, name)


def _wrong(fields: Mapping[str, JsonText], name: str, expected: str) -> FormatError:
    return FormatError(f'"{name}" should be {expected}, not {shown(fields[name])}')
