"""Every recorded stream, broken off behind any event and inside any: what came is kept, and what is exported is valid."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from ledger.transfer.file_import import open_source
from ledger.transfer.files import FileError
from projector import End, settle, transcript
from projector.events import RunStarted, to_event
from projector.formats import STREAMS, WRITERS
from projector.formats.recordings.transport import read_all
from projector.formats.registry import NAMED
from stream import Event
from tests.broken_histories import user
from tests.corpus_exchanges import events_of, load
from tests.corpus_readings import read_answers
from tests.corpus_streams import streams_of
from tests.faults.sizes import size
from tests.shared_data import needs_data, sources

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from projector import Message, State
    from stream import NewEvent
    from tests.corpus_answers import Answer
    from tests.corpus_streams import Streamed

pytestmark = [needs_data, pytest.mark.heavy]
OF_STREAMS: Final = ("agui-benchmark", "crewai", "openllmetry", "otel-contrib", "pydantic-ai", "vercel-ai")
STEP_BYTES: Final = 100
EVERY: Final = size(smoke=11, full=1)
FIRST: Final = 3
"""A stream is cut behind each of its first events, and then behind each eleventh in the smoke size."""
MOST: Final = size(smoke=5, full=1_000_000)
"""In the smoke size a stream is cut inside an event at so many places, spread over it."""
CHECKED: Final = {name: (write, check) for name, write in WRITERS.items() if (check := NAMED[name].check) is not None}


class Kept(NamedTuple):
    """What is kept of a stream: messages of the model, and how its run ended."""

    messages: tuple[Message, ...]
    outcome: str

    @property
    def text(self) -> str:
        return "".join(message.text for message in self.messages)

    @property
    def calls(self) -> list[tuple[str | None, str | None, object]]:
        blocks = [block for message in self.messages for block in message.blocks if block.kind == "tool_call" and block.sealed]
        return [(block.tool_call_id, block.name, block.input) for block in blocks]


def fold(state: State, event: NewEvent) -> State:
    return transcript.fold(state, Event("s", state.last_seq + 1, event.type, event.data, 0))


def cut_behind_events(streamed: Streamed) -> Iterator[tuple[int, Kept]]:
    """What is kept of a stream that ends behind its first events, each eleventh one and its last."""
    numbers = itertools.count(1)
    adapter = STREAMS[streamed.format]("r", lambda: f"r.{next(numbers)}")
    payloads = [payload for payload in read_all([streamed.data]) if load(payload.data) is not None]
    state = fold(transcript.initial, to_event(RunStarted("r", None, "submit", "r")))
    for count, payload in enumerate(payloads, 1):
        for body in adapter.feed(payload.data):
            state = fold(state, to_event(body))
        if count <= FIRST or count % EVERY == 0 or count == len(payloads):
            end = adapter.end()
            settled = settle(state.open["r"], End(end.outcome, state.last_seq + 1, 0))
            yield count, Kept((*settled.path, *settled.off), end.outcome)


def cut_at(streamed: Streamed, length: int, folder: Path) -> Kept | None:
    """What `import` keeps of the first bytes of a stream; None where it says that they hold nothing."""
    path = folder / "cut"
    path.write_bytes(streamed.data[:length])
    with ExitStack() as stack:
        try:
            [recorded] = open_source(stack, path, "cut", streamed.format).recorded
        except FileError:
            return None
        state = transcript.initial
        for event, media in recorded.answers[-1].run_of("r", None):
            state = state if media is not None else fold(state, event)
    run = state.ended.get("r")
    assert run is not None
    return Kept(tuple(message for message in state.all_messages() if message.role == "assistant"), run.end.outcome)


def answered(streamed: Streamed, length: int | None = None) -> list[Answer]:
    """What the first bytes of a stream say, by a reading of its own; of several choices the first."""
    values, _ = events_of(streamed.data[:length])
    return [answer for answer in read_answers(streamed.format, values) if answer.choice == 0]


def has_wrong_line(streamed: Streamed) -> bool:
    """Whether there is a line which is no event, for which a whole stream is refused."""
    return any(load(line) is None for line in streamed.data.decode().splitlines() if line.startswith("{"))


def check_kept(kept: Kept, answers: Sequence[Answer], whole: Kept, where: str) -> None:
    """All that came is kept, nothing else, and a run is whole only if its answers are."""
    assert whole.text.startswith(kept.text), where
    assert [call for call in kept.calls if call not in whole.calls] == [], where
    if answers:  # of protocols of interfaces there is no such reading
        assert kept.text == "".join(answer.text for answer in answers), where
        if not answers[-1].is_whole:
            assert kept.outcome in ("incomplete", "failed"), where


def check_exports(kept: Kept, where: str) -> None:
    """Every format takes it as it is, and when the conversation goes on."""
    for name, (write, check) in CHECKED.items():
        for messages in ([user("u", "do it"), *kept.messages], [user("u", "do it"), *kept.messages, user("u2", "go on")]):
            assert check(write(messages).payload) == [], f"{where}, as {name}"


@pytest.mark.parametrize("source", OF_STREAMS)
def test_a_stream_that_breaks_off_behind_an_event_is_kept_so_far(source: str) -> None:
    count = 0
    for streamed in streams_of(source):
        cuts = list(cut_behind_events(streamed))
        values, _ = events_of(streamed.data)
        for at, kept in cuts:
            where = f"{streamed.name}, {streamed.format}, cut behind event {at}"
            said = [answer for answer in read_answers(streamed.format, values[:at]) if answer.choice == 0]
            check_kept(kept, said, cuts[-1][1], where)
            check_exports(kept, where)
        count += len(cuts)
    assert count > 1, source


@pytest.mark.parametrize("source", OF_STREAMS)
def test_a_stream_that_breaks_off_anywhere_is_imported_so_far(source: str, tmp_path: Path) -> None:
    for streamed in streams_of(source):
        whole = cut_at(streamed, len(streamed.data), tmp_path)
        if whole is None:
            assert has_wrong_line(streamed), streamed.name
            continue
        places = range(STEP_BYTES, len(streamed.data), max(STEP_BYTES, len(streamed.data) // MOST))
        for length in places:
            where = f"{streamed.name}, {streamed.format}, cut at byte {length}"
            kept = cut_at(streamed, length, tmp_path)
            if kept is None:
                assert not answered(streamed, length), where
            else:
                check_kept(kept, answered(streamed, length), whole, where)
                check_exports(kept, where)


def test_every_source_with_streams_is_cut() -> None:
    assert [source for source in sources() if next(streams_of(source), None) is not None] == list(OF_STREAMS)
