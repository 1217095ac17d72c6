"""`tailfold serve` with a thousand followers that wait and two hundred that get what comes, against a bare echo.

The echo is Starlette and uvicorn with nothing behind them. Both are processes of their own, begun anew each round, and
so are the clients, which are the same for both. First the followers that wait, each on a stream of its own: memory, and
CPU while nothing happens. Then the others, first ten to a stream (`few`), then all of one stream, and appends over HTTP to
each of the streams in turn: how long from the request until the event is with its followers, and CPU a delivered event, in
which the append and the request are counted. Then a thousand followers of one stream, to which another process
appends: CPU a delivered event, how long its appends take beside how long they take with one follower, and the time from
SIGTERM until the server has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import statistics
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from benchmarks.followers import STAMP, Followers, Sending
from benchmarks.measuring import compare, loop_factory, percentile, summarize
from benchmarks.servers import ServerProcess
from stream import NewEvent, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.measuring import Bench, Figure


class Sizes(NamedTuple):
    """Followers that wait, those that get something, posts and how many a second; appends of another process; rounds."""

    idle: int
    active: int
    posts: int
    posts_per_s: float
    appends: int
    appends_per_s: float
    idle_s: float
    rounds: int


FULL: Final = Sizes(1000, 200, 1000, 100, 100, 10, 5.0, 3)
SMOKE: Final = Sizes(50, 20, 40, 40, 10, 10, 0.5, 1)
_TOGETHER: Final = 10  # active followers of a stream; and so many times fewer posts where all follow one
_WARM_UP: Final = 20
_ALLOWED_BYTES: Final = 50_000
_ALLOWED_TIMES: Final = 5
_TYPE: Final = "bench.tick"
_DATA: Final = f'{{{STAMP},"text":"{"so it goes on " * 8}"}}'
_PATIENCE_S: Final = 120
Round = dict[str, float]


def measure(bench: Bench, sizes: Sizes) -> list[Figure]:
    """`following.memory`, `.latency`, `.cpu`, `.latency.few`, `.cpu.few`, `.fan_out`, `.append`, `.shutdown`.

    Nothing where the system does not tell the memory of a process.
    """
    if not Path("/proc/self/smaps_rollup").exists():
        return []
    path = bench.folder / "following.db"
    ours = _Side(["ledger.admin", "--data", str(path), "serve", "--port", "0"], "/v1/conversations/{}/events", True)
    echo = _Side(["benchmarks.echo"], "/{}", False)
    bench.run(_fill(path, sizes))
    found: dict[str, list[Round]] = defaultdict(list)
    for number in range(sizes.rounds):
        for name, side in (("ours", ours), ("echo", echo)):
            found[name].append(_wait(side, sizes, number) | _fan_out(side, path, sizes, number))
    return list(_figures(found["ours"], found["echo"], sizes))


def _figures(ours: list[Round], echo: list[Round], sizes: Sizes) -> Iterator[Figure]:
    def of(name: str, rounds: list[Round]) -> list[float]:
        return [each[name] for each in rounds]

    def median(name: str, rounds: list[Round], by: float = 1) -> float:
        return by * statistics.median(of(name, rounds))

    kb = {"kB": median("memory", ours, 0.001), "echo_kB": median("memory", echo, 0.001)}
    idle = {"idle_cpu_percent": median("idle", ours, 100), "echo_idle_cpu_percent": median("idle", echo, 100)}
    per = "the echo's"
    waiting, active, together = f"{sizes.idle:,} waiting", f"{sizes.active:,} active", f"{sizes.idle:,} of one stream"
    yield compare("following.memory", f"{waiting}: memory", f"{per}, and 50 kB", of("memory", ours),
                  [each + _ALLOWED_BYTES for each in of("memory", echo)], kb | idle)  # fmt: skip
    for name, suffix, what in (("active", "", active), ("few", ".few", f"{active}, {_TOGETHER} of a stream")):
        allowed_ms = [
            mine[f"{name}_post"] + _ALLOWED_TIMES * its[f"{name}_arrival"] for mine, its in zip(ours, echo, strict=True)
        ]
        ms = {
            f"{side}{what}_p99_ms": median(f"{name}_{what}", rounds)
            for side, rounds in (("", ours), ("echo_", echo))
            for what in ("arrival", "post")
        }
        us = {"us": median(f"{name}_cpu", ours, 1e6), "echo_us": median(f"{name}_cpu", echo, 1e6)}
        yield compare(f"following.latency{suffix}", f"{what}: p99 from append to client", "of the append, and 5 of the echo's",
                      of(f"{name}_arrival", ours), allowed_ms, ms)  # fmt: skip
        yield compare(
            f"following.cpu{suffix}", f"{what}: CPU an event", per, of(f"{name}_cpu", ours), of(f"{name}_cpu", echo), us
        )
    yield from [
        compare("following.fan_out", f"{together}: CPU an event", per, of("fan_out", ours), of("fan_out", echo),
                {"us": median("fan_out", ours, 1e6), "echo_us": median("fan_out", echo, 1e6)}),
        compare("following.append", f"{together}: p50 of another's append", "with one", of("append", ours),
                of("append_with_one", ours), {"ms": median("append", ours), "arrival_p99_ms": median("together", ours)}),
        summarize("following.shutdown", f"{together}: end of the server", "a second", of("shutdown", ours),
                  {"echo_s": median("shutdown", echo)}),
    ]  # fmt: skip


class _Side(NamedTuple):
    command: Sequence[str]
    path: str
    is_json: bool

    def paths(self, kind: str, count: int) -> list[str]:
        return [self.path.format(f"{kind}-{number}") for number in range(count)]

    def sending(self, paths: Sequence[str], count: int, per_s: float) -> Sending:
        body = f'[{{"type":"{_TYPE}","data":{_DATA}}}]' if self.is_json else f"id: 1\nevent: {_TYPE}\ndata: {_DATA}\n\n"
        return Sending(paths, body, count, per_s, self.is_json)


def _wait(side: _Side, sizes: Sizes, number: int) -> Round:
    """Those that wait and those that get something, on one server."""
    with ServerProcess(side.command) as server, Followers(server.port) as followers:
        warm = side.paths(f"warm-{number}", 1)
        followers.follow(warm)
        followers.send(side.sending(warm, _WARM_UP, sizes.posts_per_s), _WARM_UP)
        before = server.memory_bytes()
        followers.follow(side.paths("idle", sizes.idle))
        memory = (server.memory_bytes() - before) / sizes.idle
        began, cpu = time.perf_counter(), server.cpu_s()
        time.sleep(sizes.idle_s)
        idle = (server.cpu_s() - cpu) / (time.perf_counter() - began)
        told = {"memory": memory, "idle": idle}
        for name, streams, slower in (("few", sizes.active // _TOGETHER, 1), ("active", 1, _TOGETHER)):
            together = sizes.active // streams
            paths, per_s, posts = side.paths(f"{name}-{number}", streams), sizes.posts_per_s / slower, sizes.posts // slower
            followers.follow(paths * together)
            followers.send(side.sending(paths, _WARM_UP, per_s), _WARM_UP * together)
            cpu = server.cpu_s()
            sent = followers.send(side.sending(paths, posts, per_s), posts * together)
            told |= {
                f"{name}_cpu": (server.cpu_s() - cpu) / (posts * together),
                f"{name}_arrival": percentile(sent.arrivals_ms, 99),
                f"{name}_post": percentile(sent.posts_ms, 99),
            }
        return told


def _fan_out(side: _Side, path: Path, sizes: Sizes, number: int) -> Round:
    """All follow one stream; ours is appended to by another process."""
    alone, together = f"alone-{number}", f"together-{number}"
    with ServerProcess(side.command) as server, Followers(server.port) as followers:
        followers.follow([side.path.format(alone)])
        with _appending(path, alone, sizes) if side.is_json else contextlib.nullcontext([1.0]) as with_one:
            pass
        followers.follow([side.path.format(together)] * sizes.idle)
        delivered = sizes.appends * sizes.idle
        cpu = server.cpu_s()
        if side.is_json:
            with followers.expecting(delivered) as told, _appending(path, together, sizes) as appends:
                pass
        else:
            sending = side.sending([side.path.format(together)], sizes.appends, sizes.appends_per_s)
            told = followers.send(sending, delivered)
            appends = told.posts_ms
        cpu = server.cpu_s() - cpu
        return {
            "fan_out": cpu / delivered,
            "together": percentile(told.arrivals_ms, 99),
            "append": statistics.median(appends),
            "append_with_one": statistics.median(with_one),
            "shutdown": server.stop(),
        }


@contextlib.contextmanager
def _appending(path: Path, name: str, sizes: Sizes) -> Iterator[list[float]]:
    """A process of its own appends; gives how many milliseconds each append took, filled when the block is left."""
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    took_ms: list[float] = []
    child = context.Process(target=_append, args=(str(path), name, sizes.appends, sizes.appends_per_s, results))
    child.start()
    try:
        yield took_ms
        child.join(_PATIENCE_S)
        if child.exitcode != 0:
            raise RuntimeError(f"the process that appends ended with {child.exitcode}")
        took_ms += results.get()
    finally:
        child.kill()


def _append(path: str, name: str, count: int, per_s: float, results: Any) -> None:
    async def main() -> list[float]:
        took_ms = []
        async with open_store(path, create=False) as store:
            await store.append("elsewhere", [NewEvent(_TYPE, b"{}")])  # warms up
            began = time.perf_counter()
            for number in range(count):
                await asyncio.sleep(max(0.0, began + number / per_s - time.perf_counter()))
                at = time.monotonic_ns()
                await store.append(name, [NewEvent(_TYPE, (_DATA % at).encode())])
                took_ms.append((time.monotonic_ns() - at) / 1e6)
        return took_ms

    with asyncio.Runner(loop_factory=loop_factory("uvloop")) as runner:
        results.put(runner.run(main()))


async def _fill(path: Path, sizes: Sizes) -> None:
    """Each stream has an event, so that it is one."""
    names = [f"idle-{number}" for number in range(sizes.idle)]
    for number in range(sizes.rounds):
        names += [f"warm-{number}-0", f"alone-{number}", f"together-{number}", f"active-{number}-0"]
        names += [f"few-{number}-{stream}" for stream in range(sizes.active // _TOGETHER)]
    async with open_store(str(path)) as store:
        await asyncio.gather(*(store.append(name, [NewEvent(_TYPE, b"{}")]) for name in names))
