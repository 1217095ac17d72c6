"""Requests of Gemini's Interactions: the input that a client sends, as messages; and interactions with their input.

An input is text, a content, or a list: of contents, of steps, or of turns with a role, as the older form has them.
Source: the reference of *Interactions* of the Gemini API documentation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from projector.formats.format import FormatError
from projector.formats.gemini_interactions.parts import (
    EXTRA,
    INPUT,
    OF_MODELS,
    PROVIDER,
    RESULT,
    as_interaction,
    content_block,
    content_step,
    kind_of,
    result_parts,
    result_status,
)
from projector.formats.gemini_interactions.stream_reader import InteractionsStream
from projector.formats.shared.blocks import blocks_of, usage_in
from projector.formats.shared.fields import Fields, items_of
from projector.formats.shared.history import History, HistoryMessage, result_draft, text_block
from projector.json_text import join_fields

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from projector.json_text import JsonText
    from projector.message import Block

_EXPECTED: Final = 'a request of Interactions was expected: an object with "input"'
_OF_REQUEST: Final = ("input", "system_instruction", "steps", "outputs", "status", "object", "usage", "id", "model")


def read(text: str) -> Iterator[History]:
    """The history of a request, of a list of its input, or of an interaction that tells its input.

    Raises `FormatError` with the place and what was expected.
    """
    text = text.removeprefix("\ufeff")
    if text.lstrip().startswith("["):
        yield History(tuple(_input(text, "the document")))
        return
    request = Fields(text, "the request")
    if "input" not in request:
        raise request.wrong(f"{_EXPECTED}, not one with {sorted(request.names())[:8]}")
    system = request.maybe_text("system_instruction")
    drafts = [HistoryMessage("system", (text_block(system),))] if system else []
    drafts += _input(request.raw("input") or "[]", 'the request, in "input"')
    if request.raw("object") == '"interaction"':
        drafts += _answer(text, request)
    yield History(tuple(drafts), metadata=request.rest(*_OF_REQUEST))


def _input(given: JsonText, place: str) -> list[HistoryMessage]:
    if given.startswith('"'):
        return [HistoryMessage("user", (text_block(Fields(f'{{"text":{given}}}', place).text("text")),))]
    items = items_of(given, place) if given.lstrip().startswith("[") else [given]
    talk = _Talk()
    for at, item in enumerate(items, 1):
        talk.add(Fields(item, f"{place} at {at}"))
    return talk.end()


class _Talk:
    """An input as messages: what follows each other and is of one side belongs together."""

    def __init__(self) -> None:
        self._drafts: list[HistoryMessage] = []
        self._said: list[Block] = []
        self._steps: list[JsonText] = []

    def add(self, item: Fields) -> None:
        """The next content, step or turn."""
        role, kind = item.maybe_text("role"), item.maybe_text("type") or ""
        if role is not None and not kind:
            self._turn(item, role)
        elif kind == INPUT:
            self.end()
            self._said += [content_block(content) for content in item.objects("content")]
            self.end()
        elif kind == RESULT:
            self.end()
            rest = item.rest("type", "call_id", "result", "is_error")
            result = result_draft(item.text("call_id"), result_parts(item), status=result_status(item))
            self._drafts.append(replace(result, metadata={EXTRA: join_fields(rest)} if rest else {}))
        elif kind in OF_MODELS or kind_of(kind).startswith("server_tool"):
            self._ask()
            self._steps.append(item.source)
        else:
            item.text("type")
            self._answer()
            self._said.append(content_block(item))

    def end(self) -> list[HistoryMessage]:
        """Nothing more belongs to what was said."""
        self._ask()
        self._answer()
        return self._drafts

    def _turn(self, turn: Fields, role: str) -> None:
        self.end()
        content = turn.raw("content") or "[]"
        is_model = role in ("model", "assistant")
        if content.startswith('"'):
            said = turn.text("content")
            self._steps += [content_step(said)] if is_model else []
            self._said += [] if is_model else [text_block(said)]
        elif is_model:
            self._steps += [item.source for item in turn.objects("content")]
        else:
            for item in turn.objects("content"):
                self.add(item)
        self.end()

    def _ask(self) -> None:
        if self._said:
            self._drafts.append(HistoryMessage("user", tuple(self._said)))
        self._said = []

    def _answer(self) -> None:
        if self._steps:
            self._drafts.append(_steps(self._steps))
        self._steps = []


def _steps(steps: Sequence[JsonText]) -> HistoryMessage:
    stream = InteractionsStream("", lambda: PROVIDER)
    blocks = blocks_of(stream.feed(as_interaction(list(steps))))
    return HistoryMessage("assistant", blocks, provider=PROVIDER)


def _answer(text: str, interaction: Fields) -> list[HistoryMessage]:
    """What an interaction says itself."""
    stream = InteractionsStream("", lambda: PROVIDER)
    try:
        bodies = stream.feed(text)
    except FormatError as error:
        raise interaction.wrong(str(error)) from error
    said = HistoryMessage("assistant", blocks_of(bodies), provider=PROVIDER, finish_reason=stream.end().finish_reason)
    named = replace(said, provider_ref=interaction.maybe_text("id"), model=interaction.maybe_text("model"))
    return [replace(named, usage=usage_in(bodies))]
