"""Conversations as providers and programs take them, for `export --format`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ledger.admin.failures import Failed, as_failed, end, export_each
from ledger.admin.output import counted, print_json, print_line, print_warning
from ledger.signs import harmless_json
from ledger.transfer.archive import write_lines
from ledger.transfer.formats import MESSAGES
from ledger.transfer.sinks import open_sink
from projector.formats import STREAM_WRITERS
from projector.formats.registry import NAMED
from projector.json_text import readable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ledger.ledger import Ledger
    from projector.formats import Export
    from projector.formats.shared.history import Loss


async def render(ledger: Ledger, conversation: str | None, format_name: str, output: Path | None, *, as_json: bool) -> None:
    """One conversation as one document, events of a stream one a line; of all of them each on a line with its id.

    Raises `ProblemsFound` where some of all could not be exported, after they were told.
    """
    failed: list[Failed] = []
    is_told = as_json and output is None

    async def one(name: str, write: Callable[[str], Any]) -> dict[str, Any]:
        if format_name == MESSAGES:
            losses: list[Loss] = []
            async for line in write_lines(ledger.engine, name, losses):
                write(line)
            return {"conversation": name, "format": format_name, "losses": list(map(msgspec.to_builtins, losses))}
        export = await ledger.export(name, format_name)
        if not _says_something(export.payload, format_name):
            raise ValueError(f"conversation {name!r} has no message on its path that can be said: there is nothing to export")
        report = report_of(name, format_name, export)
        for line in _lines(report, export.payload, is_told=is_told, is_alone=conversation is not None):
            write(harmless_json(readable(line)))  # others' words, in a file that somebody may look at
        return report

    with open_sink(output) as write:
        if conversation is not None:
            reports = [await one(conversation, write)]
        else:
            names = sorted([info.conversation async for info in ledger.conversations(archived=True)])
            reports = await export_each(names, write, one, failed)
    if as_json and output is not None:
        print_json({"output": str(output), "conversations": reports} | as_failed(failed))
    elif not as_json:
        if output is not None:
            print_line(f"{output}: {counted(len(reports), 'conversation')}")
        tell_changes(reports)
    end(failed)


def _says_something(payload: Any, format_name: str) -> bool:
    name = NAMED[format_name].lists[0] if format_name in NAMED else ""
    return bool(payload.get(name, payload) if isinstance(payload, dict) else payload)


def _lines(report: dict[str, Any], payload: Any, *, is_told: bool, is_alone: bool) -> list[Any]:
    """What is written of an export: with its report for programs, alone as it is, or beside others under its id."""
    if is_told:
        return [report | {"payload": payload}]
    if not is_alone:
        return [{"conversation": report["conversation"]} | _as_object(payload, report["format"])]
    return list(payload) if report["format"] in STREAM_WRITERS else [payload]


def _as_object(payload: Any, format_name: str) -> dict[str, Any]:
    """What `import` reads again from a line."""
    if isinstance(payload, dict):
        return payload
    return {"events" if format_name in STREAM_WRITERS else NAMED[format_name].lists[0]: payload}


def report_of(conversation: str, format_name: str, export: Export) -> dict[str, Any]:
    """What an export had no place for, and what was changed in it."""
    return {
        "conversation": conversation,
        "format": format_name,
        "losses": [msgspec.to_builtins(loss) for loss in export.losses],
        "repairs": [msgspec.to_builtins(repair) for repair in export.repairs],
    }


def tell_changes(reports: Sequence[dict[str, Any]]) -> None:
    """Says it on standard error."""
    for report in reports:
        for kind, word in (("losses", "lost"), ("repairs", "mended")):
            for change in report.get(kind, ()):
                where = f" (message {change['message_id']})" if change.get("message_id") else ""
                print_warning(f"{report['conversation']}: {word}: {change['what']}{where}")
