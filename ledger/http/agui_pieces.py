"""Events of AG-UI as its client takes them, which gives up over one that is larger than 10 MB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from projector.json_text import dump

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Wire = list[dict[str, Any]]
MAX_SNAPSHOT_BYTES: Final = 8 * 1024 * 1024
MAX_PIECE: Final = 512 * 1024
"""Characters, each of them twelve bytes at the most."""
_BEGINS: Final = ("TEXT_MESSAGE_START", "REASONING_MESSAGE_START")


def fit(begun: Wire) -> Wire:
    """How a client gets to where all stands, no event of it too large.

    What is open stays, its text behind the snapshot where that has no room for it; of the other messages the newest.
    """
    [at] = [number for number, event in enumerate(begun) if event["type"] == "MESSAGES_SNAPSHOT"]
    messages = begun[at]["messages"]
    if len(dump(messages)) <= MAX_SNAPSHOT_BYTES:
        return begun
    begins = {event["messageId"]: event["type"] for event in begun[at:] if event["type"] in _BEGINS}
    texts = {message["id"]: message["content"] for message in messages if message["id"] in begins}
    needed = begins.keys() | {event["parentMessageId"] for event in begun[at:] if event["type"] == "TOOL_CALL_START"}
    emptied = [message | {"content": ""} if message["id"] in texts else message for message in messages]
    wire = [*begun[:at], begun[at] | {"messages": _newest(emptied, needed)}]
    for event in begun[at + 1 :]:
        wire.append(event)
        if event["type"] in _BEGINS and (said := texts.get(event["messageId"])):
            kind = event["type"].replace("_START", "_CONTENT")
            wire.append({"type": kind, "messageId": event["messageId"], "delta": said})
    return wire


def in_pieces(wire: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The same, what is said at once in several events where it is long."""
    for event in wire:
        said = event.get("delta")
        if not isinstance(said, str) or len(said) <= MAX_PIECE:
            yield event
            continue
        for begin in range(0, len(said), MAX_PIECE):
            yield event | {"delta": said[begin : begin + MAX_PIECE]}


def _newest(messages: Wire, needed: Iterable[str]) -> Wire:
    """Those that are needed, and of the others the last ones that have room beside them; one that never has is passed over."""
    sizes = {message["id"]: len(dump(message)) + 1 for message in messages}
    kept = set(needed)
    room = MAX_SNAPSHOT_BYTES - sum(sizes[ref] for ref in kept if ref in sizes)
    for message in reversed(messages):
        ref = message["id"]
        if ref in kept or sizes[ref] > MAX_SNAPSHOT_BYTES:
            continue
        if sizes[ref] > room:
            break
        kept.add(ref)
        room -= sizes[ref]
    return [message for message in messages if message["id"] in kept]
