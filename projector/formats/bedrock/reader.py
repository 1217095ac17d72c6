"""Requests of Bedrock's Converse interface: the history that a client sends, as messages.

Source: the *Amazon Bedrock API Reference*, Converse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from projector.formats.bedrock.stream_reader import PROVIDER, BedrockStream
from projector.formats.format import FormatError
from projector.formats.shared.blocks import (
    blocks_of,
    kept_block,
    media_block,
    part_data,
    part_kept,
    part_media,
    part_said,
    part_text,
    said_block,
)
from projector.formats.shared.fields import Fields
from projector.formats.shared.history import History, HistoryMessage, result_draft, text_block
from projector.json_text import JsonText, dump

if TYPE_CHECKING:
    from collections.abc import Iterator

    from projector.message import Block

_EXPECTED: Final = 'a request of Converse was expected: an object with "messages" whose content are lists of blocks'
_MEDIA: Final = {"image": "image", "document": "application", "video": "video", "audio": "audio"}
_TYPES: Final = {"txt": "text/plain", "md": "text/markdown", "csv": "text/csv", "html": "text/html"}


def read(text: str) -> Iterator[History]:
    """The history of a request. Raises `FormatError` with the place and what was expected."""
    request = Fields(text.removeprefix("\ufeff"), "the request")
    if "messages" not in request:
        raise request.wrong(f"{_EXPECTED}, not one with {sorted(request.names())[:8]}")
    system = tuple(_block(block) for block in request.objects("system"))
    drafts = [HistoryMessage("system", system)] if system else []
    for message in request.objects("messages"):
        drafts += _answer(message) if message.text("role") == "assistant" else _ask(message)
    yield History(tuple(drafts), metadata=request.rest("messages", "system"))


def _answer(message: Fields) -> list[HistoryMessage]:
    for call in (block.object("toolUse") for block in message.objects("content")):
        if call is not None:
            call.need_texts("toolUseId", "name")
    stream = BedrockStream("", lambda: PROVIDER)
    try:
        bodies = stream.feed(f'{{"output":{{"message":{message.source}}},"stopReason":{dump("end_turn")}}}')
    except FormatError as error:
        raise message.wrong(str(error)) from error
    return [HistoryMessage("assistant", blocks_of(bodies), provider=PROVIDER)]


def _ask(message: Fields) -> list[HistoryMessage]:
    """What the user said, behind the results of tools."""
    content = message.objects("content")
    results = [_result(block.need("toolResult")) for block in content if "toolResult" in block]
    blocks = tuple(_block(block) for block in content if "toolResult" not in block)
    return [*results, HistoryMessage("user", blocks)] if blocks or not results else results


def _result(result: Fields) -> HistoryMessage:
    parts = ",".join(_part(item) for item in result.objects("content"))
    status = "error" if result.maybe_text("status") == "error" else "ok"
    return result_draft(result.text("toolUseId"), f"[{parts}]", status=status)


def _part(item: Fields) -> JsonText:
    if "text" in item:
        return part_text(item.text("text")) if item.names() == {"text"} else part_said(PROVIDER, item.text("text"), item.source)
    value, media = item.raw("json"), _media(item)
    if media is not None and media[2] is None:
        return part_media(media[0], data=media[1])
    return part_data(value) if value is not None and item.names() == {"json"} else part_kept(PROVIDER, item.source)


def _block(block: Fields) -> Block:
    if "text" in block:
        return (
            text_block(block.text("text"))
            if block.names() == {"text"}
            else said_block(PROVIDER, block.text("text"), block.source)
        )
    if (guarded := _guarded(block)) is not None:
        return said_block(PROVIDER, guarded, block.source)
    media = _media(block)
    if media is not None:
        return media_block(media[0], data=media[1], name=media[2])
    return kept_block(PROVIDER, block.source, next(iter(sorted(block.names())), None))


def _guarded(block: Fields) -> str | None:
    """The text of what a guardrail is to look at, or of what was cited."""
    guard = block.object("guardContent")
    text = None if guard is None else guard.object("text")
    if text is not None:
        return text.text("text")
    cited = block.object("citationsContent")
    return None if cited is None else "".join(part.maybe_text("text") or "" for part in cited.objects("content"))


def _media(block: Fields) -> tuple[str, str, str | None] | None:
    """The media type, the bytes and the name of media, where our fields say all there is."""
    [kind, *others] = sorted(block.names()) or [""]
    media = block.object(kind) if kind in _MEDIA and not others else None
    source = media.object("source") if media is not None else None
    if media is None or source is None or not media.names() <= {"format", "source", "name"} or source.names() != {"bytes"}:
        return None
    form = media.maybe_text("format") or "octet-stream"
    return _TYPES.get(form, f"{_MEDIA[kind]}/{form}"), source.text("bytes"), media.maybe_text("name")
