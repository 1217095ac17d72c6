"""What processes were told, written down as it happens, and a small model that knows from it alone what must be true."""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from unittest.mock import patch

from ledger import catchup
from ledger.erasure import begin_erasure
from ledger.moment import look
from ledger.upkeep import erase as erasing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Iterator
    from pathlib import Path

    from projector import Message
    from stream import Event

NEVER: Final = 2**63
LOOKED: Final[ContextVar[dict[str, int] | None]] = ContextVar("looked", default=None)
"""When the call that is under way last began to look at the state of its conversation."""


class Call(NamedTuple):
    """One call of a process. `ended` is None where it never came back; times are of the clock that all processes share."""

    process: str
    name: str
    conversation: str
    what: dict[str, Any]
    begun: int
    ended: int | None
    answer: Any
    error: str | None
    died: int

    @property
    def is_done(self) -> bool:
        return self.ended is not None and self.error is None

    @property
    def latest(self) -> int:
        """When at the latest it did what it did."""
        return self.died if self.ended is None else self.ended


class Diary:
    """The calls of one life of a process, in a file of its own. What was written there outlives a SIGKILL."""

    def __init__(self, path: Path | str) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        self._number = 0

    async def call(self, name: str, conversation: str, work: Awaitable[Any], **what: Any) -> Any:
        """Does it, and notes before and after what was asked and answered; raises what it raises."""
        self._number += 1
        number = self._number
        looked: dict[str, int] = {}
        LOOKED.set(looked)
        self._write("begun", number, name, conversation, what)
        try:
            answer = await work
        except Exception as error:
            self._write("raised", number, f"{type(error).__name__}: {error}", looked)
            raise
        self._write("returned", number, answer if _is_plain(answer) else None, looked)
        return answer

    def note(self, name: str, conversation: str, **what: Any) -> None:
        """Something that takes no time."""
        self._number += 1
        self._write("begun", self._number, name, conversation, what)
        self._write("returned", self._number, None, {})

    def _write(self, *words: Any) -> None:
        os.write(self._file, json.dumps([time.monotonic_ns(), *words]).encode() + b"\n")


@contextmanager
def watched(diary: Diary) -> Iterator[None]:
    """Notes of every erasure when its intention was stored, and of every call when it last looked."""

    async def looked(*words: Any) -> Any:
        if (found := LOOKED.get()) is not None:
            found["at"] = time.monotonic_ns()
        return await look(*words)

    async def begun(tables: Any, conversation: str, *words: Any) -> None:
        outer = LOOKED.get()
        await diary.call("intend", conversation, begin_erasure(tables, conversation, *words))
        LOOKED.set(outer)

    with patch.object(catchup, "look", looked), patch.object(erasing, "begin_erasure", begun):
        yield


def end_diary(path: Path) -> None:
    """Notes that its process is dead now."""
    with path.open("ab") as file:
        file.write(b"\n" + json.dumps([time.monotonic_ns(), "died"]).encode() + b"\n")


def read_diary(path: Path) -> list[Call]:
    lines = []
    for line in path.read_bytes().splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:  # it was killed while it wrote
            continue
    died = next((at for at, what, *_ in lines if what == "died"), NEVER)
    calls: dict[int, Call] = {}
    for at, kind, *words in lines:
        if kind == "begun":
            number, name, conversation, what = words
            calls[number] = Call(path.stem, name, conversation, what, at, None, None, None, died)
        elif kind in {"returned", "raised"}:
            number, told, looked = words
            call = calls[number]
            what = {**call.what, "looked": looked.get("at", call.begun)}
            answer, error = (told, None) if kind == "returned" else (None, told)
            calls[number] = call._replace(ended=at, answer=answer, error=error, what=what)
    return list(calls.values())


def read_diaries(folder: Path) -> list[Call]:
    """All calls of all lives, in the order in which they began."""
    return sorted((call for path in folder.glob("*.diary") for call in read_diary(path)), key=lambda call: call.begun)


class Fate(NamedTuple):
    """What has to be true of a run: `texts` of its messages by id, whether it has to be there whole, and to be gone."""

    run_id: str
    texts: dict[str, str]
    lives: bool
    is_gone: bool
    why: str


class Told:
    """What was told of one conversation, and what follows from it. It knows no fold of ours, and reads no log."""

    def __init__(self, conversation: str, calls: Iterable[Call]) -> None:
        self.calls = [call for call in calls if call.conversation == conversation]
        self._intents = self.of("intend")
        self._erased = [call for call in self.of("erase") if call.is_done]

    def of(self, name: str) -> list[Call]:
        return [call for call in self.calls if call.name == name]

    def may_be_erased(self, since: int) -> bool:
        """Whether an erasure may have been asked for after a moment."""
        return any(call.latest > since for call in self._intents)

    def is_erased(self, before: int) -> bool:
        """Whether an erasure was asked for after that moment, and done."""
        return any(call.begun > before for call in self._erased)

    def fates(self) -> list[Fate]:
        """Of every run that was begun.

        One whose end was acknowledged lives, unless an erasure was stored after its writer had looked for the last time.
        """
        fates = []
        messages, ends = self.of("message"), {call.what["run"]: call for call in self.of("finish")}
        for begin in self.of("begin"):
            run_id, end = begin.what["run"], ends.get(begin.what["run"])
            said = [call for call in messages if call.what["run"] == run_id and call.is_done]
            texts = {call.answer: call.what["text"] for call in said}
            is_done = end is not None and end.is_done
            looked = end.what["looked"] if end is not None and is_done else 0
            last = end.latest if end is not None else max((call.latest for call in (begin, *said)), default=NEVER)
            lives = is_done and not self.may_be_erased(looked)
            fates.append(Fate(run_id, texts, lives, self.is_erased(last), f"{begin} … {end}"))
        return fates

    def check_known(self, run_ids: set[str]) -> list[str]:
        """Which runs are not known, though they were begun and nobody has erased them since."""
        begun = [call for call in self.of("begin") if call.is_done and not self.may_be_erased(call.what["looked"])]
        return [f"run {call.what['run']} is gone: {call}" for call in begun if call.what["run"] not in run_ids]

    def check_recorded(self, events: Iterable[Event], floor: int) -> list[str]:
        """Which events are not where they were acknowledged, though nobody has erased them since. `events` are all above."""
        there = {event.seq: event.data.decode() for event in events}
        wrong = []
        for call in self.of("record"):
            if call.is_done and call.answer > floor and there.get(call.answer) != call.what["data"]:
                wrong.append(f"event {call.answer} is {there.get(call.answer)}: {call}")
            if call.is_done and call.answer <= floor and not self.may_be_erased(call.begun) and not self.of("compact"):
                wrong.append(f"event {call.answer} is gone: {call}")
        return wrong

    def check_described(self, title: str | None) -> list[str]:
        """Whether the title is one that may be the last."""
        said = [call for call in self.of("describe") if call.error is None and not self.is_erased(call.latest)]
        may_be = {call.what["title"] for call in said if not any(other.is_done and other.begun > call.latest for other in said)}
        stays = any(call.is_done and not self.may_be_erased(call.begun) for call in said)
        if title not in may_be and (title is not None or stays):
            return [f"the title is {title!r}, and may be {may_be}: {[*map(str, said)]}"]
        return []

    def check_runs(self, transcript: list[Message]) -> list[str]:
        """What is not true of a transcript of all messages."""
        there: dict[str, dict[str, str]] = {}
        for message in transcript:
            there.setdefault(message.run_id or "", {})[message.id] = message.text
        wrong = []
        for fate in self.fates():
            found = there.get(fate.run_id, {})
            redacted = {call.what["message"]: call.what["text"] for call in self.of("redact")}
            if found and fate.is_gone:
                wrong.append(f"run {fate.run_id} was erased and is there: {fate.why}")
            if fate.lives and {*found} < {*fate.texts}:
                wrong.append(f"run {fate.run_id} was acknowledged and lacks {fate.texts.keys() - found.keys()}: {fate.why}")
            wrong += [
                f"message {message_id} says {found[message_id]!r}: {fate.why}"
                for message_id in found.keys() & fate.texts.keys()
                if found[message_id] not in {fate.texts[message_id], redacted.get(message_id)}
            ]
        return wrong


def _is_plain(answer: object) -> bool:
    return isinstance(answer, str | int | float | bool | list | dict | type(None)) and not hasattr(answer, "_fields")
