"""Snapshots: a checked envelope around a projector's state, and the rules of keeping them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from stream.checks import check_kind
from stream.compression import deflate, inflate, is_deflated
from stream.errors import SnapshotNeeded, SnapshotUnreadable
from stream.limits import check_id, check_position
from stream.records import Bounds, Snapshot, SnapshotInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_DIGEST_BYTES: Final = 32
_MAX_DEFLATED_BYTES: Final = 64 * 1024 * 1024  # so that what is damaged takes no more memory; what is larger stays plain
_SNAPSHOT: Final = msgspec.msgpack.Decoder(Snapshot)  # made here: threads must not learn a struct at the same time


class SnapshotStore(Protocol):
    """Keeps the states of projectors. Every method raises `InvalidId` for odd ids and `StoreClosed` after closing."""

    async def save(self, snapshot: Snapshot) -> bool:
        """Stores the snapshot if it is newer than the newest readable one, and says whether it did.

        Of the same seq a higher version is newer: it takes the place of the lower one.

        Raises `ValueError` unless `origin < last_seq <= head`, so that nothing of another life of the stream is kept.
        """
        ...

    async def load(self, stream_id: str, projector: str) -> Snapshot | None:
        """The newest readable snapshot, or None. The checksum is compared before the state is looked at."""
        ...

    async def list(self, stream_id: str) -> list[SnapshotInfo]:
        """All snapshots of a stream, by projector and position, unreadable ones marked."""
        ...

    async def delete(self, stream_id: str, projector: str, last_seq: int | None = None) -> None:
        """Drops one snapshot, or with no `last_seq` all of a retired projector.

        Raises `SnapshotNeeded` for the last readable one at or above the floor of a truncated stream.
        """
        ...


def seal(snapshot: Snapshot) -> bytes:
    """The bytes to store: a digest, and the snapshot that it is of, compressed where that pays."""
    body = msgspec.msgpack.encode(snapshot)
    if len(body) <= _MAX_DEFLATED_BYTES:
        body = deflate(body) or body
    return hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest() + body


def unseal(envelope: bytes, *, stream_id: str, projector: str) -> Snapshot:
    """Opens an envelope; raises `SnapshotUnreadable` if a bit of it is wrong or it belongs elsewhere."""
    digest, body = envelope[:_DIGEST_BYTES], envelope[_DIGEST_BYTES:]
    if hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest() != digest:
        raise SnapshotUnreadable(stream_id, projector, "the stored snapshot fails its checksum")
    try:
        if is_deflated(body):  # plain, it is a map
            body = inflate(body, max_bytes=_MAX_DEFLATED_BYTES)
        snapshot = _SNAPSHOT.decode(body)
    except (ValueError, msgspec.MsgspecError) as error:
        raise SnapshotUnreadable(stream_id, projector, f"the stored snapshot has another form ({error})") from error
    if (snapshot.stream_id, snapshot.projector) != (stream_id, projector):
        raise SnapshotUnreadable(stream_id, projector, f"the stored snapshot belongs to {snapshot.stream_id!r}")
    return snapshot


def open_envelope(envelope: bytes, *, stream_id: str, projector: str) -> Snapshot | None:
    """As `unseal`, with None for what can't be read."""
    try:
        return unseal(envelope, stream_id=stream_id, projector=projector)
    except (SnapshotUnreadable, TypeError):  # a damaged row may hold anything
        return None


def check_snapshot(snapshot: Snapshot, bounds: Bounds) -> None:
    """Raises `InvalidId` or `ValueError` for what is no snapshot, or one that no event of this life stands behind."""
    require_snapshot(snapshot)
    if not bounds.origin < snapshot.last_seq <= bounds.head:
        raise ValueError(
            f"a snapshot of stream {snapshot.stream_id!r} at {snapshot.last_seq} lies outside its events "
            f"{bounds.origin + 1} to {bounds.head}"
        )


def require_snapshot(snapshot: Snapshot) -> Snapshot:
    """Returns a snapshot whose fields can be stored. Raises `InvalidId` or `ValueError`."""
    check_kind("snapshot", snapshot, Snapshot, "a Snapshot")
    check_id("stream id", snapshot.stream_id)
    check_id("projector name", snapshot.projector)
    check_position("version", snapshot.version)
    check_position("last_seq", snapshot.last_seq)
    check_position("created_at", snapshot.created_at)
    check_kind("state", snapshot.state, bytes, "bytes")
    return snapshot


def is_newer(snapshot: Snapshot, newest: Snapshot | None) -> bool:
    """Whether a snapshot is to be kept beside, or in the place of, the newest that can be read."""
    if newest is None:
        return True
    return (snapshot.last_seq, snapshot.version) > (newest.last_seq, newest.version)


def check_dispensable(stream_id: str, projector: str, last_seq: int, bounds: Bounds, stored: Iterable[SnapshotInfo]) -> None:
    """Raises `SnapshotNeeded` if without snapshot `last_seq` a truncated stream could not be loaded any more."""
    if bounds.floor <= bounds.origin:
        return
    bases = {
        info.last_seq for info in stored if info.readable and info.projector == projector and info.last_seq >= bounds.floor
    }
    if bases == {last_seq}:
        raise SnapshotNeeded(stream_id, projector, last_seq)


async def retain(snapshots: SnapshotStore, stream_id: str, projector: str, *, keep: int) -> None:
    """Deletes all but the newest `keep` readable snapshots of a projector; `keep` is at least 1."""
    if check_position("keep", keep) < 1:
        raise ValueError(f"keep must be at least 1, not {keep}: delete the projector's snapshots by its name instead")
    for last_seq in outdated(await snapshots.list(stream_id), projector, keep=keep):
        await snapshots.delete(stream_id, projector, last_seq)


def outdated(stored: Sequence[SnapshotInfo], projector: str, *, keep: int) -> list[int]:
    """The positions of the snapshots that `retain` deletes."""
    own = sorted((info for info in stored if info.projector == projector), key=lambda info: -info.last_seq)
    kept = [info.last_seq for info in own if info.readable][:keep]
    return [info.last_seq for info in own if kept and info.last_seq < kept[-1]]
