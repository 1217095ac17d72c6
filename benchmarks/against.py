"""`python -m benchmarks.against CHECKOUT`: this tree against another checkout of it, by turns, in processes of their own.

Prints the ratios of CPU time and, with 1 ms slept in each trip to SQLite's threads, of wall time, ours to that of the other
checkout: the median of the rounds, the lowest and the highest. Then how many trips some operations make in both.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

_OURS: Final = Path(__file__).parents[1]
_SIDE: Final = Path(__file__).with_name("side.py")
_WHAT: Final = {
    "import": "importing the data",
    "anew": "a ledger of 10,000 messages written anew",
    "commit": "a commit of a run of 400 messages",
    "append": "10,000 appends by 100 writers",
    "agents": "100 agents with 50 deltas/s, less the pacing",
}
_ONLY_CPU: Final = ("append", "agents")


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.against", description=__doc__)
    parser.add_argument("checkout", type=Path, help="the other tree")
    parser.add_argument("--data", type=Path, help="a file or folder that is imported; without it, nothing is")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    sides = {"ours": _OURS, "theirs": options.checkout.resolve()}
    for task, what in _WHAT.items():
        if task != "import" or options.data is not None:
            for sleep_ms, of in ((0, "cpu"),) if task in _ONLY_CPU else ((0, "cpu"), (1, "wall")):
                ratios = compare(sides, task, str(options.data), sleep_ms, of, options.rounds)
                how = "CPU" if of == "cpu" else "wall, 1 ms a trip"
                spread = f"{min(ratios):.2f} … {max(ratios):.2f}"
                print(f"{what}, {how}: {statistics.median(ratios):.2f} ({spread})", flush=True)
    ours, theirs = (measure(side, "trips", "", 0) for side in sides.values())
    for name, count in ours.items():
        print(f"trips of {name}: {count:.0f} (theirs {theirs[name]:.0f})")


def compare(sides: dict[str, Path], task: str, argument: str, sleep_ms: float, of: str, rounds: int) -> list[float]:
    """Our figure by theirs, round by round; who begins changes."""
    ratios = []
    for number in range(rounds):
        order = list(sides) if number % 2 else list(reversed(sides))
        told = {name: measure(sides[name], task, argument, sleep_ms)[of] for name in order}
        ratios.append(told["ours"] / told["theirs"])
    return ratios


def measure(tree: Path, task: str, argument: str, sleep_ms: float) -> dict[str, float]:
    """What a task in `tree` says of itself."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        command = [sys.executable, "-P", str(_SIDE), task, folder, argument, str(sleep_ms)]
        done = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(tree)}, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{tree}: {done.stderr}")
    told: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return told


if __name__ == "__main__":
    main()
