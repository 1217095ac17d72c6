"""Events of a conversation as server-sent events: one frame each, and a snapshot where they can't be continued."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from ledger.http.conversations import present_open_runs
from projector import present
from projector.json_text import InvalidJson, decode, encode
from stream.http.sse import frame

if TYPE_CHECKING:
    from ledger.following import Replay
    from stream import Event

RETRY_MS: Final = 1000
MAX_INLINE_BYTES: Final = 256 * 1024
SNAPSHOT: Final = "snapshot"
_BLANKS: Final = bytes.maketrans(b"\r\n", b"  ")
_ANY: Final = msgspec.json.Decoder(msgspec.Raw)


def retry() -> bytes:
    """The first that a client is told: how long to wait before it comes back."""
    return b"retry: %d\n\n" % RETRY_MS


def encode_batch(batch: tuple[Event, ...]) -> bytes:
    """A frame for each event: its seq, its type, its body as one line."""
    return b"".join([frame(one_line(event.data), event=_name(event.type), id=str(event.seq)) for event in batch])


def encode_replay(replay: Replay) -> bytes:
    """One event `snapshot`, in place of all events through its id; many messages are told by a link instead."""
    messages = encode([] if replay.has_more else [present(message) for message in replay.messages])
    told: dict[str, Any] = {"seq": replay.last_seq, "incarnation": replay.incarnation}
    rest = encode({**told, "open_runs": present_open_runs(replay.open_runs)})
    if replay.has_more or len(messages) > MAX_INLINE_BYTES:
        link = encode({"transcript": f"transcript?through={quote(replay.messages[-1].id, safe='')}"})
        return frame(rest[:-1] + b"," + link[1:], event=SNAPSHOT, id=str(replay.last_seq))
    return frame(rest[:-1] + b',"messages":' + messages + b"}", event=SNAPSHOT, id=str(replay.last_seq))


def one_line(data: bytes) -> bytes:
    """A body as one line of JSON, the same but for its line breaks, which stand only between tokens."""
    try:
        if not data.isascii():
            data.decode()
        _ANY.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        if not _is_json(data):
            return msgspec.json.encode({"base64": base64.b64encode(data).decode()})
    return data.translate(_BLANKS) if b"\n" in data or b"\r" in data else data


def _is_json(data: bytes) -> bool:
    """Some of what msgspec refuses is legal."""
    try:
        decode(data)
    except InvalidJson:
        return False
    return True


def _name(kind: str) -> str:
    """A type may hold whatever text; a line break in it would end the field."""
    return kind.replace("\r", " ").replace("\n", " ")
