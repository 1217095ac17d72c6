"""PostgreSQL killed, stopped, or lost to its standby, and clients killed: what was acknowledged is there, once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import anyio
import pytest

from stream import NewEvent, open_store
from stream.testing.killing import Job, Record, kill_while
from tests.faults.postgres_load import Load
from tests.faults.sizes import size
from tests.postgres_server import PostgresServer, Shared, running

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.anyio, pytest.mark.heavy]


async def aside(function: Callable[[], None]) -> None:
    await anyio.to_thread.run_sync(function)


async def test_a_server_killed_in_the_middle_of_appends_loses_and_doubles_nothing(chance: random.Random) -> None:
    with running() as server:
        async with open_store(server.url()) as store, open_store(server.url()) as watching:
            load = Load(store, watching)
            async with load.running():
                for _ in range(size(smoke=2, full=6)):
                    await asyncio.sleep(chance.uniform(0.1, 1.0))
                    await aside(server.kill)
                    await aside(server.start)
                    await load.progress()
            await load.check(store)
    print(f"kill -9 of the server: {load}")


async def test_a_server_that_is_stopped_and_goes_on_is_waited_for() -> None:
    with running() as server:
        async with open_store(server.url()) as store, open_store(server.url()) as watching:
            load = Load(store, watching)
            async with load.running():
                for _ in range(size(smoke=2, full=5)):
                    with stopped(server):
                        await asyncio.sleep(1.5)
                    await load.progress()
            await load.check(store)
    assert not load.unknown
    print(f"SIGSTOP of the server: {load}")


@contextmanager
def stopped(server: PostgresServer) -> Iterator[None]:
    """All of its processes."""
    assert server.process is not None
    pids = [server.process.pid, *server._children()]
    send(pids, signal.SIGSTOP)
    try:
        yield
    finally:
        send(pids, signal.SIGCONT)


def send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # a backend whose client has gone
            os.kill(pid, number)


@contextmanager
def pair() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """A primary, and a standby that has all that was acknowledged."""
    standby = PostgresServer(None, "synchronous_commit=on")
    with running() as primary:
        try:
            host = ("-h", "127.0.0.1", "-p", str(primary.port), "-U", "tester")
            standby.run("pg_basebackup", *host, "-D", str(standby.data), "-c", "fast", "-X", "stream", "-R")
            standby.start()
            primary.run("psql", *host, "-d", "postgres", "-c", "ALTER SYSTEM SET synchronous_standby_names = '*'")
            primary.run("psql", *host, "-d", "postgres", "-c", "SELECT pg_reload_conf()")
            yield primary, standby
        finally:
            standby.remove()


async def promote(standby: PostgresServer) -> None:
    await standby.ask("SELECT pg_promote()")
    await standby.ask("ALTER SYSTEM RESET synchronous_standby_names")
    await standby.ask("SELECT pg_reload_conf()")


def both(primary: PostgresServer, standby: PostgresServer) -> str:
    hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
    return f"postgresql://tester@{hosts}/postgres?schema=tailfold&target_session_attrs=read-write"


async def test_a_standby_that_takes_over_has_all_that_was_acknowledged() -> None:
    with pair() as (primary, standby):
        url = both(primary, standby)
        async with open_store(url) as store, open_store(url) as watching:
            load = Load(store, watching)
            async with load.running():
                await asyncio.sleep(1)
                await aside(primary.kill)
                began = asyncio.get_running_loop().time()
                await promote(standby)
                promoted_s = asyncio.get_running_loop().time() - began
                await load.progress()
            await load.check(store)
    print(f"standby promoted in {promoted_s:.1f} s: {load}")


async def test_a_silent_first_host_does_not_hide_the_second_one() -> None:
    with pair() as (primary, standby):
        async with open_store(both(primary, standby)) as store:
            await store.append("s", [NewEvent("t", b"x")])
        with stopped(primary):
            await promote(standby)
            async with asyncio.timeout(25), open_store(both(primary, standby)) as store:
                await asyncio.gather(*(store.append("s", [NewEvent("t", b"y")]) for _ in range(20)))
                await asyncio.gather(*(store.bounds("s") for _ in range(20)))
                assert (await store.bounds("s")).head == 21


@pytest.mark.parametrize("job", ["all", "write", "many"])
async def test_what_a_killed_client_was_told_is_true(job: Job, chance: random.Random) -> None:
    """One schema lives through all rounds."""
    url, record = Shared.url(), Record()
    async with open_store(url):
        pass
    rounds = 0
    while rounds < size(smoke=4, full=30) or not record.acknowledged:
        rounds += 1
        seed, after_s = chance.randrange(2**32), chance.uniform(0, 1.0)
        record.add(await anyio.to_thread.run_sync(partial(kill_while, url, job, seed=seed, after_s=after_s)))
        if chance.random() < 0.33:
            continue
        async with open_store(url) as store:
            await record.check(store)
            await record.retry(store)
            await record.check(store)
    print(f"{job}: {rounds} kills, {record.acknowledged} acknowledgements, 0 lost")
