"""Cassettes: the conversations in recorded exchanges, with every answer as it came."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final

from ledger.transfer.adapted import Stream, read_streams
from ledger.transfer.files import FileError
from ledger.transfer.recorded import Recorded
from projector.formats import FormatError
from projector.formats.recordings.cassettes import read_cassette
from projector.formats.recordings.detection import detect
from projector.formats.recordings.exchange_trees import Turn, weave
from projector.formats.recordings.exchanges import OK, read_requests, read_whole
from projector.formats.recordings.transport import read_all
from projector.formats.shared.fields import is_whole, shown
from projector.formats.shared.history import HistoryMessage, Loss
from projector.json_text import JsonText, dump

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import ExitStack
    from pathlib import Path

    from ledger.transfer.adapted import Skip
    from projector.events import MessageStatus
    from projector.formats.recordings.exchanges import Sent

_ERRORS: Final = 400
_SHOWN: Final = 400
"""Characters of an error that is no JSON, which may be a page of HTML."""


def read_conversations(stack: ExitStack, path: Path, data: bytes, skip: Skip | None = None) -> list[Recorded]:
    """The conversations of a cassette; its streams are kept as long as `stack`.

    What is no conversation with a model is passed over and named. Raises `FormatError` or `FileError` with the exchange
    that is broken, unless `skip` gets it, and where none is a conversation.
    """
    cassette = read_cassette(data, skip)
    if cassette.frames and not cassette.exchanges:
        raise FormatError("this is a two-way session over a websocket: no format takes those in")
    try:
        requests = read_requests(cassette.exchanges, skip)
    except FormatError as error:
        if cassette.frames:
            raise FormatError("this is a two-way session over a websocket: no format takes those in") from error
        raise
    losses = list(requests.losses)
    if cassette.frames:
        losses.append(Loss(f"{len(cassette.frames)} messages of a websocket: no format takes those in"))
    answered = _Answers(stack, path, skip)
    turns = [turn for sent in requests.sent if (turn := answered.turn(sent)) is not None]
    losses += answered.losses
    if not turns:
        raise FormatError(f"no answer in it is of a format that is known ({losses[0].what})")
    found = []
    for history, kept in weave(turns):
        streams = {at: answered.streams[name] for at, name in kept.items()}
        found.append(Recorded(history, kept_answers=streams, losses=tuple(losses)))
        losses = []  # told once
    return found


class _Answers:
    """What was answered, exchange by exchange."""

    def __init__(self, stack: ExitStack, path: Path, skip: Skip | None) -> None:
        self._stack, self._path, self._skip = stack, path, skip
        self.streams: dict[tuple[int, int], Stream] = {}
        self.losses: list[Loss] = []
        self._turns = 0

    def turn(self, sent: Sent) -> Turn | None:
        """An exchange with its answers; None for one of another format. Raises `FormatError`, `FileError`."""
        place = sent.exchange.place
        try:
            return self._turn(sent)
        except _Foreign as why:
            self.losses.append(Loss(f"{place}: {why}"))
            return None
        except (FormatError, FileError) as error:
            told = str(error).removeprefix(f"{self._path}, ")
            told = told if told.startswith(place) else f"{place}: {told}"
            if self._skip is None:
                raise FormatError(told) from error
            self._skip(FormatError(told))
            return None

    def _turn(self, sent: Sent) -> Turn:
        exchange = sent.exchange
        whole = read_whole(sent)
        if whole is not None:
            return self._as_turn(sent, [(whole, False)])
        if exchange.status >= _ERRORS:
            return self._kept(sent, [self._error(sent)])
        if exchange.why:
            raise FormatError(exchange.why)
        if not exchange.body.strip():
            why = "it has no answer" if exchange.status in OK else f"it has no answer, its status is {exchange.status}"
            return self._as_turn(sent, [], why)
        if exchange.is_torn and exchange.body.lstrip()[:1] == b"{" and not is_whole(exchange.body.decode(errors="replace")):
            return self._kept(sent, [self._torn(sent)], "its answer breaks off, and nothing of it is whole")
        return self._kept(sent, self._streams(sent))

    def _streams(self, sent: Sent) -> list[Stream]:
        """Raises `_Foreign` where what was answered looks like another format, or like none."""
        body, place = sent.exchange.body, sent.exchange.place
        try:
            first = next(read_all([body]), None)
        except FormatError as error:
            raise _Foreign(f"its answer is of no format that is known ({error})") from error
        if first is None:
            raise FormatError("its answer holds no event")
        try:
            return read_streams(self._path, sent.name, read_all([body]), place, self._skip)
        except (FormatError, FileError) as error:
            looks = _looks_like(first.data)
            if looks not in (None, sent.name) or (looks is None and is_whole(first.data) and "this is no" in str(error)):
                raise _Foreign(
                    f"its answer is not of the format {sent.name}, as its request is ({shown(first.data)})"
                ) from error
            raise

    def _error(self, sent: Sent) -> Stream:
        """A failed run, with the error as its provider told it, or as it came."""
        exchange = sent.exchange
        text = exchange.body.decode(errors="replace")
        error: JsonText = text if is_whole(text) else dump({"message": text[:_SHOWN].strip() or f"status {exchange.status}"})
        if exchange.error_type and error.lstrip().startswith("{"):
            error = f'{{"type":{dump(exchange.error_type)},{error.strip()[1:]}' if error.strip() != "{}" else error
        if is_whole(text) and not exchange.error_type:
            try:
                [stream] = read_streams(self._path, sent.name, read_all([exchange.body]), exchange.place)
            except (FormatError, FileError):
                pass
            else:
                if stream.checked.end.outcome == "failed":
                    return stream
                stream.close()
        stream = Stream(self._path, sent.name, exchange.place)
        stream.finish(error)
        return stream

    def _torn(self, sent: Sent) -> Stream:
        """A run of which nothing came that can be read."""
        stream = Stream(self._path, sent.name, sent.exchange.place)
        stream.finish()
        return stream

    def _kept(self, sent: Sent, streams: Sequence[Stream], *losses: str) -> Turn:
        for number, stream in enumerate(streams):
            self.streams[self._turns, number] = self._stack.enter_context(closing(stream))
        self.losses += [loss for stream in streams for loss in stream.losses]
        return self._as_turn(sent, [((_told(stream),), True) for stream in streams], *losses)

    def _as_turn(self, sent: Sent, answers: list[tuple[tuple[HistoryMessage, ...], bool]], *losses: str) -> Turn:
        self._turns += 1
        return Turn(sent, answers, tuple(Loss(f"{sent.exchange.place}: {why}") for why in losses))


class _Foreign(Exception):
    """An answer is of a format that nobody knows."""


def _told(stream: Stream) -> HistoryMessage:
    """What an answer says, to be known again where a request repeats it."""
    messages = stream.messages()
    blocks = tuple(block for message in messages for block in message.blocks)
    status: MessageStatus = "partial" if any(message.status == "partial" for message in messages) else "complete"
    ref = messages[-1].provider_ref if messages else None
    return HistoryMessage("assistant", blocks, status=status, provider_ref=ref, ends_run=stream.outcome)


def _looks_like(text: JsonText) -> str | None:
    try:
        return detect(text).name
    except FormatError:
        return None
