"""Exports of ChatGPT: conversations whose messages hang in a tree (`mapping`), one, a list of them, or one a line.

Of several answers that one is followed which `current_node` goes through: it comes last. Nodes without a message, and
messages without content, are passed over: what hangs on them hangs on what is above them. A message to a tool is a call
of it, what the tool says is the result of the call above it. Source: the exports themselves, for nothing is published.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from projector.formats.chatgpt.parts import Said, left_of, read_call, read_content, result_parts
from projector.formats.shared.fields import Fields, messages_of, says_nothing
from projector.formats.shared.history import History, HistoryMessage, Loss, result_draft
from projector.formats.shared.makers import OPENAI
from projector.json_text import decode, dump, join_fields

if TYPE_CHECKING:
    from collections.abc import Iterator

_EXPECTED: Final = 'an export of ChatGPT was expected: conversations with a "mapping" of nodes'
_ROLES: Final = ("system", "developer", "user", "assistant", "tool")
_EVERYONE: Final = "all"
_MAX_MS: Final = 2**53
_PLACED: Final = ("id", "author", "create_time", "content")
_UNFINISHED: Final = "in_progress"


class _Place(NamedTuple):
    """A node that waits for its turn: the draft above it, and the call above it that no result has answered yet."""

    node: str
    parent: int | None
    call: str | None


def read(text: str) -> Iterator[History]:
    """The conversations of an export. Raises `FormatError` with the place, behind those that are whole."""
    given = messages_of(text, _EXPECTED)
    if isinstance(given, Fields):
        yield _Conversation(given).history()
        return
    for number, one in enumerate(given, 1):
        yield _Conversation(Fields(one.source, f"conversation {number}")).history()


class _Conversation:
    """The tree of a conversation, walked from its roots."""

    def __init__(self, given: Fields) -> None:
        mapping = given.object("mapping")
        if mapping is None:
            raise given.wrong(f"{_EXPECTED}, not one with {sorted(given.names())[:8]}")
        self._given = given
        self._nodes = {name: node for name in mapping.rest() if (node := mapping.object(name)) is not None}
        self._drafts: list[HistoryMessage] = []
        self._losses: list[Loss] = []
        self._passed: Counter[str] = Counter()

    def history(self) -> History:
        given, current = self._given, self._given.maybe_text("current_node")
        followed = self._above(current)
        placed = self._walk(followed)
        if placed < len(self._nodes):
            raise given.wrong(f"{len(self._nodes) - placed} nodes hang on nothing but each other: a root was expected")
        if current is not None and current not in self._nodes:
            self._losses.append(Loss(f"{given.place}: the current node ({current}) is not in this file"))
        self._losses += [Loss(f"{given.place}: {count} {what}") for what, count in self._passed.items()]
        name = given.maybe_text("conversation_id") or given.maybe_text("id")
        rest = given.rest("mapping", "title", "current_node", "id", "conversation_id")
        return History(tuple(self._drafts), name, given.maybe_text("title"), rest, tuple(self._losses))

    def _above(self, node: str | None) -> set[str]:
        """A node and all that it hangs on."""
        found: set[str] = set()
        while node is not None and node in self._nodes and node not in found:
            found.add(node)
            node = self._nodes[node].maybe_text("parent")
        return found

    def _walk(self, followed: set[str]) -> int:
        """Takes the nodes from the roots down, branches one after the other, the one that is followed last."""
        children: dict[str | None, list[str]] = {}
        for name, node in self._nodes.items():
            parent = node.maybe_text("parent")
            if parent is not None and parent not in self._nodes:
                self._losses.append(Loss(f"{node.place}: the node it hangs on ({parent}) is not in this file"))
                parent = None
            children.setdefault(parent, []).append(name)
        waiting = [_Place(name, None, None) for name in reversed(self._ordered(None, children, followed))]
        placed = 0
        while waiting:
            place = waiting.pop()
            placed += 1
            above, call = self._take(place)
            below = self._ordered(place.node, children, followed)
            waiting += [_Place(name, above, call) for name in reversed(below)]
        return placed

    def _ordered(self, node: str | None, children: dict[str | None, list[str]], followed: set[str]) -> list[str]:
        """The children of a node as it lists them, those it does not list behind, the followed one last."""
        listed = [] if node is None else [str(decode(item)) for item, _ in self._nodes[node].items("children")]
        order = {name: at for at, name in enumerate(listed)}
        return sorted(children.get(node, ()), key=lambda name: (name in followed, order.get(name, len(order))))

    def _take(self, place: _Place) -> tuple[int | None, str | None]:
        """The draft and the open call that what hangs on a node hangs on."""
        message = self._nodes[place.node].object("message")
        if message is None:
            return place.parent, place.call
        author = message.need("author")
        role = author.text("role")
        if role not in _ROLES:
            raise author.wrong(f'"role" should be one of {", ".join(_ROLES)}, not {dump(role)}')
        ref = message.maybe_text("id") or place.node
        recipient = message.maybe_text("recipient") or _EVERYONE
        is_call = role == "assistant" and recipient != _EVERYONE
        said = read_call(message, recipient, ref) if is_call else read_content(message)
        self._losses += [Loss(f"{message.place}: {what}") for what in said.losses]
        if role == "tool":
            self._add(self._result(message, author, said, place.call), message, place.parent)
            return len(self._drafts) - 1, None
        if not said.blocks:
            if role != "system":  # each conversation begins with an empty one
                self._passed["messages without content are passed over"] += 1
            return place.parent, place.call
        self._add(_draft(message, author, role, said, ref), message, place.parent)
        return len(self._drafts) - 1, ref if is_call else None

    def _result(self, message: Fields, author: Fields, said: Said, call: str | None) -> HistoryMessage:
        if call is None:
            self._passed["results answer no call above them, or one that is answered"] += 1
        about = message.object("metadata")
        outcome = about.object("aggregate_result") if about is not None else None
        failed = outcome is not None and (outcome.maybe_text("status") or "").startswith("failed")
        ref = call or message.maybe_text("id") or ""
        draft = result_draft(ref, result_parts(said.blocks), status="error" if failed else "ok")
        return replace(draft, name=author.maybe_text("name"))

    def _add(self, draft: HistoryMessage, message: Fields, parent: int | None) -> None:
        author = {name: text for name, text in message.need("author").rest("role", "name").items() if not says_nothing(text)}
        content = left_of(message, is_text=all(block.kind not in ("tool_call", "tool_result") for block in draft.blocks))
        beside = {"author": author, "content": content}
        metadata = message.rest(*_PLACED) | {name: join_fields(fields) for name, fields in beside.items() if fields}
        self._drafts.append(replace(draft, parent=parent, created_at=_time_of(message), metadata=metadata))


def _draft(message: Fields, author: Fields, role: Any, said: Said, ref: str) -> HistoryMessage:
    about = message.object("metadata")
    details = about.object("finish_details") if about is not None else None
    model = about.maybe_text("model_slug") if about is not None and role == "assistant" else None
    return HistoryMessage(
        role,
        said.blocks,
        status="partial" if message.maybe_text("status") == _UNFINISHED else "complete",
        name=author.maybe_text("name"),
        provider_ref=ref,
        model=model,
        provider=OPENAI if model is not None else None,
        finish_reason=details.maybe_text("type") if details is not None else None,
    )


def _time_of(message: Fields) -> int | None:
    """Seconds, with a fraction, as ms."""
    text = message.raw("create_time")
    value = None if text is None else decode(text)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) * 1000 < _MAX_MS:
        raise message.wrong(f'"create_time" should be seconds, not {text}')
    return round(value * 1000)
