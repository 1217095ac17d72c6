"""`python -m benchmarks`: runs the workloads, prints their ratios and the targets, and keeps a line of it.

A full run takes about twenty minutes and wants a quiet machine; `--smoke` only shows that everything runs. The line goes to
`--json FILE`, or without it and without `--smoke` to `benchmarks/history.jsonl`. Exit 2 if it can't be done.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.util
import logging
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_HISTORY: Final = Path(__file__).parent / "history.jsonl"
_NEEDED: Final = ("rich", "uvloop")
_WIDTH: Final = 180  # of tables that go to no terminal


def main(arguments: Sequence[str] | None = None) -> None:
    """Exits with 2 and a line that says why for options that don't fit."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(_refuse(f"{' and '.join(missing)} not installed: pip install 'tailfold[bench]'"))
    from benchmarks.workloads import WORKLOADS  # noqa: PLC0415 - needs what was just looked for

    parser = argparse.ArgumentParser("python -m benchmarks", description="Ratios of interleaved runs; no absolute claims.")
    parser.add_argument("--smoke", action="store_true", help="small sizes: shows that it runs, no figure to quote")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append the run to FILE, one JSON line")
    parser.add_argument("--plot", type=Path, metavar="DIR", help="draw PNGs into DIR")
    parser.add_argument("--only", nargs="+", choices=list(WORKLOADS), metavar="NAME", help=f"of {', '.join(WORKLOADS)}")
    parser.add_argument("--loop", choices=("uvloop", "asyncio"), help="only this event loop; else uvloop, appends on both")
    parser.add_argument("--folder", type=Path, help="where the databases are made, and removed: a real disk")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="recorded sessions for context, a folder a source")
    options = parser.parse_args(arguments)
    try:
        check(options)
    except ValueError as error:
        sys.exit(_refuse(str(error)))
    run(options)


def check(options: argparse.Namespace) -> None:
    """Raises `ValueError` for options that can't be carried out, before anything is measured."""
    from benchmarks.machine import IN_MEMORY, file_system  # noqa: PLC0415 - as above
    from benchmarks.workloads.sessions import SOURCES, sources_in  # noqa: PLC0415

    if options.folder is None:
        options.folder = Path(tempfile.gettempdir())
        if file_system(options.folder) in IN_MEMORY:
            options.folder = Path.cwd()
    if not options.folder.is_dir():
        raise ValueError(f"--folder {options.folder} is no folder: make it first")
    if file_system(options.folder) in IN_MEMORY:
        raise ValueError(f"--folder {options.folder} lies in memory, where a sync costs nothing: name one on a disk")
    if options.data is not None and not sources_in(options.data):
        raise ValueError(f"--data {options.data} holds no folder {' or '.join(SOURCES)}: name the one they lie in")
    if options.json is not None and not options.json.absolute().parent.is_dir():
        raise ValueError(f"--json {options.json}: its folder does not exist: make it first")
    if options.plot is not None and importlib.util.find_spec("matplotlib") is None:
        raise ValueError("--plot needs matplotlib: pip install 'tailfold[bench]'")
    if options.plot is not None and options.plot.exists() and not options.plot.is_dir():
        raise ValueError(f"--plot {options.plot} is a file: name a folder")


def run(options: argparse.Namespace) -> None:
    """Measures, prints and keeps what `options` ask for."""
    import structlog  # noqa: PLC0415 - as above
    from rich.console import Console  # noqa: PLC0415

    from benchmarks import machine, peers, plots, report  # noqa: PLC0415
    from benchmarks.measuring import LOOPS, Bench  # noqa: PLC0415
    from benchmarks.targets import judge  # noqa: PLC0415
    from benchmarks.workloads import WORKLOADS  # noqa: PLC0415

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    progress = Console(stderr=True)
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    for name in [name for name, version in peers.versions().items() if version is None]:
        progress.print(f"{name} is not installed and left out: pip install 'tailfold\\[bench]'")
    chosen = [name for name in WORKLOADS if options.only is None or name in options.only]
    sizes = {name: WORKLOADS[name].smoke if options.smoke else WORKLOADS[name].full for name in chosen}
    loops = LOOPS if options.loop is None else (options.loop,)
    figures = []
    with tempfile.TemporaryDirectory(prefix="tailfold-benchmarks-", dir=options.folder) as folder:
        for name in chosen:
            began = time.monotonic()
            figures += WORKLOADS[name].measure(Bench(Path(folder), loops, options.data), sizes[name])
            progress.print(f"{name}: {time.monotonic() - began:.0f} s")
    settings = {"loops": loops, "durability": "full", "smoke": options.smoke} | {
        name: size._asdict() for name, size in sizes.items()
    }
    date = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    found = machine.describe(options.folder)
    record = report.Record(date, machine.commit(), found, settings, figures, judge(figures))
    console.print(*report.tables(record))
    if options.smoke:
        console.print("Smoke sizes: none of this is a figure to quote.")
    if options.json is not None or not options.smoke:
        report.append_line(options.json or _HISTORY, record)
    if options.plot is not None:
        for path in plots.draw(record, options.plot):
            progress.print(f"drew {path}")


def _refuse(why: str) -> int:
    sys.stderr.write(f"benchmarks: {why}\n")
    return 2


if __name__ == "__main__":
    main()
