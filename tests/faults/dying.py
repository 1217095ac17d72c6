"""Kills processes between any two writes of an operation, and right after the last one."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Coroutine

    from stream.sqlite import Database

ROOT: Final = Path(__file__).parents[2]
WRITES: Final = re.compile(r"\b(INSERT|UPDATE|DELETE|COMMIT|VACUUM|wal_checkpoint)\b")


async def kill_everywhere(die: Callable[..., None], folder: Path, files: str, *arguments: str) -> int:
    """Runs `die(folder, files, *arguments)`, which calls `die_everywhere`, in a process without threads that may fork.

    Returns how many writes were made: before and after each a process was killed, the next one has survived.
    """
    program = f"import sys; from {die.__module__} import {die.__name__}; {die.__name__}(*sys.argv[1:])"
    command = [sys.executable, "-c", program, str(folder), files, *arguments]
    done = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.splitlines()[-1])


def die_everywhere(folder: str, files: str, live: Callable[[str, int], Coroutine[Any, Any, None]]) -> None:
    """Forks a life for each write: `live(folder, n)` dies after n of them. The one that survives is the last.

    `files` "copied": each has a copy of its own; "shared": all on one, so that what they leave piles up.
    """
    for at in itertools.count():
        copy = f"{folder}/{at if files == 'copied' else 'shared'}"
        if not os.path.exists(copy):  # noqa: PTH110 - no more than this is needed here
            shutil.copytree(f"{folder}/template", copy)
        process = os.fork()
        if not process:
            try:
                asyncio.run(live(copy, at))
            except BaseException:  # noqa: BLE001 - it must not go on as the parent
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        if code != -signal.SIGKILL:
            print(at - 1)
            sys.exit(code)


class Deadly:
    """Counts the writes to databases at their door for statements, and kills this process at one of them.

    Moment "before": when it is about to begin; "while": as soon as SQLite may have begun with it; "after": when it is
    done, before anybody hears of it.
    """

    def __init__(self, at: int, moment: str) -> None:
        self._left, self._moment = at, moment

    def watch(self, database: Database) -> None:
        plain = database._execute

        def counted(connection: sqlite3.Connection, text: str, parameters: Any = ()) -> list[Any]:
            if not WRITES.search(text):
                return plain(connection, text, parameters)
            if self._left == 0 or (self._left == 1 and self._moment == "before"):
                os.kill(os.getpid(), signal.SIGKILL)
            self._left -= 1
            if self._left == 0 and self._moment == "while":
                threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGKILL)).start()
            rows = plain(connection, text, parameters)
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return rows

        database._execute = counted  # type: ignore[method-assign]
