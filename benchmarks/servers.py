"""A server as a process of its own, and what it takes: memory, CPU, and time to end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

_PATIENCE_S: Final = 60
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


class ServerProcess:
    """Runs `python -m COMMAND…` until the block ends; it says its address in the line that it prints first."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen([sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        _, _, self.port = line.strip().rpartition(":")
        if not self.port.isdecimal():
            raise RuntimeError(f"{command[0]} did not start: {line!r}")
        self._proc = Path(f"/proc/{self._process.pid}")

    def memory_bytes(self) -> int:
        """Resident, and its own alone."""
        rollup = (self._proc / "smaps_rollup").read_text(encoding="ascii")
        fields = dict(line.split(":", 1) for line in rollup.splitlines()[1:])
        return 1024 * sum(int(fields[name].split()[0]) for name in ("Private_Dirty", "Private_Clean"))

    def cpu_s(self) -> float:
        """Seconds of CPU so far, of all its threads."""
        fields = (self._proc / "stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S

    def stop(self) -> float:
        """Seconds from SIGTERM until it has ended."""
        began = time.perf_counter()
        self._process.terminate()
        self._process.wait(_PATIENCE_S)
        return time.perf_counter() - began

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
