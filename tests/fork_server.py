"""Runs `tailfold` commands as processes that need no time to start: a server that has imported everything forks for each.

A command is a process as ever: its own arguments, folder, environment, standard streams, exit code, and the end of an
interpreter, where a resource that was left open becomes a warning on standard error. What a start itself does is left
to the tests that start one.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import io
import json
import os
import pkgutil
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NoReturn

import typer.main

ROOT: Final = Path(__file__).parents[1]
_NUMBER: Final = struct.Struct("!q")
_PACKAGES: Final = ("stream", "projector", "ledger")


class ForkServer:
    """The side of the tests; the server starts with the first command."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, *words: str, given: bytes = b"", timeout_s: float = 120) -> subprocess.CompletedProcess[bytes]:
        """What `tailfold words…` printed and how it ended."""
        connection = self._connect()
        connection.settimeout(timeout_s)
        request = json.dumps({"words": words, "folder": str(Path.cwd()), "environment": dict(os.environ)}).encode()
        with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            stdin.write(given)
            stdin.seek(0)
            socket.send_fds(connection, [b"!"], [stdin.fileno(), stdout.fileno(), stderr.fileno()])
            connection.sendall(_NUMBER.pack(len(request)) + request)
            [code] = _NUMBER.unpack(_receive(connection, _NUMBER.size))
            stdout.seek(0)
            stderr.seek(0)
            return subprocess.CompletedProcess(["tailfold", *words], code, stdout.read(), stderr.read())

    def close(self) -> None:
        """Ends the server."""
        if self._socket is not None and self._process is not None:
            self._socket.close()
            self._process.wait(timeout=60)
        self._socket = self._process = None

    def _connect(self) -> socket.socket:
        if self._socket is None:
            self._socket, theirs = socket.socketpair()
            command = [sys.executable, "-W", "error", "-m", "tests.fork_server", str(theirs.fileno())]
            with theirs:
                self._process = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        return self._socket


COMMANDS: Final = ForkServer()
"""That of this process; the tests end it."""


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
    typer.main.get_command = functools.cache(typer.main.get_command)  # it takes longer than most commands
    sys.argv = ["tailfold", "--help"]
    with contextlib.redirect_stdout(io.StringIO()):
        importlib.import_module("ledger.admin.app").run_app()
    gc.collect()
    gc.freeze()


def _become(words: list[str], folder: str, environment: dict[str, str], streams: list[int]) -> NoReturn:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.argv = ["tailfold", *words]
    from ledger.admin import main  # noqa: PLC0415 - only this side needs it

    main()
    raise AssertionError("the command returned")


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as ours:
        _serve(ours)
