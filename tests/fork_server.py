"""Runs `tailfold` commands as processes that need no time to start: a server that has imported everything forks for each.

A command is a process as ever: its own arguments, folder, environment, standard streams, exit code, and the end of an
interpreter, where a resource that was left open becomes a warning on standard error. What a start itself does is left
to the tests that start one, and so is the end of the modules of others: to take them apart takes longer than a command.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import importlib
import io
import json
import os
import pkgutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NoReturn

import typer.main

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

ROOT: Final = Path(__file__).parents[1]
_NUMBER: Final = struct.Struct("!q")
_PATIENCE_S: Final = 300
_PACKAGES: Final = ("stream", "projector", "ledger")
_ENDED: Final = {*_PACKAGES, "tests", "__main__", "sys", "builtins", "threading", "warnings", "linecache", "tracemalloc"}
"""What an end takes apart, and what it needs for that."""


class ForkServer:
    """The side of the tests; the server starts with the first command."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, *words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """What `tailfold words…` printed and how it ended."""
        return self._ask(list(words), given)

    def run_each(self, commands: Sequence[Sequence[str]]) -> list[tuple[int, str, str]]:
        """Exit code, standard output and error of commands that are run one after the other in one process."""
        done = self._ask([list(words) for words in commands])
        assert done.returncode == 0, done.stderr
        return [(code, out, err) for code, out, err in json.loads(done.stdout)]

    def _ask(self, words: list[str] | list[list[str]], given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        request = json.dumps({"words": words, "folder": str(Path.cwd()), "environment": dict(os.environ)}).encode()
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            try:
                connection = self._connect()
                connection.settimeout(_PATIENCE_S)
                with _pipe(given) as stdin:
                    socket.send_fds(connection, [b"!"], [stdin.fileno(), stdout.fileno(), stderr.fileno()])
                connection.sendall(_NUMBER.pack(len(request)) + request)
                [code] = _NUMBER.unpack(_receive(connection, _NUMBER.size))
            except BaseException:  # or the next one would be told how this one ended
                self._kill()
                raise
            stdout.seek(0)
            stderr.seek(0)
            return subprocess.CompletedProcess(words, code, stdout.read(), stderr.read())  # type: ignore[arg-type] # words of each

    def close(self) -> None:
        """Ends the server."""
        if self._socket is not None and self._process is not None:
            self._socket.close()
            self._process.wait(timeout=60)
        self._socket = self._process = None

    def _kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # with the command that it runs
        self.close()

    def _connect(self) -> socket.socket:
        if self._socket is None:
            self._socket, theirs = socket.socketpair()
            command = [sys.executable, "-W", "error", "-m", "tests.fork_server", str(theirs.fileno())]
            with theirs:
                self._process = subprocess.Popen(
                    command, cwd=ROOT, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, process_group=0
                )
        return self._socket


COMMANDS: Final = ForkServer()
"""That of this process; the tests end it."""


def _pipe(given: bytes) -> BinaryIO:
    """What can be read once only, and may be left unread: a file is another thing to a program."""
    out, into = os.pipe()

    def fill() -> None:
        with contextlib.suppress(BrokenPipeError), open(into, "wb", buffering=0) as pipe:  # noqa: PTH123 - no path
            pipe.write(given)

    threading.Thread(target=fill).start()
    return open(out, "rb")  # noqa: PTH123 - no path


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise EOFError("the server of commands is gone")
        data += part
    return data


def _serve(connection: socket.socket) -> NoReturn:
    _import_all()
    while True:
        [sign, streams, _, _] = socket.recv_fds(connection, 1, 3)
        if not sign:
            sys.exit()
        [size] = _NUMBER.unpack(_receive(connection, _NUMBER.size))
        request = json.loads(_receive(connection, size))
        child = os.fork()
        if child == 0:
            connection.close()
            _become(request["words"], request["folder"], request["environment"], streams)
        for stream in streams:
            os.close(stream)
        _, status = os.waitpid(child, 0)
        connection.sendall(_NUMBER.pack(os.waitstatus_to_exitcode(status)))


def _import_all() -> None:
    for name in _PACKAGES:
        for module in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    sys.modules["__main__"].__package__ = ""  # as in the script `tailfold`: else a usage says `python -m tests.…`
    typer.main.get_command = functools.cache(typer.main.get_command)  # it takes longer than most commands
    commands: Any = typer.main.get_command(importlib.import_module("ledger.admin.app").app)
    for name in commands.list_commands(None):
        commands.get_command(None, name)
    for words in (["--help"], ["--data", "/nowhere/at.db", "runs", "c", "--json"]):  # what is imported by need is, too
        sys.argv = ["tailfold", *words]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            importlib.import_module("ledger.admin.app").run_app()
    gc.collect()
    gc.freeze()


def _spare(modules: dict[str, ModuleType]) -> None:
    """Lets modules live for ever: they keep one more reference, and the end of the interpreter does not find them."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(list(modules.values())))
    for name in modules:
        sys.modules.pop(name, None)


def _become(words: list[str] | list[list[str]], folder: str, environment: dict[str, str], streams: list[int]) -> NoReturn:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    from ledger.admin.app import run_app  # noqa: PLC0415 - only this side needs it

    others = {name: module for name, module in sys.modules.items() if name.partition(".")[0] not in _ENDED}
    told: list[tuple[int, str, str]] = []
    for each in words:
        if isinstance(each, str):
            sys.argv = ["tailfold", *map(str, words)]
            code = run_app()
            _spare(others)
            sys.exit(code)
        sys.argv = ["tailfold", *each]
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            code = run_app()
        told.append((code, out.getvalue(), err.getvalue()))
    print(json.dumps(told))
    _spare(others)
    sys.exit()


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as ours:
        _serve(ours)
