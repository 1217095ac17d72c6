"""What a log of conversations takes: each body is held against its type before anything is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from projector.events import MessageRedacted, check_ids, check_objects, read_body
from projector.json_text import InvalidJson, split, text_of
from projector.message import read_blocks
from stream import InvalidEvent, InvalidId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from projector.events import Body
    from stream import NewEvent


def validate(events: Sequence[NewEvent]) -> None:
    """Raises `InvalidEvent` with the index of the first event whose body does not fit its type.

    Unknown types pass if their body is a JSON object.
    """
    for index, event in enumerate(events):
        try:
            _validate_body(read_body(event.type, event.data), event.data)
        except (InvalidJson, InvalidId) as error:
            raise InvalidEvent(index, f"the body of {event.type!r} is wrong: {error}") from error


def _validate_body(body: Body | None, data: bytes) -> None:
    if body is None:
        split(data)
        return
    check_ids(body)
    check_objects(body)
    if isinstance(body, MessageRedacted):  # one that could not be applied would leave what was to go
        read_blocks(text_of(body.blocks) or "")
