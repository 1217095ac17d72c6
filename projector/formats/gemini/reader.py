"""Requests of Gemini's `generateContent`: the history that a client sends, as messages.

Calls without an id are answered by name and order, so each is given the id of its place.
Source: the reference of `generateContent` of the Gemini API documentation.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from projector.formats.format import FormatError
from projector.formats.gemini.parts import SHELL
from projector.formats.gemini.stream_reader import PROVIDER, GeminiStream
from projector.formats.shared.blocks import (
    blocks_of,
    kept_block,
    media_block,
    part_data,
    part_kept,
    part_media,
    said_block,
)
from projector.formats.shared.fields import Fields
from projector.formats.shared.history import History, HistoryMessage, result_draft, text_block
from projector.json_text import join_fields

if TYPE_CHECKING:
    from collections.abc import Iterator

    from projector.json_text import JsonText
    from projector.message import Block

_EXPECTED: Final = 'a request of generateContent was expected: an object with "contents"'


def read(text: str) -> Iterator[History]:
    """The history of a request. Raises `FormatError` with the place and what was expected."""
    request = Fields(text.removeprefix("\ufeff"), "the request")
    if "contents" not in request:
        raise request.wrong(f"{_EXPECTED}, not one with {sorted(request.names())[:8]}")
    drafts = list(_system(request))
    calls = _Calls()
    for content in _contents(request):
        drafts += calls.answer(content) if content.maybe_text("role") == "model" else calls.ask(content)
    yield History(tuple(drafts), metadata=request.rest("contents", "systemInstruction", "system_instruction"))


def _contents(request: Fields) -> list[Fields]:
    """What was said; Google takes a text alone, and one content that stands in no list."""
    given = request.raw("contents") or ""
    if given.startswith("["):
        return request.objects("contents")
    return [_content(given, f'{request.place}, in "contents"')]


def _system(request: Fields) -> Iterator[HistoryMessage]:
    name = next((name for name in ("systemInstruction", "system_instruction") if name in request), None)
    if name is not None:
        system = _content(request.raw(name) or "", f'{request.place}, in "{name}"')
        yield HistoryMessage("system", tuple(_block(part) for part in system.objects("parts")))


def _content(given: JsonText, place: str) -> Fields:
    """A content; text alone is one part, and a list its parts."""
    if given.startswith('"'):
        given = f'[{{"text":{given}}}]'
    return Fields(f'{{"parts":{given}}}' if given.startswith("[") else given, place)


class _Calls:
    """The calls that wait for a result, in order."""

    def __init__(self) -> None:
        self._open: list[Block] = []
        self._numbers = itertools.count(1)

    def answer(self, content: Fields) -> list[HistoryMessage]:
        """What the model said."""
        for call in (part.object("functionCall") for part in content.objects("parts")):
            if call is not None:
                call.need_texts("name")
        stream = GeminiStream("", lambda: f"{PROVIDER}.{next(self._numbers)}")
        try:
            bodies = stream.feed(f'{{"candidates":[{{"content":{content.source},"finishReason":"STOP"}}]}}')
        except FormatError as error:
            raise content.wrong(str(error)) from error
        blocks = blocks_of(bodies)
        self._open = [block for block in blocks if block.kind == "tool_call"]
        return [HistoryMessage("assistant", blocks, provider=PROVIDER)]

    def ask(self, content: Fields) -> list[HistoryMessage]:
        """What the user said, behind the results of tools."""
        parts = content.objects("parts")
        results = [self._result(part) for part in parts if "functionResponse" in part]
        blocks = tuple(_block(part) for part in parts if "functionResponse" not in part)
        return [*results, HistoryMessage("user", blocks)] if blocks or not results else results

    def _result(self, part: Fields) -> HistoryMessage:
        given = part.need("functionResponse")
        name, ref = given.text("name"), given.maybe_text("id")
        call = next((call for call in self._open if ref in (None, call.tool_call_id) and call.name == name), None)
        if call is not None:
            self._open.remove(call)
        told = ref or (call.tool_call_id if call is not None else None) or ""
        parts = ",".join([part_data(given.raw("response") or "{}"), *map(_media_part, given.objects("parts"))])
        rest = given.rest("id", "response", "parts", *(["name"] if call is not None else []))
        return replace(result_draft(told, f"[{parts}]"), metadata={SHELL: join_fields(rest)} if rest else {})


def _media_part(part: Fields) -> JsonText:
    """Media beside what a result says."""
    block = _block(part)
    if block.kind != "media":
        return part_kept(PROVIDER, part.source)
    return part_media(block.media_type, data=block.fields.get("data"), url=block.fields.get("url"))


def _block(part: Fields) -> Block:
    if "text" in part:
        return (
            text_block(part.text("text")) if part.names() == {"text"} else said_block(PROVIDER, part.text("text"), part.source)
        )
    for name in ("inlineData", "fileData"):
        source = part.object(name)
        if source is not None and part.names() == {name} and source.names() <= {"mimeType", "data", "fileUri"}:
            return media_block(source.maybe_text("mimeType"), data=source.maybe_text("data"), url=source.maybe_text("fileUri"))
    return kept_block(PROVIDER, part.source, next(iter(sorted(part.names())), None))
