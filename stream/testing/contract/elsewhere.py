"""Cases of a store that is used where it was not opened: in another event loop, and in a process that was forked."""

from __future__ import annotations

import asyncio
import os
import sys
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import anyio

from stream import AppendResult, Event, NewEvent, Snapshot, StreamError, follow
from stream.testing.case import case

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from stream import EventStore

_AT_ONCE_S: Final = 2.0


async def _append(store: EventStore) -> int:
    return (await store.append("s", [NewEvent("t", b"elsewhere")])).last_seq


async def _follow(store: EventStore) -> Event | None:
    async for event in follow(store, "s"):
        return event
    return None


async def _list(store: EventStore) -> list[str]:
    return [info.stream_id async for info in store.streams()]


_CALLS: Final[tuple[Callable[[EventStore], Awaitable[object]], ...]] = (
    lambda store: store.read("s"),
    lambda store: store.bounds("s"),
    lambda store: store.producer("s", "p"),
    lambda store: store.wait("s", after=0),
    lambda store: store.wait("s", after=100),
    _follow,
    _list,
    lambda store: store.snapshots.save(Snapshot("s", "p", 1, 1, 0, b"state")),
    lambda store: store.snapshots.load("s", "p"),
    lambda store: store.snapshots.list("s"),
    lambda store: store.snapshots.delete("s", "q"),
    lambda store: store.truncate("s", through=0),
)


async def _use(store: EventStore) -> list[int]:
    """The numbers of what was appended here: every call is answered, or refused by an error of the log, at once."""
    appended = []
    for call in (_append, *_CALLS, _append):
        with anyio.fail_after(_AT_ONCE_S), suppress(StreamError):
            told = await call(store)
            if call is _append:
                assert isinstance(told, int)
                appended.append(told)
    return appended


def _use_in_a_loop_of_its_own(store: EventStore) -> str:
    """What was appended, or what went wrong."""
    try:
        return "appended" + "".join(f" {seq}" for seq in asyncio.run(_use(store)))
    except BaseException as error:  # noqa: BLE001 - told to the one who looks
        return f"{type(error).__name__}: {error}"


def _use_in_a_child(store: EventStore) -> str:
    """As `_use_in_a_loop_of_its_own`, in a process that is forked."""
    out, into = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads: that is what it is about
        child = os.fork()
    if child == 0:
        asyncio.events._set_running_loop(None)  # noqa: SLF001 - as a process does that multiprocessing forks
        os.write(into, _use_in_a_loop_of_its_own(store).encode())
        os._exit(0)
    os.close(into)
    told = b""
    while part := os.read(out, 4096):
        told += part
    os.close(out)
    os.waitpid(child, 0)
    return told.decode()


async def _lives_on(store: EventStore, told: str) -> None:
    """What was acknowledged elsewhere is there, and the store works where it was opened."""
    assert told.startswith("appended"), told
    acknowledged = [int(seq) for seq in told.split()[1:]]
    with anyio.fail_after(_AT_ONCE_S):
        events = await store.read("s")
        assert [event.seq for event in events if event.data == b"elsewhere"] == acknowledged
        head = len(events)
        assert await store.append("s", [NewEvent("t", b"after")]) == AppendResult(head + 1, head + 1)


@case(16)
async def in_another_loop_a_store_works_or_refuses_at_once(store: EventStore) -> None:
    """Its own loop goes on meanwhile, and afterwards the store lives on in it."""
    await store.append("s", [NewEvent("t", b"before")])
    await _lives_on(store, await asyncio.to_thread(_use_in_a_loop_of_its_own, store))


@case(16)
async def a_store_is_closed_where_it_was_opened_or_closed_for_all(store: EventStore) -> None:
    """One who closes it in another loop is refused at once, and then the store lives on."""
    await store.append("s", [NewEvent("t", b"before")])

    def close() -> str:
        try:
            asyncio.run(asyncio.wait_for(store.close(), _AT_ONCE_S))
        except StreamError:
            return "refused"
        except BaseException as error:  # noqa: BLE001 - told below
            return f"{type(error).__name__}: {error}"
        return "closed"

    told = await asyncio.to_thread(close)
    assert told in {"refused", "closed"}, told
    if told == "refused":
        await _lives_on(store, "appended")


@case(16)
async def in_a_forked_process_a_store_works_or_refuses_at_once(store: EventStore) -> None:
    """What its child was told is there, and the store lives on in the process that opened it."""
    if sys.platform == "win32":  # nothing forks there
        return
    await store.append("s", [NewEvent("t", b"before")])
    await _lives_on(store, _use_in_a_child(store))
