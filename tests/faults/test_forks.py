"""Whoever forks beside an open file loses nothing that was acknowledged: the child is refused, or what it was told is there."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import signal
import time
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from stream import NewEvent, StoreUnusable, open_store
from tests.faults.sizes import size

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.faults, pytest.mark.heavy]
FORKS: Final = size(smoke=6, full=51)
FIRST: Final = ("parent", "child", "killed parent")
CHILD_S: Final = 0.15


def write(path: str, name: str, told: int, stop_s: float) -> None:
    """Appends until the time is over, and tells the pipe what was acknowledged."""

    async def main() -> None:
        try:
            async with open_store(path) as store:
                end = time.monotonic() + stop_s
                while time.monotonic() < end:
                    last = (await store.append(name, [NewEvent("t", b"x" * 500)])).last_seq
                    os.write(told, f"{name} {last}\n".encode())
        except StoreUnusable as error:
            os.write(told, b"refused 0\n" if "forked" in str(error) else b"failed 1\n")

    asyncio.events._set_running_loop(None)
    asyncio.run(main())


def parent(path: str, told: int, how: str, first: str) -> None:
    """Opens, forks, and goes on; who closes or dies first is said by `first`."""

    async def main() -> None:
        async with open_store(path) as store:
            await store.append("parent", [NewEvent("t", b"x")])
            child_s = CHILD_S / 3 if first == "child" else CHILD_S
            if how == "os.fork":
                pid = os.fork()
                if pid == 0:
                    _become_child(path, told, child_s)
                wait: Any = partial(os.waitpid, pid, 0)
            else:
                process: Any = _processes(how).Process(target=_child, args=(path, child_s, _sendable(told, how)))
                process.start()
                wait = process.join
            end = time.monotonic() + (CHILD_S if first == "child" else CHILD_S / 3)
            while time.monotonic() < end:
                last = (await store.append("parent", [NewEvent("t", b"x" * 500)])).last_seq
                os.write(told, f"parent {last}\n".encode())
            if first == "killed parent":
                os.kill(os.getpid(), signal.SIGKILL)
        wait()

    warnings.simplefilter("ignore", DeprecationWarning)
    asyncio.run(main())


def _become_child(path: str, told: int, stop_s: float) -> None:
    try:
        write(path, "child", told, stop_s)
    finally:
        os._exit(0)


def _sendable(told: int, how: str) -> Any:
    from multiprocessing.reduction import DupFd  # noqa: PLC0415

    share: Any = DupFd
    return told if how == "fork" else share(told)


def _processes(how: str) -> Any:
    return multiprocessing.get_context(how)


def _child(path: str, stop_s: float, told: Any) -> None:
    write(path, "child", told if isinstance(told, int) else told.detach(), stop_s)


def _parent(path: str, told: Any, how: str, first: str) -> None:
    parent(path, told.detach(), how, first)


@pytest.mark.parametrize("how", ["os.fork", "fork", "forkserver"])
def test_what_was_acknowledged_beside_a_fork_is_there(how: str, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    refused = wrote = 0
    for number in range(FORKS // 3):
        path, first = str(tmp_path / f"{number}.db"), chance.choice(FIRST[:2] if how == "forkserver" else FIRST)
        out, into = os.pipe()
        # A new one: what this process has started of multiprocessing would not be its own.
        process = _processes("spawn").Process(target=_parent, args=(path, _sendable(into, "spawn"), how, first))
        process.start()
        os.close(into)
        with open(out, encoding="utf-8") as pipe:  # noqa: PTH123 - until the last of them has ended
            lines = [line.split() for line in pipe]
        process.join()
        assert process.exitcode == (-signal.SIGKILL if first == "killed parent" else 0)
        refused += ["refused", "0"] in lines
        wrote += any(name == "child" for name, _ in lines)
        acknowledged = {name: int(last) for name, last in lines if name != "refused"}
        assert acknowledged["parent"] > 1

        async def heads(path: str = path) -> dict[str, int]:
            async with open_store(path, create=False) as store:
                return {info.stream_id: info.head async for info in store.streams()}

        there = asyncio.run(heads())
        assert {name: there.get(name, 0) >= last for name, last in acknowledged.items()} == dict.fromkeys(acknowledged, True)
    assert (refused, wrote) == ((0, FORKS // 3) if how == "forkserver" else (FORKS // 3, 0))
