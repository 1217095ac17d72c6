"""Pages of the lists of conversations and of runs, as command line and HTTP show them, and the cursors between them."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, Final

from ledger.listings import list_conversations, list_runs
from ledger.records import ConversationInfo, present_conversation
from stream.limits import check_id, check_position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.engine import Engine
    from ledger.records import RunInfo
    from ledger.tables.conversations import Page

_OF_RUNS: Final = "run:"  # no cursor of one list is taken for one of the other


async def read_page(
    engine: Engine, page: Page, within: tuple[str, ...] | None = None
) -> tuple[list[ConversationInfo], str | None]:
    """The conversations of a page, and the cursor of the next one; None where this is the last.

    `within`: only ids that begin with one of these prefixes, beside that of the page.
    """
    wanted = page if page.limit is None else page._replace(limit=page.limit + 1)  # one more tells whether there is a next
    prefixes = [page.prefix] if within is None else _narrowed(page.prefix, within)
    found = [info for each in prefixes async for info in list_conversations(engine, wanted._replace(prefix=each))]
    if len(prefixes) > 1:
        found.sort(key=lambda info: (info.active_at, info.conversation), reverse=True)
    shown = found[: page.limit]
    return shown, make_cursor(shown[-1]) if 0 < len(shown) < len(found) else None


async def read_page_of_runs(
    engine: Engine, conversation: str | None, *, status: str | None, after: tuple[str, int], limit: int | None
) -> tuple[list[RunInfo], str | None]:
    """The runs of a page, and the cursor of the next one; None where this is the last."""
    more = None if limit is None else limit + 1
    found = [run async for run in list_runs(engine, conversation, status=status, after=after, limit=more)]
    shown = found[:limit]
    return shown, make_run_cursor(shown[-1]) if 0 < len(shown) < len(found) else None


def present_page(shown: Sequence[ConversationInfo], cursor: str | None) -> dict[str, Any]:
    """A page as plain values."""
    return {"conversations": [present_conversation(info) for info in shown], "next": cursor}


def make_cursor(info: ConversationInfo) -> str:
    """Where the page behind this conversation begins."""
    return _seal("", info.active_at, info.conversation)


def read_cursor(cursor: str) -> ConversationInfo:
    """The conversation that a page ended with, as far as the next one asks. Raises `ValueError`."""
    active_at, conversation = _open(cursor, "")
    return ConversationInfo(conversation, 0, 0, None, 0, active_at)


def make_run_cursor(run: RunInfo) -> str:
    """Where the page behind this run begins."""
    return _seal(_OF_RUNS, run.seq, run.conversation)


def read_run_cursor(cursor: str) -> tuple[str, int]:
    """The conversation and the seq of the run that a page ended with. Raises `ValueError`."""
    seq, conversation = _open(cursor, _OF_RUNS)
    return conversation, seq


def _seal(of: str, number: int, conversation: str) -> str:
    return base64.urlsafe_b64encode(f"{of}{number}:{conversation}".encode()).decode().rstrip("=")


def _open(cursor: str, of: str) -> tuple[int, str]:
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
        number, separator, conversation = text.removeprefix(of).partition(":")
        if not text.startswith(of) or not separator or not number.isascii() or not number.isdecimal():
            raise ValueError("it is of no such list")
        return check_position("number", int(number)), check_id("conversation id", conversation)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{cursor[:80]!r} is no cursor: take the one that the page before ended with") from error


def _narrowed(prefix: str, within: tuple[str, ...]) -> list[str]:
    """The prefixes of what begins with `prefix` and with one of the others; none of them covers another."""
    found: list[str] = []
    for each in sorted(within):  # the shorter one first
        longer = max(prefix, each, key=len)
        if longer.startswith(prefix) and longer.startswith(each) and not longer.startswith(tuple(found)):
            found.append(longer)
    return found
