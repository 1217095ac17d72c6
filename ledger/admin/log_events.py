"""What `events` prints of the log of this machine: from where it begins, which is told where it is not the beginning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.admin.json_shapes import of_event
from ledger.admin.output import event_record, print_json, print_record, print_warning
from projector.json_text import InvalidJson, plain, readable
from stream import Truncated
from stream import follow as follow_stream

if TYPE_CHECKING:
    from ledger.ledger import Ledger
    from stream import Bounds, Event


async def print_events(ledger: Ledger, conversation: str, *, after: int, follow: bool, as_json: bool) -> None:
    """Prints the events that the log holds after a number, and with `follow` those that come. Raises `UnknownConversation`."""
    bounds = await ledger.store.bounds(conversation)
    head = bounds.head
    while True:
        if after < bounds.floor:
            print_warning(_told(conversation, after, bounds))
            after = bounds.floor
        if not follow and after >= head:
            await ledger.open_runs(conversation)  # says so if there is no such conversation
            return
        try:
            async for event in follow_stream(ledger.store, conversation, after=after):
                _print(event, as_json=as_json)
                after = event.seq
                if not follow and after >= head:
                    return
        except Truncated:  # compacted while it was read
            bounds = await ledger.store.bounds(conversation)


def _told(conversation: str, after: int, bounds: Bounds) -> str:
    floor, head, origin = bounds.floor, bounds.head, bounds.origin
    rest = f"what follows begins at event {floor + 1}" if floor < head else f"none is left, the next one is {head + 1}"
    if floor <= origin:
        left = "what was said in them was erased"
    elif after < origin:
        left = f"to {origin} they were erased, of the others `tailfold show` has what was said"
    else:
        left = "`tailfold show` has what was said"
    return f"conversation {conversation!r}: events {after + 1} to {floor} are gone from its log ({left}): {rest}"


def _print(event: Event, *, as_json: bool) -> None:
    if as_json:
        print_json(of_event(event))
    else:
        print_record(f"{event.seq:>8}  {event.type:<20} {_data(event)}")


def _data(event: Event) -> str:
    """The body of an event with text of any writing as it is."""
    record = event_record(event)
    text = str(record["data"] if "data" in record else record["data_base64"])
    if "\\u" not in text:
        return text
    try:
        return readable(plain(text))
    except InvalidJson:
        return text
