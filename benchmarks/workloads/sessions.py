"""Sessions of agents that use tools: those of a folder of public data, or made up; and their messages by the fold alone."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Final

from benchmarks.workloads.turns import call_id, turn
from projector import transcript
from projector.context.retention import POLICY
from projector.events import to_event
from projector.formats.recordings.documents import read_document
from projector.formats.shared.history import History, HistoryMessage, call_block, result_draft, runs_of, text_block, text_parts
from projector.json_text import dump
from stream import Event

if TYPE_CHECKING:
    from pathlib import Path

    from projector import Message

SOURCES: Final = {"pi-mono": "pi", "tau-bench": "tau-bench"}
"""Folders of the data that hold such sessions, and their formats."""
TURN: Final = 4
"""Messages of a turn that is made up."""
_REPEATED: Final = 8
_ADDED: Final = ((None, 60), (2, 240))
"""What a plugin adds to each question: for how many of them it is kept, and its length in characters."""


def sources_in(folder: Path) -> list[str]:
    """Those that the folder has."""
    return [source for source in SOURCES if (folder / source).is_dir()]


def files_of(folder: Path) -> list[Path]:
    """Its sessions."""
    return [path for path in sorted(folder.iterdir()) if path.name.removesuffix(".gz").endswith((".json", ".jsonl"))]


def read(folder: Path, source: str) -> list[list[Message]]:
    """The messages of every session of a source."""
    return [
        fold(history, f"{path.name}-{number}")
        for path in files_of(folder / source)
        for number, history in enumerate(read_document(_text(path), SOURCES[source]))
    ]


def make(turns: int, first: int = 0) -> History:
    """A session of so many turns: asked, a call, its result, an answer. Every eighth turn says an older one again."""
    drafts: list[HistoryMessage] = []
    for number in range(first, first + turns):
        spoken = turn(number - _REPEATED + 1 if number % _REPEATED == _REPEATED - 1 else number)
        keeps = [None, *(keep for keep, _ in _ADDED)]
        added = [text_block(spoken.result[:length]) for _, length in _ADDED]
        call = call_block(spoken.tool, call_id(number), "".join(spoken.arguments), is_json=True)
        drafts += [
            HistoryMessage("user", (text_block(spoken.asked), *added), metadata={POLICY: dump(keeps)}),
            HistoryMessage("assistant", (text_block("".join(spoken.said)), call)),
            result_draft(call_id(number), text_parts(spoken.result)),
            HistoryMessage("assistant", (text_block("".join(spoken.answered)),)),
        ]
    return History(tuple(drafts))


def fold(history: History, name: str) -> list[Message]:
    """Its messages, in order; `name` gives their ids."""
    state = transcript.initial
    bodies = (body for run in runs_of(history, name) for body in run.bodies)
    for seq, event in enumerate(map(to_event, bodies), 1):
        state = transcript.fold(state, Event(name, seq, event.type, event.data, at=0))
    assert not list(state.anomalies)
    return state.all_messages()


def _text(path: Path) -> str:
    held = path.read_bytes()
    return (gzip.decompress(held) if path.suffix == ".gz" else held).decode()
