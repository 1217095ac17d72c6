"""Where what lies: JetStream streams, and subjects in them, none of which holds what a user has written."""

from __future__ import annotations

import base64
import zlib
from typing import NamedTuple


class Layout(NamedTuple):
    """`name` begins the names of all; there are `shards` JetStream streams, and all of one stream of events lies in one.

    The subject of its log is `name.shard.e.token`. Beside it lie older watermarks of producers, lists of
    snapshots, and their bodies; what comes to a log is told on `name.shard.l.token`, without its data.
    """

    name: str
    shards: int

    def stream(self, shard: int) -> str:
        """The JetStream stream."""
        return f"{self.name}_{shard}"

    def subjects(self, shard: int) -> list[str]:
        """All that lies in it."""
        return [f"{self.name}.{shard}.{kind}.>" for kind in ("e", "f", "p", "s", "x")]

    def shard_of(self, stream_id: str) -> int:
        """For ever the same."""
        return zlib.crc32(stream_id.encode()) % self.shards

    def home(self, stream_id: str) -> str:
        """The JetStream stream that a stream of events lies in."""
        return self.stream(self.shard_of(stream_id))

    def log(self, stream_id: str) -> str:
        """The subject of its events, and of what was done to them."""
        return f"{self.name}.{self.shard_of(stream_id)}.e.{token(stream_id)}"

    def logs(self, shard: int) -> str:
        """The subjects of all logs."""
        return f"{self.name}.{shard}.e.>"

    def fence(self, shard: int) -> str:
        """What is stored here says only that all before it is."""
        return f"{self.name}.{shard}.f.f"

    def producer(self, stream_id: str, producer_id: str) -> str:
        """The subject of a watermark that its log no longer says."""
        return f"{self.name}.{self.shard_of(stream_id)}.p.{token(stream_id)}.{token(producer_id)}"

    def producers(self, stream_id: str) -> str:
        """The subjects of all those."""
        return f"{self.name}.{self.shard_of(stream_id)}.p.{token(stream_id)}.*"

    def snapshots(self, stream_id: str, projector: str | None = None) -> str:
        """The subject of the list of a projector's snapshots, or those of all of them."""
        of = "*" if projector is None else token(projector)
        return f"{self.name}.{self.shard_of(stream_id)}.s.{token(stream_id)}.{of}"

    def body(self, stream_id: str, name: str = "*") -> str:
        """The subject of the parts of one snapshot, or those of all of them."""
        return f"{self.name}.{self.shard_of(stream_id)}.x.{token(stream_id)}.{name}"

    def signal(self, stream_id: str | None) -> str:
        """Where is told what comes to a log; without one, what comes to any."""
        if stream_id is None:
            return f"{self.name}.*.l.>"
        return f"{self.name}.{self.shard_of(stream_id)}.l.{token(stream_id)}"

    def republish(self, shard: int) -> dict[str, object]:
        """As the server is told to tell."""
        return {"src": self.logs(shard), "dest": f"{self.name}.{shard}.l.>", "headers_only": True}


def token(text: str) -> str:
    """An id as a part of a subject."""
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def untoken(part: str) -> str:
    """The id again. Raises `ValueError` for what is none."""
    return base64.b64decode(part.encode() + b"=" * (-len(part) % 4), altchars=b"-_", validate=True).decode()
