"""What one event of a stream carries, however it was framed, and how readers of bytes give it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from projector.formats.format import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Payload(msgspec.Struct, frozen=True):
    """What one event carries: JSON text, with the name and the id that the framing gave it, and where it stood.

    `is_torn` where the recording ends inside it, so that it can't be read.
    """

    data: str
    event: str | None = None
    id: str | None = None
    place: str = ""
    is_torn: bool = False


class Gathering:
    """What every reader shares: payloads ahead of an error are given first, however the bytes were cut."""

    broken: FormatError | None = None
    """What the next call raises."""

    def _gather(self, payloads: Iterator[Payload]) -> list[Payload]:
        if self.broken is not None:
            raise self.broken
        found: list[Payload] = []
        try:
            found.extend(payloads)  # what came before an exception is in the list
        except FormatError as error:
            if not found:
                raise
            self.broken = error
        return found
