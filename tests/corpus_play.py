"""Recorded streams through their adapters, as runs of events, and what they say beside their own deltas."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

from projector import events as ev
from projector.formats.format import FormatError
from projector.formats.shared.frames import Payload
from projector.json_text import raw
from tests.corpus_formats import TOLD, load, stream_format, told_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.corpus_parts import File


class Played(NamedTuple):
    """What a stream became: its events, how it ended, the payloads that were refused."""

    bodies: list[ev.Body]
    outcome: str
    refused: list[tuple[Payload, str]]


def play(name: str, payloads: Iterable[Payload], run_id: str, parent: str | None = None) -> Played:
    """A stream as a run of events, through its adapter."""
    make = stream_format(name)
    numbers = itertools.count(1)
    stream = make(run_id, lambda: f"{run_id}.{next(numbers)}")
    bodies: list[ev.Body] = []
    refused = []
    for payload in payloads:
        try:
            bodies += stream.feed(payload.data)
        except FormatError as error:
            refused.append((payload, f"{payload.place}: {error}"))
    end: Any = stream.end()
    started = ev.RunStarted(run_id, parent, "submit", run_id, provider=name)
    return Played(
        [started, *bodies, ev.RunFinished(run_id, end.outcome, end.finish_reason, raw(end.error))], end.outcome, refused
    )


def payloads_of(events: Iterable[str]) -> list[Payload]:
    return [Payload(event, place=f"event {number}") for number, event in enumerate(events, 1)]


def check_text(file: File, name: str, payloads: Sequence[Payload], played: Played) -> None:
    """What is said against the deltas of the recording, joined by a reading of its own."""
    values = [value for payload in payloads if isinstance(value := load(payload.data), dict)]
    wanted = told_text(name, values)
    if wanted is not None and name in TOLD:
        kinds = {(body.message_id, body.block): body.kind for body in played.bodies if isinstance(body, ev.BlockStarted)}
        deltas = [body for body in played.bodies if isinstance(body, ev.BlockDelta) and body.field is None]
        said = "".join(body.text for body in deltas if kinds[body.message_id, body.block] == "text")
        file.check("it says what its deltas say", said == wanted, f"{said[:80]!r}, not {wanted[:80]!r}")


def has_error(payloads: Iterable[Payload]) -> bool:
    values = [load(payload.data) for payload in payloads]
    return any(isinstance(value, dict) and is_error(value) for value in values)


def is_error(value: dict[str, Any]) -> bool:
    response = value.get("response")
    status = value if value.get("object") == "response" else response if isinstance(response, dict) else {}
    return bool(value.get("error")) or value.get("type") in ("error", "response.failed") or status.get("status") == "failed"
