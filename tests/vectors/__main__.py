"""`python -m tests.vectors FOLDER`: 0 all hold, 1 some do not, 2 there is nothing to run."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from pathlib import Path

import structlog

from tests.vectors.engines import Engines
from tests.vectors.running import BadFileError, read_folder, run_case


def main(arguments: list[str]) -> int:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    if len(arguments) != 1:
        print("usage: python -m tests.vectors FOLDER", file=sys.stderr)
        return 2
    try:
        files = read_folder(Path(arguments[0]))
    except BadFileError as error:
        print(error, file=sys.stderr)
        return 2
    total: Counter[str] = Counter()
    for name, cases in files.items():
        counts: Counter[str] = Counter()
        for case in cases:
            with Engines.all():
                outcome = run_case(name.removesuffix(".json"), case)
            counts[outcome.verdict] += 1
            if outcome.verdict == "failed":
                print(_printable(f"{name}: {case['id']} failed: {outcome.why}"))
        print(f"{name}: {_line(counts)}")
        total += counts
    print(_line(total))
    return 1 if total["failed"] else 0


def _line(counts: Counter[str]) -> str:
    return f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped"


def _printable(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
