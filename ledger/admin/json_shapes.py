"""What `--json` says of the same thing is the same wherever it is said; times in ms have the same in ISO 8601 beside them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from ledger.admin.output import event_record
from ledger.records import present_conversation
from projector import present

if TYPE_CHECKING:
    from ledger.following import OpenRun
    from ledger.records import ConversationInfo, RunInfo
    from projector import Message
    from stream import Event


def of_conversation(info: ConversationInfo) -> dict[str, Any]:
    """A conversation in a list, or alone."""
    record = with_iso(present_conversation(info), "active_at")
    if info.erased is not None:
        record["erased"] = of_erased(info.erased)
    return record


def of_erased(erased: dict[str, Any] | None) -> dict[str, Any] | None:
    """What there was of a conversation that was erased."""
    return None if erased is None else with_iso(erased, "at")


def of_run(run: RunInfo) -> dict[str, Any]:
    """A run, open or ended."""
    return with_iso(msgspec.to_builtins(run), "started_at", "ended_at")


def of_message(message: Message) -> dict[str, Any]:
    """A message, of a path or of a view."""
    return with_iso(present(message), "created_at")


def of_open_run(run: OpenRun) -> dict[str, Any]:
    """What a run without an end has said so far."""
    return run._asdict() | {"messages": [of_message(message) for message in run.messages]}


def of_event(event: Event) -> dict[str, Any]:
    """An event as it lies in the log."""
    return with_iso(event_record(event), "at")


def with_iso(record: dict[str, Any], *names: str) -> dict[str, Any]:
    """The record, in which behind each of these times in ms stands the same as `…_iso`."""
    made: dict[str, Any] = {}
    for name, value in record.items():
        made[name] = value
        if name in names:
            made[f"{name}_iso"] = None if value is None else iso(value)
    return made


def iso(at_ms: int) -> str | None:
    """A time in ISO 8601, in UTC, to the ms; None for one that no calendar has."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):  # an import may say anything
        return None
