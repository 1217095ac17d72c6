"""Stops this process (SIGSTOP) at one of its statements, as a suspended machine or `docker pause` would."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from stream.sqlite import Database

_IDLE: Final = "PRAGMA data_version"


class Stopping:
    """Counts the statements of databases at their door, and stops this process before or after one of them.

    Where that would be within a transaction that writes, everybody else had to wait for it: unless it `may_hold` them up,
    it stops at the next statement behind it. `tell` hears first how it stands. Nothing is counted until it is `armed`.
    """

    def __init__(self, at: int, moment: str, tell: Callable[[bool], object], *, may_hold: bool) -> None:
        self.count, self.is_armed = 0, False
        self._at, self._moment, self._tell, self._may_hold = at, moment, tell, may_hold
        self._once = threading.Lock()  # statements come from several threads

    def watch(self, database: Database) -> None:
        plain = database._execute

        def counted(connection: sqlite3.Connection, text: str, parameters: Any = ()) -> list[Any]:
            if not self.is_armed or text == _IDLE:
                return plain(connection, text, parameters)
            self.count += 1
            if self._moment == "before":
                self._stop(connection)
            rows = plain(connection, text, parameters)
            if self._moment == "after":
                self._stop(connection)
            return rows

        database._execute = counted  # type: ignore[method-assign]

    def _stop(self, connection: sqlite3.Connection) -> None:
        if self._once.locked() or self.count < self._at:
            return
        writes = connection.in_transaction and not connection.execute("PRAGMA query_only").fetchone()[0]
        if writes and not self._may_hold:
            return
        if self._once.acquire(blocking=False):
            self._tell(writes)
            os.kill(os.getpid(), signal.SIGSTOP)


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
