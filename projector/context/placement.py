"""Where the messages of a view stand in what a provider is sent: an index that a model gives is of that list."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from projector.context.shortening import put_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from projector.message import Message


def messages_at(
    index: int,
    messages: Sequence[Message],
    names: Collection[str],
    write: Callable[[Sequence[Message]], Sequence[Any]],
    *,
    mark: str,
) -> list[str] | None:
    """Which of the messages named stand in the item at an index of what `write` makes of them; None beyond its end.

    A format may put several messages into one item, or one into several; what the system says may stand elsewhere. So
    the text of each is replaced by a sign, `mark` and a number, and looked for in what is written.
    """
    signs = {f"{mark}.{number}.": message.id for number, message in enumerate(messages) if message.id in names}
    shown = {message_id: sign for sign, message_id in signs.items()}
    items = write([put_text(one, shown[one.id]) if one.id in shown else one for one in messages])
    if not 0 <= index < len(items):
        return None
    said = json.dumps(items[index], ensure_ascii=False)
    return [message_id for sign, message_id in signs.items() if sign in said]
