"""A conversation that was erased looks erased: what there was of it, and when it went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledger.admin.output import moment, print_line

if TYPE_CHECKING:
    from ledger.ledger import Ledger


async def erased(ledger: Ledger, conversation: str | None) -> dict[str, Any] | None:
    """What was told when it was erased; None for one that never was."""
    info = None if conversation is None else await ledger.tables.conversation(conversation)
    return None if info is None else info.erased


async def print_erased(ledger: Ledger, conversation: str | None) -> bool:
    """Says so of one that was erased; whether it was."""
    found = await erased(ledger, conversation)
    if found is not None:
        print_line(f"{conversation}: {told_of_erased(found)}", "magenta")
    return found is not None


def told_of_erased(found: dict[str, Any]) -> str:
    """When, and how much; numbers that an old version did not keep are left out."""
    counts = [
        f"{found[name]:,} {name if found[name] != 1 else name[:-1]}" for name in ("messages", "runs", "events") if name in found
    ]
    when = f" at {moment(found['at'])} UTC" if isinstance(found.get("at"), int) else ""
    state = "erased" if found.get("is_done", True) else "being erased"
    return f"{state}{when}: {', '.join(counts)} gone" if counts else f"{state}{when}"
