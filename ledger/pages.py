"""Pages of the list of conversations, as the command line and HTTP show them, and the cursor from one to the next."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

from ledger.listings import list_conversations
from ledger.records import ConversationInfo, present_conversation
from stream.limits import check_id, check_position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.engine import Engine
    from ledger.tables.conversations import Page


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


def present_page(shown: Sequence[ConversationInfo], cursor: str | None) -> dict[str, Any]:
    """A page as plain values."""
    return {"conversations": [present_conversation(info) for info in shown], "next": cursor}


def make_cursor(info: ConversationInfo) -> str:
    """Where the page behind this conversation begins."""
    return base64.urlsafe_b64encode(f"{info.active_at}:{info.conversation}".encode()).decode().rstrip("=")


def read_cursor(cursor: str) -> ConversationInfo:
    """The conversation that a page ended with, as far as the next one asks. Raises `ValueError`."""
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
        active_at, separator, conversation = text.partition(":")
        if not separator or not active_at.isascii() or not active_at.isdecimal():
            raise ValueError("it holds no time")
        place = check_id("conversation id", conversation), check_position("time", int(active_at))
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{cursor[:80]!r} is no cursor: take the one that the page before ended with") from error
    return ConversationInfo(place[0], 0, 0, None, 0, place[1])


def _narrowed(prefix: str, within: tuple[str, ...]) -> list[str]:
    """The prefixes of what begins with `prefix` and with one of the others; none of them covers another."""
    found: list[str] = []
    for each in sorted(within):  # the shorter one first
        longer = max(prefix, each, key=len)
        if longer.startswith(prefix) and longer.startswith(each) and not longer.startswith(tuple(found)):
            found.append(longer)
    return found
