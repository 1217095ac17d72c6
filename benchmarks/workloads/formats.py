"""What it costs to take in recorded files: from bytes on disk to a committed transcript, beside `json.loads` of them.

The same random talk as a Chat Completions stream, an Anthropic stream, a Responses stream and a Claude Code session, all
as JSON lines. Ours detects the format, looks the file through and imports it into a new conversation of one ledger.
"""

from __future__ import annotations

import functools
import itertools
import json
import statistics
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from benchmarks.measuring import compare, interleave
from benchmarks.talk import texts
from ledger import open_ledger
from ledger.transfer.files import open_lines
from ledger.transfer.importing import import_history
from ledger.transfer.sources import read_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.measuring import Bench, Figure, Side
    from ledger import Ledger


class Sizes(NamedTuple):
    """How many lines a file, how often."""

    lines: int
    rounds: int


FULL: Final = Sizes(20_000, 7)
SMOKE: Final = Sizes(1_000, 2)
Record = dict[str, Any]


def measure(bench: Bench, sizes: Sizes) -> list[Figure]:
    """Ratios of rates: `formats.chat`, `formats.anthropic`, `formats.responses`, `formats.claude-code`."""
    found = bench.run(_measure(bench.folder, sizes))
    figures = []
    for name in _FILES:
        ours, theirs = found[name], found[f"{name}.json"]
        beside = {"lines_per_s": statistics.median(ours), "other_per_s": statistics.median(theirs)}
        what = f"import of {sizes.lines:,} lines of {name}"
        figures.append(compare(f"formats.{name}", what, "json.loads of the lines", ours, theirs, beside))
    return figures


async def _measure(folder: Path, sizes: Sizes) -> dict[str, list[float]]:
    paths = {name: folder / f"formats-{name}.jsonl" for name in _FILES}
    for name, path in paths.items():
        path.write_text("".join(json.dumps(record) + "\n" for record in _FILES[name](sizes.lines)), encoding="utf-8")
    numbers = itertools.count(1)
    async with open_ledger(str(folder / "formats.db")) as ledger:
        sides: dict[str, Side] = {}
        for name, path in paths.items():
            sides[f"{name}.json"] = functools.partial(_parse, path)
            sides[name] = functools.partial(_import, ledger, path, sizes.lines, numbers)
        await interleave(sides, 1)  # warms up
        return await interleave(sides, sizes.rounds)


async def _parse(path: Path) -> float:
    """Lines a second."""
    began = time.perf_counter()
    count = 0
    with path.open("rb") as file:
        for line in file:
            json.loads(line)
            count += 1
    return count / (time.perf_counter() - began)


async def _import(ledger: Ledger, path: Path, lines: int, numbers: itertools.count[int]) -> float:
    """Lines a second."""
    began = time.perf_counter()
    with ExitStack() as stack:
        [recorded] = read_file(stack, stack.enter_context(open_lines(path)), path)
        await import_history(ledger.engine, f"formats-{next(numbers)}", recorded)
    return lines / (time.perf_counter() - began)


def _chat(lines: int) -> list[Record]:
    def chunk(delta: Record, reason: str | None = None) -> Record:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}

    said = [chunk({"content": text}) for text in texts(lines - 2)]
    return [chunk({"role": "assistant", "content": ""}), *said, chunk({}, "stop")]


def _anthropic(lines: int) -> list[Record]:
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": {"input_tokens": 1}}
    deltas = [{"type": "text_delta", "text": text} for text in texts(lines - 5)]
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]


def _responses(lines: int) -> list[Record]:
    said = texts(lines - 5)
    place = {"item_id": "i", "output_index": 0, "content_index": 0}
    part = {"type": "output_text", "text": "".join(said), "annotations": []}
    item = {"id": "i", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    response = {"id": "r", "object": "response", "model": "m", "output": []}
    return [
        {"type": "response.created", "response": response | {"status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": item | {"status": "in_progress", "content": []}},
        {"type": "response.content_part.added", "part": part | {"text": ""}} | place,
        *({"type": "response.output_text.delta", "delta": text} | place for text in said),
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": response | {"status": "completed"}},
    ]


def _claude_code(lines: int) -> list[Record]:
    found: list[Record] = []
    for number, text in enumerate(texts(lines)):
        role = "assistant" if number % 2 else "user"
        message: Record = {"role": role, "content": text}
        if number % 2:
            message = {"role": role, "id": f"m{number}", "model": "m", "content": [{"type": "text", "text": text}]}
        parent = f"u{number - 1}" if number else None
        ids = {"uuid": f"u{number}", "parentUuid": parent, "sessionId": "s", "timestamp": "2025-01-31T12:00:00Z"}
        found.append(ids | {"type": role, "message": message})
    return found


_FILES: Final[dict[str, Callable[[int], list[Record]]]] = {
    "chat": _chat,
    "anthropic": _anthropic,
    "responses": _responses,
    "claude-code": _claude_code,
}
