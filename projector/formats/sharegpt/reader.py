"""ShareGPT conversations: `{"conversations": [{"from": "human", "value": …}, …]}`, one, a list of them, or one a line.

Calls have no ids there: a result answers the oldest call that is still open. What else a conversation or a message has
is kept as its metadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from projector.formats.shared.fields import Fields, is_whole, messages_of
from projector.formats.shared.history import History, HistoryMessage, Loss, call_block, result_draft, text_block, text_parts
from projector.json_text import dump

if TYPE_CHECKING:
    from collections.abc import Iterator

    from projector.events import Role
    from projector.json_text import JsonText
    from projector.message import Block

_EXPECTED: Final = 'ShareGPT was expected: an object with "conversations", whose messages have "from" and "value"'
_ROLES: Final[dict[str, Role]] = {
    "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "chatgpt": "assistant",
    "bing": "assistant", "bard": "assistant", "model": "assistant", "system": "system",
}  # fmt: skip
_CALLS: Final = ("function_call", "function-call", "tool_call")
_RESULTS: Final = ("observation", "tool", "function_response", "function-response", "tool_response")
_KNOWN: Final = (*_ROLES, *_CALLS, *_RESULTS)


def read(text: str) -> Iterator[History]:
    """The conversations of a document: a list of them, one of them, or the messages of one. Raises `FormatError`."""
    given = messages_of(text, _EXPECTED)
    if isinstance(given, Fields):
        yield _history(given)
    elif given and "from" in given[0]:
        conversation = _Conversation()
        conversation.take_all(given)
        yield History(tuple(conversation.drafts), losses=tuple(conversation.losses))
    else:
        for one in given:
            yield _history(one)


def _history(given: Fields) -> History:
    if "conversations" not in given:
        raise given.wrong(f"{_EXPECTED}, not one with {sorted(given.names())[:8]}")
    conversation = _Conversation()
    if system := given.maybe_text("system"):
        conversation.drafts.append(HistoryMessage("system", (text_block(system),)))
    conversation.take_all(given.objects("conversations"))
    metadata, name = given.rest("conversations", "system", "id"), given.raw("id")
    if name is not None and name.startswith('"'):
        name = given.text("id")
    return History(tuple(conversation.drafts), name, metadata=metadata, losses=tuple(conversation.losses))


class _Conversation:
    """Messages in their order, and the calls that are not answered yet."""

    def __init__(self) -> None:
        self.drafts: list[HistoryMessage] = []
        self.losses: list[Loss] = []
        self._open: list[str] = []
        self._calls = 0

    def take_all(self, messages: list[Fields]) -> None:
        for message in messages:
            self.drafts.append(self._read(message))

    def _read(self, message: Fields) -> HistoryMessage:
        speaker, rest = message.text("from"), message.rest("from", "value")
        if speaker not in _KNOWN:
            raise message.wrong(f'"from" should be one of {", ".join(_KNOWN)}, not {dump(speaker)}')
        text = message.maybe_text("value") or ""
        if speaker in _RESULTS:
            return HistoryMessage("tool", result_draft(self._answered(message), text_parts(text)).blocks, metadata=rest)
        if speaker in _CALLS:
            return HistoryMessage("assistant", self._call(text, message), metadata=rest)
        return HistoryMessage(_ROLES[speaker], (text_block(text),) if text else (), metadata=rest)

    def _call(self, text: str, message: Fields) -> tuple[Block, ...]:
        """What was called: one call, or a list of them."""
        calls = _calls_of(text, message.place)
        if not calls or any(call.raw("name") is None for call in calls):
            self._lose(f"{message.place}: a call that names no tool is kept as text")
            return (text_block(text),) if text else ()
        for call in calls:
            given = "arguments" if call.raw("arguments") else "parameters"
            if left := sorted(call.rest("name", given)):
                self._lose(f"{call.place}: fields that a call has no place for: {', '.join(left)}")
        return tuple(self._block(call) for call in calls)

    def _block(self, call: Fields) -> Block:
        arguments = call.raw("arguments") or call.raw("parameters") or "{}"
        if arguments.startswith('"'):
            arguments = call.maybe_text("arguments" if "arguments" in call else "parameters") or "{}"
        self._open.append(self._next_id())
        return call_block(call.text("name"), self._open[-1], arguments, is_json=is_whole(arguments))

    def _answered(self, message: Fields) -> str:
        if self._open:
            return self._open.pop(0)
        self._lose(f"{message.place}: a result that answers no call")
        return self._next_id()

    def _next_id(self) -> str:
        self._calls += 1
        return f"call_{self._calls}"

    def _lose(self, what: str) -> None:
        self.losses.append(Loss(what))


def _calls_of(text: JsonText, place: str) -> list[Fields]:
    """None where the text is no JSON object and no list of objects."""
    given = text.strip()
    if not is_whole(given) or given[:1] not in ("{", "["):
        return []
    wrapped = Fields(f'{{"calls":{given if given.startswith("[") else f"[{given}]"}}}', place)
    items = wrapped.items("calls")
    return wrapped.objects("calls") if all(item.lstrip().startswith("{") for item, _ in items) else []
