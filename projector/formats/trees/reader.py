"""Message trees: OpenAssistant's nested ones, a tree a line, and lists whose messages name their parent.

Siblings come in the order of the file, but those with a rank before it, the best one last: of several answers the last
one is followed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from projector.formats.format import FormatError
from projector.formats.shared.fields import Fields, items_of, lines_of
from projector.formats.shared.history import History, HistoryMessage, Loss, text_block

if TYPE_CHECKING:
    from collections.abc import Iterator

    from projector.events import Role
    from projector.json_text import JsonText

T = TypeVar("T")
_EXPECTED: Final = 'a message tree was expected: an object with "prompt", or messages with an id, a parent id and a "role"'
_ROLES: Final[dict[str, Role]] = {
    "prompter": "user",
    "human": "user",
    "user": "user",
    "assistant": "assistant",
    "system": "system",
}
_IDS: Final = ("message_id", "user_message_id", "id")
_PARENTS: Final = ("parent_id", "parent_message_id")
_PLACED: Final = ("text", "role", "replies", "created_date", "model_name", *_IDS, *_PARENTS)


class _Node(NamedTuple):
    fields: Fields
    parent: str | None
    rank: int | None


def read(text: str) -> Iterator[History]:
    """The trees of a document: nested ones a line, or a list of messages (one JSON list, or one message a line).

    Raises `FormatError` with the place and what was expected, behind the trees that are whole.
    """
    lines = lines_of(text)
    first = next(lines, None)
    if first is None:
        raise FormatError(f"the file is empty: {_EXPECTED}")
    if text.lstrip("\ufeff \t\r\n")[:1] == "[":
        items = items_of(text.removeprefix("\ufeff"), "the document")
        if not items:
            raise FormatError(f"the document is an empty list: {_EXPECTED}")
        yield from _read_list(Fields(item, f"message {number}") for number, item in enumerate(items, 1))
    elif "prompt" in Fields(*first):
        for line, place in lines_of(text):
            yield _read_nested(Fields(line, place))
    else:
        yield from _read_list(Fields(line, place) for line, place in lines_of(text))


def _read_nested(tree: Fields) -> History:
    prompt = tree.object("prompt")
    if prompt is None:
        raise tree.wrong(f"{_EXPECTED}, not one with {sorted(tree.names())[:8]}")
    drafts: list[HistoryMessage] = []
    waiting: list[tuple[Fields, int | None]] = [(prompt, None)]
    while waiting:
        message, parent = waiting.pop()
        drafts.append(_draft(message, parent))
        replies = _ranked([(reply, reply.whole("rank")) for reply in message.objects("replies")])
        waiting += [(reply, len(drafts) - 1) for reply in reversed(replies)]
    return History(tuple(drafts), tree.maybe_text("message_tree_id"), metadata=tree.rest("message_tree_id", "prompt"))


def _read_list(messages: Iterator[Fields]) -> Iterator[History]:
    nodes: dict[str, _Node] = {}
    for message in messages:
        own = _first(message, _IDS)
        if own is None or "text" not in message or "role" not in message:
            raise message.wrong(f"{_EXPECTED}, not one with {sorted(message.names())[:8]}")
        if own in nodes:
            raise message.wrong(f"the id {own!r} is that of another message ({nodes[own].fields.place})")
        nodes[own] = _Node(message, _first(message, _PARENTS), message.whole("rank"))
    children: dict[str, list[str]] = {}
    for own, node in nodes.items():
        if node.parent is not None and node.parent in nodes:
            children.setdefault(node.parent, []).append(own)
    placed = 0
    for own, node in nodes.items():
        if node.parent is None or node.parent not in nodes:
            history = _read_from(own, nodes, children)
            placed += len(history.drafts)
            yield history
    if placed < len(nodes):
        raise FormatError(f"{len(nodes) - placed} messages hang on nothing but each other: a root was expected")


def _read_from(root: str, nodes: dict[str, _Node], children: dict[str, list[str]]) -> History:
    drafts: list[HistoryMessage] = []
    waiting: list[tuple[str, int | None]] = [(root, None)]
    while waiting:
        own, parent = waiting.pop()
        drafts.append(_draft(nodes[own].fields, parent))
        replies = _ranked([(child, nodes[child].rank) for child in children.get(own, [])])
        waiting += [(reply, len(drafts) - 1) for reply in reversed(replies)]
    first = nodes[root]
    lost = f"{first.fields.place}: the message it answers ({first.parent}) is not in this file"
    return History(tuple(drafts), root, losses=(Loss(lost),) if first.parent is not None else ())


def _draft(message: Fields, parent: int | None) -> HistoryMessage:
    role = _ROLES.get(message.text("role"))
    if role is None:
        raise message.wrong(f'"role" should be one of {", ".join(_ROLES)}, not {message.text("role")!r}')
    text = message.text("text")
    return HistoryMessage(
        role,
        (text_block(text),) if text else (),
        parent=parent,
        provider_ref=_first(message, _IDS),
        created_at=message.time("created_date"),
        metadata=_metadata(message),
        model=message.maybe_text("model_name") if role == "assistant" else None,
    )


def _metadata(message: Fields) -> dict[str, JsonText]:
    rest = message.rest(*_PLACED)
    model = message.raw("model_name")  # of a prompt: who wrote it, not who answers
    return rest | ({"model_name": model} if model is not None and message.text("role") != "assistant" else {})


def _ranked(replies: list[tuple[T, int | None]]) -> list[T]:
    ordered = sorted(replies, key=lambda reply: (reply[1] is not None, -(reply[1] or 0)))
    return [reply for reply, _ in ordered]


def _first(message: Fields, names: tuple[str, ...]) -> str | None:
    return next((found for name in names if (found := message.maybe_text(name)) is not None), None)
