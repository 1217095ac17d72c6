"""What the tests of adapters share: streams that are played, whole or cut, and what is exported of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from projector.events import RunUsage
from projector.formats import READERS, STREAMS, WRITERS
from projector.formats.registry import NAMED
from tests.broken_histories import user
from tests.shared_data import imported
from tests.ui_readings import folded, grows_into, play

if TYPE_CHECKING:
    from collections.abc import Sequence

    from projector import Block, Message
    from projector.formats.format import StreamEnd


def played(name: str, chunks: Sequence[Any]) -> tuple[list[Message], StreamEnd, RunUsage | None]:
    """The messages of a stream, how it ended, and the newest usage."""
    stream, bodies = play(STREAMS[name], chunks)
    used = [body for body in bodies if isinstance(body, RunUsage)]
    return folded(bodies).all_messages(), stream.end(), used[-1] if used else None


def read(name: str, document: Any) -> list[Message]:
    """The messages of a document."""
    [history] = READERS[name](json.dumps(document))
    return imported(history)


def said(blocks: Sequence[Block]) -> list[tuple[Any, ...]]:
    """What blocks say: their kind, text, the name and input of calls, and how many citations they have."""
    return [
        (block.kind, block.name, block.tool_call_id, block.input)
        if block.kind == "tool_call"
        else (block.kind, block.text, len(block.citations))
        for block in blocks
    ]


def check_cuts(name: str, events: Sequence[Any]) -> None:
    """Cut after any event, what came is kept, and every provider takes it; more events only add to it."""
    whole = played(name, events)[0]
    for cut in range(len(events)):
        messages, end, _ = played(name, events[:cut])
        assert grows_into(messages, whole), cut
        assert end.outcome in ("incomplete", "completed"), cut
        check_exports([user("u"), *messages], f"{name} cut after {cut}")


def check_exports(messages: list[Message], where: str = "") -> None:
    """Every provider takes the messages."""
    for name, write in WRITERS.items():
        export, check = write(messages), NAMED[name].check
        json.dumps(export.payload)
        if check is not None:
            assert check(export.payload) == [], (where, name)
