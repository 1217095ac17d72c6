"""Says where and on what a run was made, so that its line in the history can be judged later."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from benchmarks import peers

ROOT: Final = Path(__file__).parents[1]
IN_MEMORY: Final = frozenset({"tmpfs", "ramfs", "devtmpfs"})
UNKNOWN: Final = "unknown"


class Machine(msgspec.Struct, frozen=True):
    """What speed depends on. `default_synchronous` is what a peer gets that sets nothing: 2 is FULL."""

    cpu: str
    cores: int
    python: str
    sqlite: str
    default_synchronous: int
    system: str
    file_system: str
    peers: dict[str, str | None]


def describe(folder: Path) -> Machine:
    """This machine, with the file system of `folder`."""
    return Machine(
        cpu=_cpu(),
        cores=os.cpu_count() or 0,
        python=platform.python_version(),
        sqlite=sqlite3.sqlite_version,
        default_synchronous=_default_synchronous(folder),
        system=platform.platform(),
        file_system=file_system(folder),
        peers=peers.versions(),
    )


def file_system(folder: Path, mounts: str | None = None) -> str:
    """The kind of file system a folder lies on, by the table of mounts; `unknown` where there is none."""
    if mounts is None:
        table = Path("/proc/mounts")
        mounts = table.read_text(encoding="utf-8") if table.exists() else ""
    best, kind = -1, UNKNOWN
    for line in mounts.splitlines():
        place, found = line.split()[1:3]
        point = Path(place.replace("\\040", " "))
        if folder.resolve().is_relative_to(point) and len(point.parts) >= best:  # the last mount on a place counts
            best, kind = len(point.parts), found
    return kind


def commit() -> str:
    """The commit this runs from, with `+` if the working copy differs from it."""
    try:
        known = _git("rev-parse", "--short", "HEAD")
        return known + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return UNKNOWN


def _default_synchronous(folder: Path) -> int:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        connection = sqlite3.connect(Path(place) / "fresh.db")
        connection.execute("PRAGMA journal_mode = WAL")
        [(level,)] = connection.execute("PRAGMA synchronous").fetchall()
        connection.close()
    return int(level)


def _git(*arguments: str) -> str:
    return subprocess.run(("git", *arguments), cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or UNKNOWN
