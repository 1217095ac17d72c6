"""Events as an import stores them: adjacent deltas of one block joined, media taken out of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from projector import events as ev
from projector.deltas import JoinedDeltas
from projector.events import to_event
from projector.formats.shared.media_refs import Detacher

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from projector.formats.shared.media_refs import Attachment
    from stream import NewEvent

_JOINED: Final = 1024
"""Characters of deltas that are joined: by size only, so that a repeated import repeats its events."""


class Encoded(NamedTuple):
    """An event; `media` are the bytes that it adds, which belong into the store before it is appended."""

    event: NewEvent
    media: Attachment | None = None


class Encoder:
    """Makes the events of a run, one body after another. What `put` holds back comes with the next, or with `end`."""

    def __init__(self) -> None:
        self._detacher = Detacher()
        self._media: set[str] = set()
        self._deltas: JoinedDeltas | None = None

    def put(self, body: ev.Body) -> list[Encoded]:
        """The events that are whole now."""
        if not isinstance(body, ev.BlockDelta) or not isinstance(body.text, str):  # an adapter hands on what it was given
            return self._encode(body) if self._deltas is None else self.end() + self._encode(body)
        if self._deltas is not None and self._deltas.size < _JOINED and self._deltas.take(body):
            return []
        made = self.end()
        self._deltas = JoinedDeltas(body)
        return made

    def end(self) -> list[Encoded]:
        """What was held back."""
        deltas, self._deltas = self._deltas, None
        return [] if deltas is None else self._encode(deltas.body())

    def _encode(self, body: ev.Body) -> list[Encoded]:
        lean, attachments = self._detacher.detach(body)
        if not attachments:
            return [Encoded(to_event(lean))]
        made = []
        for media in attachments:
            if media.media_id not in self._media:
                self._media.add(media.media_id)
                added = ev.MediaAdded(media.media_id, media.media_type, len(media.data))
                made.append(Encoded(to_event(added), media))
        made.append(Encoded(to_event(lean)))
        return made


def encode_bodies(bodies: Iterable[ev.Body]) -> Iterator[Encoded]:
    """The events of a run, in order."""
    encoder = Encoder()
    for body in bodies:
        if made := encoder.put(body):
            yield from made
    yield from encoder.end()
