"""PUT: creates a stream, empty, with its first messages, or as a fork of another one; a repeat finds what there is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from starlette.responses import Response

from stream.http.durable import messages
from stream.http.durable import state as kinds
from stream.http.durable.appending import split
from stream.http.durable.headers import DEFAULT_MEDIA, Lifetime, about, is_closing, read_lifetime, read_media, read_whole
from stream.http.durable.offsets import Offset, generation_of, read_offset
from stream.http.durable.paths import read_id, stream_id
from stream.http.durable.reading import parts_up_to, read_page, spans
from stream.http.durable.state import Opened, encode_opened
from stream.http.problems import Problem
from stream.records import NewEvent

if TYPE_CHECKING:
    from starlette.datastructures import Headers

    from stream.http.durable.streams import Stream, Streams
    from stream.store import EventStore

MAX_PARTS = 100


class Wanted(NamedTuple):
    """The stream that a PUT asks for."""

    media: str | None
    lifetime: Lifetime
    is_closed: bool
    body: bytes
    source: str | None
    """The path of the one that it is to be a fork of."""
    fork_at: Offset | None
    sub: int


def read_wanted(headers: Headers, body: bytes, source: str | None) -> Wanted:
    """What the headers ask for. Raises `Problem` 400."""
    sub = read_whole(headers, "Stream-Fork-Sub-Offset")
    given = headers.get("Stream-Fork-Offset")
    if source is None and (sub is not None or given is not None):
        raise Problem(400, "invalid_header", "an offset of a fork needs Stream-Forked-From")
    if sub and given is None:
        raise Problem(400, "invalid_header", "Stream-Fork-Sub-Offset needs Stream-Fork-Offset")
    fork_at = read_offset(given) if given is not None else None
    lifetime = read_lifetime(headers)
    return Wanted(read_media(headers), lifetime, is_closing(headers), body, source, fork_at, sub or 0)


def answer_existing(stream: Stream, wanted: Wanted) -> Response:
    """200 if the stream there is the one that is wanted. Raises `Problem` 409 (2.3)."""
    state = stream.state
    if state.is_retired:
        raise Problem(409, "deleted", "the stream was deleted, and is kept for its forks: its path is taken")
    opened = state.config
    is_fork = wanted.source is not None
    known = read_id(opened.source)[0] if opened.source and read_id(opened.source) else None  # type: ignore[index]
    media = wanted.media or (opened.media if is_fork else DEFAULT_MEDIA)
    has_own_lifetime = wanted.lifetime != Lifetime(None, None, None)
    is_same = (
        messages.base_of(media) == messages.base_of(opened.media)
        and (wanted.lifetime[:2] == (opened.ttl_s, opened.expires_at) or (is_fork and not has_own_lifetime))
        and wanted.is_closed == state.is_closed
        and wanted.source == known
        and (wanted.fork_at is None or str(wanted.fork_at) == opened.forked_at)
        and wanted.sub == opened.sub
    )
    if not is_same:
        raise Problem(409, "exists", "another stream is there: its configuration is not the one that is asked for")
    return Response(status_code=200, headers=about(state) | {"Content-Type": opened.media})


async def create(streams: Streams, path: str, number: int, wanted: Wanted) -> Stream | None:
    """Creates a stream that is no fork; None where somebody else was first. Raises `Problem` 400."""
    media = wanted.media or DEFAULT_MEDIA
    opened = Opened(media, *wanted.lifetime, generation=generation_of(number))
    return await streams.create(path, number, _events(opened, wanted, split(wanted.body, media) if wanted.body else []))


async def create_fork(
    store: EventStore, streams: Streams, source: Stream | None, path: str, number: int, wanted: Wanted
) -> Stream | None:
    """Creates a fork; None where somebody else was first. Raises `Problem` 400, 404 or 409 (2.12).

    The source knows of it before it is there, so that it is kept; what is wrong is found before that.
    """
    if source is None or source.state.is_gone:
        raise Problem(404, "unknown_source", "there is no stream to fork")
    if source.state.is_retired:
        raise Problem(409, "deleted", "the stream to fork was deleted")
    state = source.state
    media = wanted.media or state.config.media
    if messages.base_of(media) != messages.base_of(state.config.media):
        raise Problem(409, "content_type_conflict", f"the stream to fork is of {state.config.media}")
    anchor = state.end if wanted.fork_at is None else wanted.fork_at
    try:
        spans(state, source.id, anchor)
    except Problem as error:
        raise Problem(400, "invalid_offset", "the stream to fork has no such place") from error
    base, extra = await _advance(store, source, anchor, wanted.sub)
    parts = parts_up_to(state, source.id, base)
    if len(parts) > MAX_PARTS:
        raise Problem(400, "too_deep", f"a fork reads at most {MAX_PARTS} streams before its own")
    lifetime = wanted.lifetime
    if lifetime == Lifetime(None, None, None):
        lifetime = Lifetime(state.config.ttl_s, state.config.expires_at, state.config.ends_at_ms)
    opened = Opened(
        media, *lifetime,
        generation=generation_of(number, state.config.generation), source=source.id, forked_at=str(anchor), sub=wanted.sub,
        parts=parts,
    )  # fmt: skip
    own = split(wanted.body, media) if wanted.body else []
    if not await streams.promise(source, stream_id(path, number)):
        raise Problem(404, "unknown_source", "the stream to fork was deleted meanwhile")
    return await streams.create(path, number, _events(opened, wanted, extra + own))


async def _advance(store: EventStore, source: Stream, anchor: Offset, sub: int) -> tuple[Offset, list[bytes]]:
    """Where the inherited part ends: `sub` messages of JSON behind the anchor, else there, and as many bytes of the next."""
    if not sub:
        return anchor, []
    media = source.state.config.media
    if not messages.is_json(media):
        page = await read_page(store, source, anchor, max_messages=1)
        if not page.messages or sub > len(page.messages[0]):
            raise _overshoot()
        return anchor, [page.messages[0][:sub]]
    place, left = anchor, sub
    while left:
        page = await read_page(store, source, place, max_messages=left)
        if not page.messages:
            raise _overshoot()
        place, left = page.next, left - len(page.messages)
    return place, []


def _events(opened: Opened, wanted: Wanted, first: list[bytes]) -> list[NewEvent]:
    events = [NewEvent(kinds.OPEN, encode_opened(opened)), *(NewEvent(kinds.DATA, message) for message in first)]
    return [*events, NewEvent(kinds.CLOSE, kinds.encode_closing(None))] if wanted.is_closed else events


def _overshoot() -> Problem:
    return Problem(400, "invalid_offset", "Stream-Fork-Sub-Offset goes beyond what the stream to fork holds there")
