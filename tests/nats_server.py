"""A NATS server on loopback, out of a wheel: as durable as the README asks for, started and killed at will."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_START_S: Final = 60.0
_DIE_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG


def program() -> Path:
    """The wheel puts it beside the Python that runs."""
    return Path(sys.executable).parent / "nats-server"


def free_ports(count: int) -> list[int]:
    """Those that nobody listens on now."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


class NatsServer:
    """One server over a folder of its own; `more` is written into its configuration."""

    def __init__(
        self, *, name: str = "n", more: str = "", sync: str = "always", jetstream: bool = True, monitored: bool = True
    ) -> None:
        self.name = name
        self.folder = Path(tempfile.mkdtemp(prefix="tailfold-nats-"))
        self.port, self.monitor = free_ports(2)
        self.process: subprocess.Popen[bytes] | None = None
        self._lines = [f"server_name: {name}", f'listen: "127.0.0.1:{self.port}"', more]
        if monitored:
            self._lines.append(f'http: "127.0.0.1:{self.monitor}"')
        self._jetstream = jetstream
        self._configure(sync)

    def _configure(self, sync: str) -> None:
        block = f'jetstream {{ store_dir: "{self.folder}", sync_interval: {sync} }}' if self._jetstream else ""
        (self.folder / "conf").write_text("\n".join([*self._lines, block]))

    def start(self) -> None:
        """Returns when it answers."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(program()), "-c", str(self.folder / "conf")], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - one call, which takes no lock
            )  # fmt: skip
        deadline = time.monotonic() + _START_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as probe:
                if probe.recv(4) == b"INFO":
                    return
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.folder / "log").read_text()[-2000:])
            time.sleep(0.01)

    def restart(self, *, sync: str) -> None:
        """With another interval."""
        self.kill()
        self._configure(sync)
        self.start()

    def await_health(self) -> None:
        """Returns when JetStream is ready, which takes some seconds where servers look for each other."""
        deadline = time.monotonic() + _START_S
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self.monitor}/healthz", timeout=5):
                return
            if time.monotonic() > deadline:
                raise RuntimeError((self.folder / "log").read_text()[-2000:])
            time.sleep(0.05)

    def signal(self, number: int) -> None:
        """Sends it to the server."""
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """As a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def remove(self) -> None:
        """Ends it, and all that it kept."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, stream: str = "tailfold", *options: str, user: str = "") -> str:
        """Where a store can be opened."""
        said = "&".join([f"stream={stream}", f"monitor={self.monitor}", *options])
        return f"nats://{user}127.0.0.1:{self.port}?{said}"


class NatsCluster:
    """Three servers, each of which may be killed. Where they are `secret` none names the others to who connects to it."""

    def __init__(self, *, more: str = "", secret: bool = False) -> None:
        routes = free_ports(3)
        others = ", ".join(f"nats://127.0.0.1:{port}" for port in routes)
        said = f"routes: [{others}], no_advertise: {str(secret).lower()}"
        self.nodes = [
            NatsServer(name=f"n{n}", more=f'cluster {{ name: C, listen: "127.0.0.1:{port}", {said} }}\n{more}')
            for n, port in enumerate(routes)
        ]

    def start(self) -> None:
        """Returns when each answers, and they have found each other."""
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            node.await_health()

    def remove(self) -> None:
        """Ends all, and what they kept."""
        for node in self.nodes:
            node.remove()

    def url(self, stream: str = "tailfold", *options: str, node: int | None = None, user: str = "") -> str:
        """Where a store of three replicas can be opened; only the node of a number is named, if one is given."""
        nodes = self.nodes if node is None else [self.nodes[node]]
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
        monitors = ",".join(str(node.monitor) for node in nodes)
        return f"nats://{user}{hosts}?" + "&".join([f"stream={stream}", "replicas=3", f"monitor={monitors}", *options])


@contextlib.contextmanager
def three_running(*, more: str = "", secret: bool = False) -> Iterator[NatsCluster]:
    """Three servers while the block lasts."""
    cluster = NatsCluster(more=more, secret=secret)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.remove()


def _die_with_parent() -> None:
    """A test run that is killed leaves no server behind."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


@contextlib.contextmanager
def running(*, more: str = "", sync: str = "always", jetstream: bool = True, monitored: bool = True) -> Iterator[NatsServer]:
    """A server while the block lasts."""
    server = NatsServer(more=more, sync=sync, jetstream=jetstream, monitored=monitored)
    try:
        server.start()
        yield server
    finally:
        server.remove()


class SharedNats:
    """The server of this process's tests, started when the first of them asks."""

    server: NatsServer | None = None
    names = itertools.count()

    @classmethod
    def url(cls, *options: str) -> str:
        """A stream of its own."""
        if cls.server is None:
            cls.server = NatsServer()
            cls.server.start()
        return cls.server.url(f"t{next(cls.names)}", *options)

    @classmethod
    def close(cls) -> None:
        """Ends it."""
        if cls.server is not None:
            cls.server.remove()
            cls.server = None


class SharedCluster:
    """The same of three servers."""

    cluster: NatsCluster | None = None

    @classmethod
    def url(cls, *options: str) -> str:
        """A stream of its own."""
        if cls.cluster is None:
            cls.cluster = NatsCluster()
            cls.cluster.start()
        return cls.cluster.url(f"t{next(SharedNats.names)}", *options)

    @classmethod
    def close(cls) -> None:
        """Ends it."""
        if cls.cluster is not None:
            cls.cluster.remove()
            cls.cluster = None
