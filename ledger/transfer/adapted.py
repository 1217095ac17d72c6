"""Recorded streams, each event of which its adapter has taken: once, and what came of it is kept till it is stored."""

from __future__ import annotations

import itertools
import secrets
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from ledger.transfer.encoded import Encoded, Encoder
from ledger.transfer.files import FileError
from projector import events as ev
from projector import transcript
from projector.events import to_event
from projector.formats import STREAMS, FormatError, StreamEnd
from projector.formats.registry import NAMED
from projector.formats.shared.fields import is_whole
from projector.formats.shared.history import Loss
from projector.formats.shared.media_refs import Attachment
from projector.formats.shared.stream import DONE
from projector.json_text import raw
from projector.validation import validate
from stream import Event, InvalidEvent, NewEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from projector import Message
    from projector.formats.shared.frames import Payload
    from projector.json_text import JsonText

    Skip = Callable[[FormatError], object]

_IN_MEMORY_BYTES: Final = 1024 * 1024
_STAND_IN_BYTES: Final = 12
_LENGTH_BYTES: Final = 4


class Checked(NamedTuple):
    """How far a stream goes: its whole chunks, whether one that breaks off follows, and how its run would end there."""

    chunk_count: int
    is_torn: bool
    end: StreamEnd


class Stream:
    """What a provider streamed, as the events of a run; `key` tells it from others of its conversation.

    They are kept encoded, in a file where they are many, until it is closed.
    """

    def __init__(self, path: Path, name: str, key: str = "") -> None:
        self.format = name
        self.key = key
        # The conversation has no name yet, and so the run no id: this one stands for it, and stands nowhere else.
        self.stand_in = secrets.token_hex(_STAND_IN_BYTES)
        self.checked = Checked(0, is_torn=False, end=StreamEnd("incomplete"))
        self._events = _Spool()
        self._adapter = _Adapter(path, name, self.stand_in, self._events.write)

    def feed(self, payload: Payload, skip: Skip | None = None) -> None:
        """The next event. Raises `FileError` for one that the adapter does not take, unless `skip` gets it."""
        self._adapter.feed(payload, skip)

    def finish(self, error: JsonText | None = None) -> None:
        """Nothing follows; the answer is that `error`, if the stream does not tell of one itself."""
        self.checked = self._adapter.finish()
        if error is not None and self.checked.end.outcome != "failed":
            self.checked = self.checked._replace(end=StreamEnd("failed", error=error), is_torn=False)

    @property
    def losses(self) -> tuple[Loss, ...]:
        """What has no place in its run."""
        if self._adapter.has_content or self.outcome != "completed":
            return ()
        place = f"{self.key}: " if self.key else ""
        return (Loss(f"{place}the answer has no content: no message is kept of it"),)

    def run_of(self, run_id: str, parent: str | None) -> Iterator[Encoded]:
        """The events of its run, read again each time; of a stream that breaks off, or has no end, an incomplete one."""
        yield Encoded(to_event(ev.RunStarted(run_id, parent, "submit", run_id, provider=self.format)))
        said, own = self.stand_in.encode(), run_id.encode()
        for event, media in self._events.read():
            yield Encoded(NewEvent(event.type, event.data.replace(said, own)), media)
        end = self.checked.end
        yield Encoded(to_event(ev.RunFinished(run_id, self.outcome, end.finish_reason, raw(end.error))))

    @property
    def outcome(self) -> ev.Outcome:
        """How its run ends."""
        return "incomplete" if self.checked.is_torn else self.checked.end.outcome  # type: ignore[return-value] # one of them

    def messages(self) -> list[Message]:
        """The messages of its run, whose ids begin with `stand_in`; a reading of all its events."""
        return list(read_back(self.run_of(self.stand_in, None)).values())

    def close(self) -> None:
        """Drops what was kept."""
        self._events.close()


def read_streams(path: Path, name: str, payloads: Iterable[Payload], key: str = "", skip: Skip | None = None) -> list[Stream]:
    """What a provider streamed, a stream for each of its choices, the first one last: it is the one that counts.

    Raises `FileError` for an event that the adapter of `name` does not take, unless `skip` gets it, and for no event.
    """
    found: dict[int, Stream] = {}
    choices = NAMED[name].choices
    try:
        for payload in _as_far_as_it_goes(payloads, skip):
            for number, data in [(0, payload.data)] if choices is None or payload.is_torn else choices(payload.data):
                if number not in found:
                    found[number] = Stream(path, name, f"{key} choice {number}".lstrip() if number else key)
                found[number].feed(msgspec.structs.replace(payload, data=data), skip)
        for stream in found.values():
            stream.finish()
        if 0 not in found:
            raise FileError(f"{path}: the file holds nothing to play")
    except BaseException:
        for stream in found.values():
            stream.close()
        raise
    return [found[number] for number in sorted(found, reverse=True)]


def read_back(run: Iterable[Encoded]) -> dict[str, Message]:
    """What the ledger would hold of a run."""
    state = transcript.initial
    for seq, (event, media) in enumerate(run, 1):
        if media is None:
            state = transcript.fold(state, Event("-", seq, event.type, event.data, 0))
    return {message.id: message for message in state.all_messages()}


def _as_far_as_it_goes(payloads: Iterable[Payload], skip: Skip | None) -> Iterator[Payload]:
    """The payloads ahead of bytes that can't be read."""
    try:
        yield from payloads
    except FormatError as error:
        if skip is None:
            raise
        skip(error)


class Recording(NamedTuple):
    """A stream to be played: `read` again each time, of which `chunk_count` are whole."""

    format: str
    read: Callable[[], Iterator[Payload]]
    chunk_count: int
    is_torn: bool = False

    def chunks(self) -> Iterator[str]:
        """The whole chunks, in order, one at a time."""
        return (payload.data for payload in itertools.islice(self.read(), self.chunk_count))


def check_stream(path: Path, name: str, payloads: Iterable[Payload]) -> Checked:
    """Adapts a stream into nothing. Raises `FileError` for one that its adapter does not take."""
    adapter = _Adapter(path, name, "r", lambda _: None)
    for payload in payloads:
        adapter.feed(payload)
    if not adapter.count:
        raise FileError(f"{path}: the file holds nothing to play")
    return adapter.finish()


class _Adapter:
    """The adapter of a format, which gives `take` the events of each chunk."""

    def __init__(self, path: Path, name: str, run_id: str, take: Callable[[Encoded], object]) -> None:
        numbers = itertools.count(1)
        self._adapter = STREAMS[name](run_id, lambda: f"{run_id}.{next(numbers)}")
        self._encoder = Encoder()
        self._path, self._name, self._take = path, name, take
        self._torn: tuple[Payload, FormatError] | None = None
        self.count = 0
        self.has_content = False

    def feed(self, payload: Payload, skip: Skip | None = None) -> None:
        """Raises `FileError` for what is no event, unless it is the last and breaks off, or `skip` gets it."""
        if self._torn is not None:
            self._refuse(*self._torn, skip)
            self._torn = None
        if not self.count and payload.data.strip() == DONE:
            return  # the end of nothing
        if payload.is_torn and self.count:
            self._torn = payload, FormatError("it breaks off")
            return
        try:
            bodies = self._adapter.feed(payload.data)
            made = [each for body in bodies for each in self._encoder.put(body)]
            validate([each.event for each in made])
        except FormatError as error:
            if self.count and not is_whole(payload.data):
                self._torn = payload, error
                return
            self._refuse(payload, error, skip)
        except InvalidEvent as error:
            self._refuse(payload, FormatError(error.why), skip)
        else:
            self.count += 1
            self.has_content = self.has_content or any(map(_is_content, bodies))
            for each in made:
                self._take(each)

    def finish(self) -> Checked:
        """How far it goes."""
        for each in self._encoder.end():
            self._take(each)
        return Checked(self.count, self._torn is not None, self._adapter.end())

    def _refuse(self, payload: Payload, error: FormatError, skip: Skip | None) -> None:
        why = f"{payload.place or 'the body'}: this is no {self._name} stream: {error}"
        if skip is None or (not self.count and is_whole(payload.data)):
            raise FileError(f"{self._path}, {why}") from error
        skip(FormatError(why))


def _is_content(body: ev.Body) -> bool:
    """Whether an event leaves something of a message when its run ends."""
    if isinstance(body, ev.BlockStarted):
        return body.kind not in ("text", "reasoning")
    return isinstance(body, ev.BlockDelta | ev.ToolResult)


class _Spool:
    """Events, written one after another, read from the first on as often as needed."""

    def __init__(self) -> None:
        self._file = SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115 - closed by whoever has it

    def write(self, encoded: Encoded) -> None:
        event, media = encoded
        record = msgspec.msgpack.encode((event.type, event.data, *(media or ())))
        self._file.write(len(record).to_bytes(_LENGTH_BYTES, "big") + record)

    def read(self) -> Iterator[Encoded]:
        self._file.seek(0)
        while length := self._file.read(_LENGTH_BYTES):
            kind, data, *media = msgspec.msgpack.decode(self._file.read(int.from_bytes(length, "big")))
            yield Encoded(NewEvent(kind, data), Attachment(*media) if media else None)

    def close(self) -> None:
        self._file.close()
