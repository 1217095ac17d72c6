"""Runs functions of a test in processes of their own, which begin at once: a server forks them, with all imported."""

from __future__ import annotations

import asyncio
import multiprocessing
import traceback
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from multiprocessing.connection import Connection

LIMIT_S: Final = 120
_PROCESSES: Final = multiprocessing.get_context("forkserver")


class Child:
    """A process that waits for `go`, then runs `function(*arguments)`, which is a coroutine function of a module."""

    def __init__(self, function: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any) -> None:
        _PROCESSES.set_forkserver_preload(["stream", "tests.faults.children"])
        self._pipe, theirs = _PROCESSES.Pipe()
        self._process = _PROCESSES.Process(target=_run, args=(theirs, function, arguments), daemon=True)
        self._process.start()
        theirs.close()
        assert self.hear() == "ready"

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def say(self, value: object) -> None:
        """What the child gets from `hear()`; the first thing said lets it go."""
        self._pipe.send(value)

    def hear(self) -> Any:
        """The next thing that the child says."""
        assert self._pipe.poll(LIMIT_S), "the child says nothing"
        return self._pipe.recv()

    def result(self) -> Any:
        """What the function returned; fails with its traceback if it raised."""
        outcome, value = self.hear()
        self.end()
        assert outcome == "returned", f"a child failed:\n{value}"
        return value

    def end(self) -> None:
        """Ends it, whatever it does."""
        self._process.kill()
        self._process.join()
        self._pipe.close()


class Parent:
    """The other end, for a function whose first argument it is."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def say(self, value: object) -> None:
        self._pipe.send(value)

    async def hear(self) -> Any:
        """Waits for the parent without holding up the loop."""
        return await asyncio.to_thread(self._pipe.recv)


def together(function: Callable[..., Coroutine[Any, Any, Any]], arguments: list[tuple[Any, ...]]) -> list[Any]:
    """Runs the function in a process for each tuple of arguments, all let go at once; gives what each returned."""
    children = [Child(function, *each) for each in arguments]
    try:
        for child in children:
            child.say("go")
        return [child.result() for child in children]
    finally:
        for child in children:
            child.end()


def alone(function: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any) -> Any:
    """Runs the function in a process of its own, for what would harm the others here: limits, signals."""
    return together(function, [arguments])[0]


def _run(pipe: Connection, function: Callable[..., Coroutine[Any, Any, Any]], arguments: tuple[Any, ...]) -> None:
    pipe.send("ready")
    pipe.recv()
    try:
        pipe.send(("returned", asyncio.run(function(Parent(pipe), *arguments))))
    except BaseException:  # noqa: BLE001 - it is the parent's
        pipe.send(("raised", traceback.format_exc()))
