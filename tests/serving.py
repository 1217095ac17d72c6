"""`tailfold serve` as its users run it: a process of its own on a free port of loopback, killed and started again at will."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

START_S: Final = 30.0
_SERVING: Final = re.compile(rb"serving .* at (http://\S+:(\d+))")


class Served:
    """One server of one database. It keeps its port over a restart."""

    def __init__(self, database: Path | str, *options: str) -> None:
        self.database = str(database)
        self.options = options
        self.port = 0
        self.url = ""
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def pid(self) -> int:
        """Of the process that serves."""
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        """Returns when it takes connections."""
        command = [sys.executable, "-m", "ledger.admin", "--data", self.database, "serve", "--port", str(self.port)]
        self.process = subprocess.Popen(
            [*command, *self.options], stdout=subprocess.PIPE, env=os.environ | {"PYTHONUNBUFFERED": "1"}
        )
        said = _SERVING.search(self._read_line())
        if said is None:
            self.stop()
            raise RuntimeError(f"the server did not start: exit code {self.process.poll()}")
        self.url, self.port = said[1].decode(), int(said[2])

    def kill(self) -> None:
        """SIGKILL: nothing is finished, nothing is closed."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM, as an operator stops it; the exit code."""
        return self._end(signal.SIGTERM)

    def restart(self) -> None:
        """Kills it if it lives, and starts it again on the same file and port."""
        self.kill()
        self.start()

    def _end(self, number: signal.Signals) -> int:
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        try:
            return self.process.wait(timeout=START_S)
        finally:
            if self.process.stdout is not None:
                self.process.stdout.close()
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()

    def _read_line(self) -> bytes:
        assert self.process is not None
        assert self.process.stdout is not None
        said, until = b"", time.monotonic() + START_S
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in said and (left_s := until - time.monotonic()) > 0:
                if selector.select(left_s):
                    chunk = os.read(self.process.stdout.fileno(), 4096)
                    if not chunk:
                        break
                    said += chunk
        return said


@contextlib.contextmanager
def serve(database: Path | str, *options: str) -> Iterator[Served]:
    """A server of this database while the block lasts; `options` as on the command line."""
    served = Served(database, *options)
    try:
        yield served
    finally:
        served.kill()
