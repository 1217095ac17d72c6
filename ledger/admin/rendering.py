"""Conversations as providers and programs take them, for `export --format`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ledger.admin.output import print_json, print_line, print_warning
from ledger.transfer.archive import write_lines
from ledger.transfer.sinks import open_sink
from ledger.transfer.sources import MESSAGES
from projector.formats import STREAM_WRITERS
from projector.formats.registry import NAMED
from projector.json_text import dump

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ledger.ledger import Ledger
    from projector.formats import Export
    from projector.formats.shared.history import Loss


async def render(ledger: Ledger, conversation: str | None, format_name: str, output: Path | None, *, as_json: bool) -> None:
    """One conversation as one document, events of a stream one a line; of all of them each on a line with its id."""
    names = (
        [conversation]
        if conversation is not None
        else sorted([info.conversation async for info in ledger.conversations(archived=True)])
    )
    reports = []
    with open_sink(output) as write:
        for name in names:
            if format_name == MESSAGES:
                losses: list[Loss] = []
                async for line in write_lines(ledger.engine, name, losses):
                    write(line)
                reports.append({"conversation": name, "format": format_name, "losses": list(map(msgspec.to_builtins, losses))})
                continue
            export = await ledger.export(name, format_name)
            report = report_of(name, format_name, export)
            if as_json and output is None:
                write(dump(report | {"payload": export.payload}))
                continue
            reports.append(report)
            if conversation is None:
                write(dump({"conversation": name} | _as_object(export.payload, format_name)))
            else:
                for line in export.payload if format_name in STREAM_WRITERS else [export.payload]:
                    write(dump(line))
    if as_json and output is not None:
        print_json({"output": str(output), "conversations": reports})
    elif not as_json:
        if output is not None:
            print_line(f"{output}: {len(names):,} conversations")
        tell_changes(reports)


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
