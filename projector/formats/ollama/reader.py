"""Requests of Ollama's chat: the history that a client sends, as messages.

Calls may have no ids, then their results follow in order, or by the name of the tool.
Source: the *API* document of Ollama, Generate a chat completion.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from projector.formats.ollama.parts import EXTRA, KNOWN, PROVIDER, message_blocks
from projector.formats.shared.fields import Fields, messages_of, says_nothing, shown
from projector.formats.shared.history import History, HistoryMessage, result_draft, text_parts
from projector.json_text import dump, join_fields

if TYPE_CHECKING:
    from collections.abc import Iterator

    from projector.json_text import JsonText
    from projector.message import Block

_EXPECTED: Final = 'a request of Ollama\'s chat was expected: an object with "messages", or a list of them'
_ROLES: Final = ("system", "user", "assistant", "tool")
_OF_RESULT: Final = ("role", "content", "tool_call_id")
_NAMES: Final = ("tool_name", "name")


def read(text: str) -> Iterator[History]:
    """The history of a request, or of a list of messages. Raises `FormatError` with the place and what was expected."""
    given = messages_of(text, _EXPECTED)
    metadata: dict[str, JsonText] = {}
    messages = given if isinstance(given, list) else given.objects("messages")
    if isinstance(given, Fields):
        if "messages" not in given:
            raise given.wrong(f"{_EXPECTED}, not one with {sorted(given.names())[:8]}")
        metadata = given.rest("messages")
    talk = _Talk()
    yield History(tuple(talk.read(message) for message in messages), metadata=metadata)


class _Talk:
    """Messages in their order, and the calls that wait for a result."""

    def __init__(self) -> None:
        self._answers = itertools.count(1)
        self._open: list[Block] = []

    def read(self, message: Fields) -> HistoryMessage:
        """The next message."""
        role: Any = message.text("role")
        if role not in _ROLES:
            raise message.wrong(f'"role" should be one of {", ".join(_ROLES)}, not {shown(dump(role))}')
        if not any(name in message or message.has(name) for name in KNOWN[1:]):
            raise message.wrong(f"one of {', '.join(KNOWN[1:])} was expected, and none is there")
        if role == "tool":
            return self._result(message)
        number = next(self._answers) if role == "assistant" else 0
        calls = itertools.count(1)
        blocks = message_blocks(message, lambda ref: ref or f"{PROVIDER}.{number}.call{next(calls)}")
        if role == "assistant":
            self._open = [block for block in blocks if block.kind == "tool_call"]
        provider = PROVIDER if role == "assistant" else None
        return HistoryMessage(role, tuple(blocks), metadata=_extra(message, *KNOWN), provider=provider)

    def _result(self, message: Fields) -> HistoryMessage:
        ref = message.maybe_text("tool_call_id")
        name = next((name for field in _NAMES if (name := message.maybe_text(field))), None)
        named = [call for call in self._open if ref in (None, call.tool_call_id) and name in (None, call.name)]
        call = named[0] if named else None
        if call is not None:
            self._open.remove(call)
        told = ref or (call.tool_call_id if call is not None else None) or ""
        result = result_draft(told, text_parts(message.maybe_text("content") or ""))
        known = (*_OF_RESULT, *(_NAMES if call is not None else ()))
        return replace(result, metadata=_extra(message, *known))


def _extra(message: Fields, *known: str) -> dict[str, JsonText]:
    rest = {name: text for name, text in message.rest(*known).items() if not says_nothing(text)}
    return {EXTRA: join_fields(rest)} if rest else {}
