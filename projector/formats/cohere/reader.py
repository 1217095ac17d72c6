"""Requests of Cohere's Chat interface, both versions: the history that a client sends, as messages.

In the first version calls have no ids: a result repeats its call, and each gets the id of its place.
Source: the API reference of *Chat* (v2) and *Chat* (v1) of Cohere.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from projector.formats.cohere.parts import PROVIDER, answer_blocks, content_blocks, extra, result_parts
from projector.formats.cohere.stream_reader import CohereStream
from projector.formats.format import FormatError
from projector.formats.shared.blocks import blocks_of, part_data, usage_in
from projector.formats.shared.fields import Fields, items_of, shown
from projector.formats.shared.history import History, HistoryMessage, call_block, result_draft, text_block
from projector.json_text import decode, dump

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from projector.json_text import JsonText
    from projector.message import Block

_EXPECTED: Final = 'a request of Cohere\'s Chat was expected: an object with "messages", or with "message" and "chat_history"'
_ROLES: Final = ("system", "user", "assistant", "tool")
_FIRST_ROLES: Final = {"SYSTEM": "system", "USER": "user", "CHATBOT": "assistant", "TOOL": "tool"}
_OF_FIRST: Final = ("message", "chat_history", "preamble", "tool_results")
_OF_ANSWER: Final = ("text", "response_id", "generation_id", "tool_calls", "citations", "meta", "finish_reason", "chat_history")


def read(text: str) -> Iterator[History]:
    """The history of a request, of a list of messages, or of an answer of the first version, which repeats it.

    Raises `FormatError` with the place and what was expected.
    """
    text = text.removeprefix("\ufeff")
    if text.lstrip().startswith("["):
        messages = [Fields(item, f"message {at}") for at, item in enumerate(items_of(text, "the document"), 1)]
        yield History(tuple(_Talk().read(messages)))
        return
    document = Fields(text, "the document")
    talk = _Talk()
    if "messages" in document:
        drafts = talk.read(document.objects("messages"))
        yield History(tuple(drafts), metadata=document.rest("messages"))
    elif "text" in document and "chat_history" in document:
        yield History(tuple(_answered(document, talk)), metadata=document.rest(*_OF_ANSWER))
    elif "message" in document or "chat_history" in document or "tool_results" in document:
        yield History(tuple(talk.ask(document)), metadata=document.rest(*_OF_FIRST))
    else:
        raise document.wrong(f"{_EXPECTED}, not one with {sorted(document.names())[:8]}")


class _Talk:
    """Messages in their order, and the calls of the first version that wait for a result."""

    def __init__(self) -> None:
        self._answers = itertools.count(1)
        self._open: list[Block] = []

    def read(self, messages: Sequence[Fields]) -> list[HistoryMessage]:
        """Messages of either version."""
        return [draft for message in messages for draft in self._message(message)]

    def ask(self, request: Fields) -> list[HistoryMessage]:
        """A request of the first version: what was said before, and what is said now."""
        preamble, said = request.maybe_text("preamble"), request.maybe_text("message")
        drafts = [HistoryMessage("system", (text_block(preamble),))] if preamble else []
        drafts += self.read(request.objects("chat_history"))
        drafts += [self._result(result) for result in request.objects("tool_results")]
        return drafts + ([HistoryMessage("user", (text_block(said),))] if said else [])

    def _message(self, message: Fields) -> list[HistoryMessage]:
        role: Any = message.text("role")
        if role.upper() in _FIRST_ROLES and ("message" in message or "tool_results" in message):
            return self._first(message, _FIRST_ROLES[role.upper()])
        if role not in _ROLES:
            raise message.wrong(f'"role" should be one of {", ".join(_ROLES)}, not {shown(dump(role))}')
        if role == "tool":
            result = result_draft(message.text("tool_call_id"), result_parts(message))
            return [replace(result, metadata=extra(message, "role", "tool_call_id", "content"))]
        if role == "assistant":
            known = ("role", "content", "tool_plan", "tool_calls", "citations")
            blocks = tuple(answer_blocks(message))
            return [HistoryMessage(role, blocks, metadata=extra(message, *known), provider=PROVIDER)]
        return [HistoryMessage(role, tuple(content_blocks(message)), metadata=extra(message, "role", "content"))]

    def _first(self, message: Fields, role: Any) -> list[HistoryMessage]:
        if role == "tool":
            return [self._result(result) for result in message.objects("tool_results")]
        said = message.maybe_text("message")
        blocks = [text_block(said)] if said else []
        if role == "assistant":
            number = next(self._answers)
            calls = message.objects("tool_calls")
            self._open = [_call(call, f"{PROVIDER}.{number}.call{at}") for at, call in enumerate(calls, 1)]
            blocks += self._open
        metadata = extra(message, "role", "message", "tool_calls")
        return [HistoryMessage(role, tuple(blocks), metadata=metadata, provider=PROVIDER if role == "assistant" else None)]

    def _result(self, result: Fields) -> HistoryMessage:
        given = result.need("call")
        name, parameters = given.text("name"), decode(given.raw("parameters") or "{}")
        same = [block for block in self._open if block.name == name]
        call = next((block for block in same if block.input == parameters), same[0] if same else None)
        if call is not None:
            self._open.remove(call)
        parts = ",".join(part_data(output) for output, _ in result.items("outputs"))
        draft = result_draft((call.tool_call_id if call is not None else None) or "", f"[{parts}]")
        return replace(draft, metadata=extra(result, "call", "outputs"))


def _call(call: Fields, ref: str) -> Block:
    return call_block(call.text("name"), ref, call.raw("parameters") or "{}", is_json=True)


def _answered(answer: Fields, talk: _Talk) -> list[HistoryMessage]:
    """An answer with what was said before it; the last message it repeats is itself."""
    before = answer.objects("chat_history")
    if before and (before[-1].maybe_text("role") or "").upper() == "CHATBOT":
        before = before[:-1]
    drafts = talk.read(before)
    stream = CohereStream("", lambda: PROVIDER)
    fields: dict[str, JsonText] = {name: text for name in answer.names() if (text := answer.raw(name)) is not None}
    fields.pop("chat_history")
    try:
        bodies = stream.feed("{" + ",".join(f"{dump(name)}:{text}" for name, text in fields.items()) + "}")
    except FormatError as error:
        raise answer.wrong(str(error)) from error
    end = stream.end()
    said = HistoryMessage("assistant", blocks_of(bodies), provider=PROVIDER, finish_reason=end.finish_reason)
    return [*drafts, replace(said, usage=usage_in(bodies), provider_ref=answer.maybe_text("generation_id"))]
