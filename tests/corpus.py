"""`python -m tests.corpus [DIR…]`: imports every file of folders of public data into a real ledger, and says what came of it.

For any folder laid out like `shared/data`: a folder a source, a README whose table counts what is in it. Each file is
imported through its reader, or refused; what is a known format must be imported, anything else refused. Each
conversation is recorded in a ledger in a temporary SQLite file and read back; what the data says of itself is compared.
Then `import` takes each file, and every answer that a reading of its own finds in it must be stored: text, calls,
citations, usage, and why it ended. Without DIR the folders beside this repository are read.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile
from argparse import ArgumentParser
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog

from ledger import LedgerError, open_ledger
from projector.formats.format import FormatError
from stream import StreamError
from tests.corpus_import import import_too
from tests.corpus_parts import Check, File, answers, files_of
from tests.corpus_sources import take
from tests.shared_data import FOLDERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger import Ledger
    from projector import Message
    from tests.corpus_parts import Conversation

_SHOWN_FAILURES: Final = 40
_SHOWN_REASON: Final = 110


def look(root: Path, path: Path) -> File:
    """Reads a file and says what is in it; nothing that a file holds may raise anything else."""
    file = File(root, path)
    try:
        take(file)
    except FormatError as error:
        file.refused.append(str(error))
        file.check("it is imported", False, str(error))
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        file.check("a file raises nothing but FormatError", False, f"{type(error).__name__}: {error}")
    return file


async def record(ledger: Ledger, conversation: Conversation) -> tuple[int, list[Message]]:
    """Records a conversation, and reads it back: how many events it has, and its messages."""
    count = 0
    for events in conversation.appends():
        await ledger.record(conversation.id, events)
        count += len(events)
    return count, await ledger.transcript(conversation.id, branch="all")


def alike(ours: Sequence[Message], theirs: Sequence[Message]) -> bool:
    """Whether the ledger gives what the fold gives; times of messages without one are those of the ledger."""

    def key(message: Message) -> tuple[Any, ...]:
        return message.id, message.parent_id, message.role, message.status, message.blocks, message.metadata_text

    return [key(message) for message in ours] == [key(message) for message in theirs]


async def take_in(ledger: Ledger, file: File) -> None:
    """The conversations of a file into the ledger."""
    for conversation in file.conversations:
        try:
            count, messages = await record(ledger, conversation)
        except (StreamError, LedgerError) as error:
            file.check("the ledger takes it", False, str(error))
            continue
        file.events += count
        file.messages += len(messages)
        file.check("the ledger gives what the fold gives", alike(messages, conversation.messages))
        lost = {message.parent_id for message in messages if message.parent_id} - {message.id for message in messages}
        file.check("every message hangs on one that is there", not lost, str(sorted(lost)[:2]))


def against(readme: dict[str, int], files: Sequence[File]) -> list[Check]:
    """What the README counts against what was found; what we do not count is not compared."""
    found = sum((file.counts for file in files), Counter[str]())
    found["files"] = len(files)
    return [
        Check(f"{wanted} {what}", found[what] == wanted, f"{found[what]}")
        for what, wanted in readme.items()
        if what in found or (wanted == 0 and what == "ev")
    ]


async def take_all(ledger: Ledger, imported: Ledger, root: Path, path: Path) -> File:
    """All that is looked at in a file; whatever is wrong with it, the others are looked at."""
    file = look(root, path)
    for step in (take_in(ledger, file), import_too(imported, file)):
        try:
            await step
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            file.check("a file raises nothing of its own", False, f"{type(error).__name__}: {error}")
    return file


async def run(root: Path, every: int, shown: int) -> int:
    """The whole look, or of each source every so manieth file; the exit code."""
    readme = answers((root / "README.md").read_text(encoding="utf-8")) if (root / "README.md").is_file() else {}
    table: list[tuple[str, ...]] = [("source", "files", "conversations", "messages", "events", "answers", "refused", "checks")]
    reasons: list[str] = []
    failures: list[str] = []
    passed = 0
    with tempfile.TemporaryDirectory() as folder:
        async with (
            open_ledger(f"{folder}/corpus.db", durability="normal") as ledger,
            open_ledger(f"{folder}/imported.db", durability="normal") as imported,
        ):
            for source in sorted(path for path in root.iterdir() if path.is_dir()):
                files = [await take_all(ledger, imported, root, path) for path in files_of(source)[::every]]
                own = [(file.name, check) for file in files for check in file.checks]
                own += [(source.name, check) for check in against(readme.get(source.name, {}) if every == 1 else {}, files)]
                table.append(row(source.name, files, own))
                reasons += tell_refused(source.name, files)
                failures += [f"{name}: {check.what} ({check.found})" for name, check in own if not check.holds]
                passed += sum(check.holds for _, check in own)
            findings = [finding for each in (ledger, imported) async for finding in each.reconcile() if not finding.is_note]
            passed += not findings
            failures += [f"reconcile: {finding.conversation}: {finding.what}" for finding in findings]
    print_table(table)
    print("\n".join(["", *reasons, "", *(f"FAILED {failure[:400]}" for failure in failures[:shown])]))
    print(f"{passed} passed, {len(failures)} failed")
    return 1 if failures else 0


def row(source: str, files: Sequence[File], checks: Sequence[tuple[str, Check]]) -> tuple[str, ...]:
    held = sum(check.holds for _, check in checks)
    numbers = (
        len(files),
        sum(len(file.conversations) for file in files),
        sum(file.messages for file in files),
        sum(file.events for file in files),
        sum(file.counts["answers"] for file in files),
        sum(bool(file.refused) for file in files),
    )
    return (source, *(f"{number:,}" for number in numbers), f"{held:,}/{len(checks):,}")


def tell_refused(source: str, files: Sequence[File]) -> list[str]:
    """Why files were refused; alike ones once."""
    why = Counter(reason[:_SHOWN_REASON] for file in files for reason in file.refused)
    return [f"{source}: refused {count} times: {reason}" for reason, count in why.most_common(12)]


def print_table(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for cells in rows:
        left, *right = cells
        print("  ".join([left.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(right, widths[1:], strict=True))]))


def main(given: Sequence[str]) -> int:
    """The command."""
    parser = ArgumentParser(prog="python -m tests.corpus", description="Imports public data and compares what came of it.")
    parser.add_argument("folders", nargs="*", type=Path, default=FOLDERS, metavar="DIR")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="of each source only each N-th file")
    parser.add_argument(
        "--shown", type=int, default=_SHOWN_FAILURES, metavar="N", help="how many failures of a folder are told"
    )
    options = parser.parse_args(given)
    folders: list[Path] = options.folders
    if not folders or not all(folder.is_dir() for folder in folders):
        parser.error("folders of public data are needed, and none is there")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    return max([asyncio.run(run(folder.resolve(), options.every, options.shown)) for folder in folders])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
