"""What processes ask for and are told, written down as it happens, and read again when they are dead."""

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
    from collections.abc import Awaitable, Iterator
    from pathlib import Path

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
    def may_be_done(self) -> bool:
        """A store that was busy says nothing of what came of it."""
        return self.error is None or self.error.startswith("StoreBusy")

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


def _is_plain(answer: object) -> bool:
    return isinstance(answer, str | int | float | bool | list | dict | type(None)) and not hasattr(answer, "_fields")
