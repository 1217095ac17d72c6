"""Stands between clients and a server on loopback: passes bytes on, cuts connections at a piece, holds pieces back."""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from typing import Self

How = Literal["before", "after", "late", "answer"]
WAYS: Final[tuple[How, ...]] = ("before", "after", "late", "answer")
"""What becomes of the piece where a connection is cut: one to the server is lost, is passed on first, or comes there later
than the client knows of the cut; or a piece from the server is lost."""

_LATE_S: Final = 0.03
_DRAIN_S: Final = 0.5


class Proxy:
    """Everything passes, until `cut` is called.

    `pieces` counts what has passed in both directions, `asked` that to the server, and `cuts` the cuts.
    """

    def __init__(self, port: int) -> None:
        self.server_port, self.port = port, 0
        self.pieces = self.asked = self.cuts = 0
        self.refusing = False
        self._cut_at: int | None = None
        self._how: How = "before"
        self._passing = asyncio.Event()
        self._passing.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self._passing.set()
        for task in [*self._tasks]:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self.cut_all()

    def url(self, url: str) -> str:
        """The same store, through here."""
        return re.sub(rf":{self.server_port}(?=[/?])", f":{self.port}", url)

    def cut(self, at: int, how: How) -> None:
        """Cuts the first connection on which a piece passes that is the `at`th from now or later, and goes the right way."""
        self._cut_at, self._how = self.pieces + at, how

    def go_away(self) -> None:
        """Whoever connects from now on finds nobody; what is connected stays."""
        self._server.close()

    async def come_back(self) -> None:
        """At the same place."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    def cut_all(self) -> None:
        """Cuts all connections now."""
        for writer in [*self._writers]:
            writer.transport.abort()

    def hold(self) -> None:
        """Swallows everything, until `release`."""
        self._passing.clear()

    def release(self) -> None:
        """What was held comes now."""
        self._passing.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.transport.abort()
            return
        try:
            back, there = await asyncio.open_connection("127.0.0.1", self.server_port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, there}
        up, down = self._pass(reader, there, writer, is_to_server=True), self._pass(back, writer, there, is_to_server=False)
        ways = [asyncio.ensure_future(up), asyncio.ensure_future(down)]
        self._tasks |= {*ways}
        await asyncio.wait(ways)
        self._tasks -= {*ways}
        self._writers -= {writer, there}

    async def _pass(
        self, reader: asyncio.StreamReader, to: asyncio.StreamWriter, back: asyncio.StreamWriter, *, is_to_server: bool
    ) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            while piece := await reader.read(65536):
                await self._passing.wait()
                self.pieces += 1
                self.asked += is_to_server
                if self._cut_at is not None and self.pieces > self._cut_at and is_to_server == (self._how != "answer"):
                    self._cut_at = None
                    self.cuts += 1
                    await self._cut(piece, to, back)
                    return
                to.write(piece)
                await to.drain()
        to.transport.abort()

    async def _cut(self, piece: bytes, to: asyncio.StreamWriter, back: asyncio.StreamWriter) -> None:
        """Of a piece to the server its connection stays for a while, as if it had not noticed."""
        if self._how == "after":
            to.write(piece)
            await to.drain()
        back.transport.abort()
        if self._how == "late":
            await asyncio.sleep(_LATE_S)
            to.write(piece)
        if self._how in ("after", "late"):
            await asyncio.sleep(_DRAIN_S)
        to.transport.abort()
