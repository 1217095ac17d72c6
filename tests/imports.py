"""What the tests of imports share: a file taken in as the command does it, and what is said in a conversation then."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from ledger.transfer.files import open_lines
from ledger.transfer.importing import import_history
from ledger.transfer.sources import base_of, name_of, read_file
from ledger.upkeep.verify import verify

if TYPE_CHECKING:
    from pathlib import Path

    from ledger import Ledger
    from ledger.transfer.importing import ImportResult
    from projector import Message


async def imported(ledger: Ledger, path: Path, content: bytes | None = None, format_name: str = "auto") -> list[ImportResult]:
    """What the command does with a file, in this process."""
    if content is not None:
        path.write_bytes(content)
    with ExitStack() as stack:
        found = read_file(stack, stack.enter_context(open_lines(path)), path, format_name)
        names = name_of(base_of(path), found)
        return [await import_history(ledger.engine, name, one) for name, one in zip(names, found, strict=True)]


async def told(ledger: Ledger, conversation: str, branch: Any = "active") -> list[Any]:
    """What is said in a conversation, and where it hangs, whatever ids its messages have."""
    return said(await ledger.transcript(conversation, branch=branch))


def said(messages: list[Message]) -> list[Any]:
    at = {message.id: place for place, message in enumerate(messages)}
    return [
        (one.role, one.status, one.name, one.blocks, one.metadata_text, one.parent_id and at[one.parent_id]) for one in messages
    ]


async def check_order(ledger: Ledger) -> None:
    assert [finding async for finding in verify(ledger)] == []
    assert [finding async for finding in ledger.reconcile() if not finding.is_note] == []


# what has grown


def chat_lines(count: int) -> list[dict[str, Any]]:
    """A talk with tools, in which not each turn has any."""
    found: list[dict[str, Any]] = [{"role": "system", "content": "be brief"}]
    for n in range(count):
        call = {"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": f'{{"n": {n}}}'}}
        found.append({"role": "user", "content": f"question {n}"})
        if n % 2:
            found.append({"role": "assistant", "content": None, "tool_calls": [call]})
            found.append({"role": "tool", "tool_call_id": f"c{n}", "content": f"result {n}"})
        found.append({"role": "assistant", "content": f"answer {n}"})
    return found
