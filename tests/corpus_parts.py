"""The parts of a look at the public data: files, conversations in them, checks, and the answers that come with the data."""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from projector import transcript
from projector.events import ConversationCreated, to_event
from projector.formats.format import FormatError
from projector.formats.shared.history import runs_of
from projector.json_text import dump, raw
from projector.validation import validate
from stream import Event

if TYPE_CHECKING:
    from pathlib import Path

    from projector import Message
    from projector.events import Body
    from projector.formats.shared.history import History
    from stream import NewEvent

_ID_BYTES: Final = 200
_BESIDE: Final = ("LICENSE", "SOURCE.md", "README.md", "SHA256SUMS")


class Check(NamedTuple):
    """Something that must hold, and what was found where it does not."""

    what: str
    holds: bool
    found: str = ""


class Conversation(NamedTuple):
    """A conversation of a file as runs of events; `drafts` counts the messages that its reader gave."""

    name: str
    title: str | None
    metadata: dict[str, str]
    runs: list[list[Body]]
    drafts: int

    @classmethod
    def of(cls, history: History, known: str) -> Conversation:
        """A history; `known` is where it comes from, which gives its ids."""
        runs = [list(run.bodies) for run in runs_of(history, known)]
        return cls(known, history.title, history.metadata, runs, len(history.drafts))

    @staticmethod
    def run_id(known: str) -> str:
        return hashlib.sha256(known.encode("utf-8", "surrogatepass")).hexdigest()[:24]

    @property
    def id(self) -> str:
        """The name it has in the ledger; one that is too long is cut and told apart by its digest."""
        name = self.name.encode("utf-8", "replace")
        return (
            name.decode() if len(name) <= _ID_BYTES else f"{name[:_ID_BYTES].decode(errors='ignore')}-{self.run_id(self.name)}"
        )

    def appends(self) -> list[list[NewEvent]]:
        """Its events as they are recorded, one append a run."""
        fields = ",".join(f"{dump(name)}:{text}" for name, text in self.metadata.items())
        created = ConversationCreated(self.title, raw("{" + fields + "}" if fields else None))
        return [[to_event(created)], *([to_event(body) for body in run] for run in self.runs)]

    @property
    def messages(self) -> list[Message]:
        """Its messages by the fold alone. Raises where an event can't be applied."""
        events = [event for append in self.appends() for event in append]
        validate(events)
        state = transcript.initial
        for seq, event in enumerate(events, 1):
            state = transcript.fold(state, Event("s", seq, event.type, event.data, at=0))
        anomalies = list(state.anomalies)
        if anomalies:
            raise AssertionError(f"{self.name}: {anomalies[0]}")
        return state.all_messages()


class File:
    """A file of a source, and what became of it."""

    def __init__(self, root: Path, path: Path) -> None:
        self.path = path
        self.source = path.relative_to(root).parts[0]
        self.name = str(path.relative_to(root)).removesuffix(".gz")
        self.conversations: list[Conversation] = []
        self.refused: list[str] = []
        self.checks: list[Check] = []
        self.counts: Counter[str] = Counter()
        self.events = 0
        self.messages = 0

    @cached_property
    def data(self) -> bytes:
        return read_file(self.path)

    @cached_property
    def text(self) -> str:
        """Raises `FormatError` for what is no UTF-8."""
        try:
            return self.data.decode()
        except UnicodeDecodeError as error:
            raise FormatError(f"byte {error.start}: UTF-8 was expected ({error.reason})") from error

    def check(self, what: str, holds: bool, found: str = "") -> None:  # noqa: FBT001 - that is what it is told
        self.checks.append(Check(what, holds, found))


def read_file(path: Path) -> bytes:
    """The bytes of a file. Raises `FormatError` for a gz that ends early or is damaged."""
    held = path.read_bytes()
    if not path.name.endswith(".gz"):
        return held
    try:
        return gzip.decompress(held)
    except (EOFError, OSError, zlib.error) as error:
        raise FormatError(f"a whole gz file was expected ({error})") from error


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in _BESIDE)


def answers(readme: str) -> dict[str, dict[str, int]]:
    """What the README says of each source: how many of what, as in `3 files, 186 conv, 5,012 msg; 745 tool calls`."""
    found: dict[str, dict[str, int]] = {}
    for line in readme.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        counted = next((cell for cell in cells if re.match(r"[\d,]+ files?(,|$)", cell)), None)
        if len(cells) > 2 and counted is not None:
            pairs = re.findall(r"(?:^|[,;] )([\d,]+) ([^,;]+)", counted)
            found[cells[1]] = {what.strip(): int(number.replace(",", "")) for number, what in pairs}
    return found
