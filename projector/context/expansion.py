"""Expansion: a model asks for the whole of a compacted message, and gets it or is told why not."""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from projector.context.json_answers import objects_in, whole_number
from projector.context.ranges import check_range, items_of
from projector.context.shortening import text_of
from projector.context.tokens import Tokenizer, estimate, weight_of
from projector.events import ContextExpanded

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from projector.context.expiration import Applied
    from projector.message import Message

_KINDS: Final = ("type", "step", "nextStep", "next_step")
_NAME: Final = re.compile(r"expand[-_ ]?message", re.IGNORECASE)
_AS_A_VALUE: Final = re.compile(r"""["':=]\s*expand[-_ ]?message""", re.IGNORECASE)
_WHICH: Final = re.compile(r"message[-_ ]?(?:index|id)\b", re.IGNORECASE)
Label = Literal[
    "unknown id",
    "not compacted",
    "left out",
    "original not preserved",
    "already expanded",
    "stale view",
    "no such index",
    "bad range",
    "not understood",
]
_HOW: Final = (
    'Ask with the JSON {"nextStep": {"type": "expand-message", "messageIndex": 5}}; "messageId" may stand in the place of '
    '"messageIndex".'
)
REASONS: Final[dict[Label, str]] = {
    "unknown id": "There is no message of that id in this conversation. Look the id up in the current view.",
    "not compacted": "That message is shown in full already: nothing of it was left out.",
    "left out": "That message stands outside of what is shown now: a window, or a summary, stands for it.",
    "original not preserved": "The full text of that message was not kept, so it can't be shown again.",
    "already expanded": "That message was expanded before and is shown in full: read it where it stands.",
    "stale view": "The index is of a view that has changed since. Take the index from the current view.",
    "no such index": f"There is no message at that index. Indexes are whole numbers that count from 0. {_HOW}",
    "bad range": (
        "An item range is two whole numbers: the first item, counted from 0, and the end, which is not included: "
        f'"itemRange": [40, 50]. {_HOW}'
    ),
    "not understood": f"That looks like a request to expand a message, but it can't be read. {_HOW}",
}
TEACHING: Final = """\
## Message Expansion

Older results may be **compacted**, to save tokens. You know them by `[Compacted: ...]` at their end, or by
`[AI Summary of N chars...]` at their beginning. What matters most is still there, details are not.

**Expand one when**
- you need details that its short form leaves out,
- the user asks about something that it held,
- you are about to quote exact data from it.

**How:** answer with this step. `messageIndex` counts the messages that you were sent from 0, without instructions that
stand outside of them; where you know the id of a message, give `messageId` in its place. `itemRange` is optional: the
first item of a list (or line of a text), and the end, which is not included.
```json
{
  "taskComplete": false,
  "nextStep": {
    "type": "expand-message",
    "messageIndex": 5,
    "itemRange": [40, 50],
    "reason": "The user asks about item 47 of the search results"
  }
}
```

The message is then shown to you in full, in its place. If that can't be done you are told why: don't ask for it again.
"""
"""What teaches a model to expand; it goes into a system prompt."""


class Request(msgspec.Struct, frozen=True):
    """What a model asks for: a message by its index in the view that it was shown, or by its id."""

    index: int | None = None
    message_id: str | None = None
    item_range: tuple[int, int] | None = None
    reason: str = ""


class Refusal(msgspec.Struct, frozen=True, eq=False):
    """Why nothing is expanded; `reason` can be shown to the model. Two of the same label are equal."""

    label: Label
    details: str = ""

    @property
    def reason(self) -> str:
        """One text for each label, and behind it what else is known."""
        return f"{REASONS[self.label]} {self.details}".rstrip()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Refusal) and self.label == other.label

    def __hash__(self) -> int:
        return hash(self.label)


class Hint(msgspec.Struct, frozen=True):
    """What can be known of a compacted message without its expansion. `summary` is what the view shows of it."""

    summary: str
    item_count: int


def expand(
    path: Sequence[Message],
    applied: Applied,
    message_id: str,
    *,
    item_range: tuple[int, int] | None = None,
    reason: str = "",
    tokenizer: Tokenizer = estimate,
) -> ContextExpanded | Refusal:
    """The expansion of a message, to be recorded, or why there is none.

    Once it is recorded the message counts from that turn again. What was removed or stubbed can be expanded, too.
    """
    original = next((message for message in path if message.id == message_id), None)
    if original is None:
        return Refusal("unknown id")
    state = applied.states.get(message_id)
    if state is None:
        return Refusal("already expanded" if message_id in applied.expanded else "not compacted")
    if not state.can_expand:
        return Refusal("original not preserved")
    if item_range is not None:
        try:
            check_range(item_range)
        except ValueError:
            return Refusal("bad range")
    shown = next((message for message in applied.messages if message.id == message_id), None)
    return ContextExpanded(
        applied.turn,
        message_id,
        item_range,
        state.strategy,
        0 if shown is None else weight_of(shown, tokenizer),
        weight_of(original, tokenizer),
        reason or None,
    )


def hint(path: Sequence[Message], applied: Applied, message_id: str) -> Hint | Refusal:
    """What a compacted message holds, without showing it."""
    original = next((message for message in path if message.id == message_id), None)
    if original is None:
        return Refusal("unknown id")
    if message_id not in applied.states:
        return Refusal("not compacted")
    shown = next((text_of(message) for message in applied.messages if message.id == message_id), "")
    return Hint(shown, len(items_of(text_of(original))))


def find_message(request: Request, shown: Sequence[Message], *, view_id: str, current_view_id: str) -> str | Refusal:
    """The id of the message that a request means. An index is of the view that the model was shown, `view_id`."""
    if request.message_id is not None:
        return request.message_id
    if view_id != current_view_id:
        return Refusal("stale view")
    if request.index is None or not 0 <= request.index < len(shown):
        return Refusal("no such index")
    return shown[request.index].id


def read_request(answer: str | None) -> Request | Refusal | None:
    """The step in a model's answer that asks for an expansion; None if it holds none. Never raises.

    The step is `{"nextStep": {"type": "expand-message", ...}}`, or an object whose `type` or `step` is `expand-message`
    or `ExpandMessage`; words, fences and braces may stand around it, numbers may be texts. What looks like one and can't
    be followed is a `Refusal` that says how to ask.
    """
    if answer is None or _NAME.search(answer) is None:
        return None
    refusal: Refusal | None = None
    left, behind = list[str](), 0
    for found in objects_in(answer):
        left.append(answer[behind : found.start])
        behind = found.end
        for step in _steps(found.value):
            request = _read_step(step)
            if isinstance(request, Request):
                return request
            if refusal is None:
                refusal = request
    if refusal is None and _is_like_one("".join([*left, answer[behind:]])):
        return Refusal("not understood")
    return refusal


def notice(found: ContextExpanded | Refusal, message_id: str) -> str:
    """What the model is told after its request."""
    if isinstance(found, Refusal):
        return f"[Nothing was expanded. {found.reason}]"
    part = "in full" if found.item_range is None else f"with its items {found.item_range[0]} up to {found.item_range[1]}"
    because = f" Reason: {found.reason}" if found.reason else ""
    return f"[Message {message_id} is shown {part} again.{because}]"


def _is_like_one(rest: str) -> bool:
    """Whether what is left of an answer without its JSON seems to be a step that went wrong, not talk about one."""
    named = _AS_A_VALUE.search(rest)
    return (named is not None and "{" in rest[: named.start()]) or (
        _NAME.search(rest) is not None and _WHICH.search(rest) is not None
    )


def _steps(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The objects that ask for an expansion, in an object and all that stands in it."""
    waiting: deque[object] = deque([value])
    while waiting:
        one = waiting.popleft()
        if isinstance(one, list):
            waiting += one
        elif isinstance(one, dict):
            if any(_is_named(one.get(key)) for key in _KINDS):
                yield one
            yield from (inner for key, inner in one.items() if _is_named(key) and isinstance(inner, dict))
            waiting += one.values()


def _read_step(step: dict[str, Any]) -> Request | Refusal:
    fields = {_plain(key): value for key, value in step.items()}
    index, message_id, reason = whole_number(fields.get("messageindex")), fields.get("messageid"), fields.get("reason")
    found = Request(
        index,
        message_id if isinstance(message_id, str) and message_id else None,
        reason=reason if isinstance(reason, str) else "",
    )
    if found.index is None and found.message_id is None:
        return Refusal("no such index")
    item_range = fields.get("itemrange")
    if item_range is None:
        return found
    if isinstance(item_range, list):
        item_range = [whole_number(end) for end in item_range]
    try:
        return msgspec.structs.replace(found, item_range=check_range(item_range))
    except ValueError:
        return Refusal("bad range")


def _is_named(value: object) -> bool:
    return isinstance(value, str) and _plain(value) == "expandmessage"


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "").replace("_", "").replace(" ", "")
