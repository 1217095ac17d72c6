"""Faults on purpose, for any store: calls that fail, come late or are cancelled, signals that are lost, odd clocks."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from unittest import mock

from stream.errors import StoreBusy

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine, Generator, Iterator
    from typing import Self

    from stream.store import EventStore

T = TypeVar("T")
_DISTURBED: Final = {
    "append",
    "adopt",
    "read",
    "bounds",
    "producer",
    "truncate",
    "delete",
    "wait",
    "wait_any",
    "changes",
    "save",
    "load",
    "list",
}


class InjectedFault(StoreBusy):
    """A failure that was asked for. It says nothing of whether the call had an effect."""


def disturb(store: EventStore, chance: random.Random, *, failing: float = 0.0, late: float = 0.0) -> EventStore:
    """The same store and its snapshots, with calls that fail before they do anything, fail after they did it, or take a while.

    `failing` is the share of calls that raise `InjectedFault`, half of them before and half after; `late` is the share
    that lets others run first.
    """
    return cast("EventStore", _Disturbed(store, chance, failing, late))


class _Disturbed:
    def __init__(self, store: object, chance: random.Random, failing: float, late: float) -> None:
        self._store, self._chance, self._failing, self._late = store, chance, failing, late

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name == "snapshots":
            return _Disturbed(found, self._chance, self._failing, self._late)
        return self._disturb(found) if name in _DISTURBED else found

    def _disturb(self, call: Callable[..., Coroutine[Any, Any, T]]) -> Callable[..., Coroutine[Any, Any, T]]:
        async def disturbed(*words: Any, **options: Any) -> T:
            while self._chance.random() < self._late:
                await asyncio.sleep(0)
            fails, before = self._chance.random() < self._failing, self._chance.random() < 0.5
            if fails and before:
                raise InjectedFault("this was to fail before it began")
            result = await call(*words, **options)
            if fails:
                raise InjectedFault("this was to fail after it was done")
            return result

        return disturbed


async def cancel_after(steps: int, call: Coroutine[Any, Any, T]) -> T | None:
    """Runs a call for so many turns of the event loop and cancels it then; None if it was cancelled.

    With all numbers of steps from 0 on, a call is cancelled at every point where it awaits.
    """
    task = asyncio.ensure_future(call)
    for _ in range(steps):
        if task.done():
            break
        await asyncio.sleep(0)
    task.cancel()
    try:
        return await task
    except asyncio.CancelledError:
        return None


class Held:
    """A call that is held up at the point where it waits for the nth time, until it may `go_on`; others run meanwhile.

    With all numbers of steps from 0 on, a call is held up before it begins and at every point where it awaits, as that
    of a process that is stopped there. One that has fewer is over when the block begins.
    """

    def __init__(self, call: Coroutine[Any, Any, object], steps: int) -> None:
        self._call, self._left = call, steps
        self._held, self._may_go_on = asyncio.Event(), asyncio.Event()

    async def __aenter__(self) -> Self:
        self._task = asyncio.ensure_future(self._run())
        self._task.add_done_callback(lambda _: self._held.set())
        await self._held.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._may_go_on.set()
        await asyncio.wait([self._task])

    async def go_on(self) -> BaseException | None:
        """Lets it come to its end; returns what it raised."""
        self._may_go_on.set()
        await asyncio.wait([self._task])
        return self._task.exception()

    async def _run(self) -> None:
        await self

    def __await__(self) -> Generator[Any, None, None]:
        steps = self._call.__await__()
        error: BaseException | None = None
        while True:
            if self._left == 0:
                self._held.set()
                yield from self._may_go_on.wait().__await__()
            self._left -= 1
            try:
                waited_for = next(steps) if error is None else self._call.throw(error)
            except StopIteration:
                return
            try:
                error = None
                yield waited_for
            except BaseException as raised:  # noqa: BLE001 - it is the call's
                error = raised


@contextmanager
def lost_wakeups(*, wait_s: float = 0.05) -> Iterator[None]:
    """Loses every signal of stores that are built on `stream.wakeups`; who waits looks again after `wait_s`."""
    lost = mock.patch.multiple("stream.wakeups.Wakeups", wake=_do_nothing, wake_all=_do_nothing)
    with lost, mock.patch("stream.wakeups.MAX_WAIT_S", wait_s):
        yield


def backwards_clock(*, begin_ms: int = 1_700_000_000_000, step_ms: int = 3_600_000) -> Callable[[], int]:
    """A clock that goes an hour back at each look."""
    ticks = itertools.count(begin_ms, -step_ms)
    return lambda: next(ticks)


def _do_nothing(*_: object) -> None:
    pass
