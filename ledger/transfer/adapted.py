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
from projector.events import to_event
from projector.formats import STREAMS, FormatError
from projector.formats.shared.fields import is_whole
from projector.formats.shared.media_refs import Attachment
from projector.formats.shared.stream import DONE
from projector.json_text import raw
from projector.validation import validate
from stream import InvalidEvent, NewEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from projector.formats import StreamEnd
    from projector.formats.shared.frames import Payload

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

    def __init__(self, path: Path, name: str, payloads: Iterable[Payload], key: str = "") -> None:
        """Raises `FileError` for an event that the adapter of `name` does not take."""
        self.format = name
        self.key = key
        self._events = _Spool()
        # The conversation has no name yet, and so the run no id: this one stands for it, and stands nowhere else.
        self._stand_in = secrets.token_hex(_STAND_IN_BYTES)
        try:
            self.checked = check_stream(path, name, payloads, self._stand_in, self._events.write)
        except BaseException:
            self.close()
            raise

    def run_of(self, run_id: str, parent: str | None) -> Iterator[Encoded]:
        """The events of its run, read again each time; of a stream that breaks off, or has no end, an incomplete one."""
        yield Encoded(to_event(ev.RunStarted(run_id, parent, "submit", run_id, provider=self.format)))
        said, own = self._stand_in.encode(), run_id.encode()
        for event, media in self._events.read():
            yield Encoded(NewEvent(event.type, event.data.replace(said, own)), media)
        end = self.checked.end
        outcome = "incomplete" if self.checked.is_torn else end.outcome
        yield Encoded(to_event(ev.RunFinished(run_id, outcome, end.finish_reason, raw(end.error))))  # type: ignore[arg-type] # one of the outcomes

    def close(self) -> None:
        """Drops what was kept."""
        self._events.close()


class Recording(NamedTuple):
    """A stream to be played: `read` again each time, of which `chunk_count` are whole."""

    format: str
    read: Callable[[], Iterator[Payload]]
    chunk_count: int
    is_torn: bool = False

    def chunks(self) -> Iterator[str]:
        """The whole chunks, in order, one at a time."""
        return (payload.data for payload in itertools.islice(self.read(), self.chunk_count))


def check_stream(
    path: Path, name: str, payloads: Iterable[Payload], run_id: str, take: Callable[[Encoded], object] = lambda _: None
) -> Checked:
    """Adapts a stream and gives `take` its events. Raises `FileError` for one that its adapter does not take."""
    numbers = itertools.count(1)
    adapter = STREAMS[name](run_id, lambda: f"{run_id}.{next(numbers)}")
    encoder = Encoder()
    count = 0
    torn: tuple[Payload, FormatError] | None = None
    for payload in payloads:
        if torn is not None:
            raise _wrong(path, name, *torn)
        if count == 0 and payload.data.strip() == DONE:
            continue  # the end of nothing
        try:
            made = [each for body in adapter.feed(payload.data) for each in encoder.put(body)]
            validate([each.event for each in made])
            count += 1
        except FormatError as error:
            if count == 0 or is_whole(payload.data):
                raise _wrong(path, name, payload, error) from error
            torn = payload, error
            continue
        except InvalidEvent as error:
            raise _wrong(path, name, payload, FormatError(error.why)) from error
        for each in made:
            take(each)
    if count == 0:
        raise FileError(f"{path}: the file holds nothing to play")
    for each in encoder.end():
        take(each)
    return Checked(count, torn is not None, adapter.end())


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


def _wrong(path: Path, name: str, payload: Payload, error: FormatError) -> FileError:
    return FileError(f"{path}, {payload.place or 'the body'}: this is no {name} stream: {error}")
