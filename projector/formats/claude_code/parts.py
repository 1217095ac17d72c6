"""Content of Claude Code's records: blocks of the Anthropic Messages interface, results of tools, usage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from projector.formats.anthropic.stream_reader import AnthropicStream
from projector.formats.format import FormatError
from projector.formats.shared.blocks import (
    blocks_of,
    kept_block,
    media_block,
    part_kept,
    part_media,
    part_said,
    part_text,
    said_block,
)
from projector.formats.shared.fields import Fields, items_of
from projector.formats.shared.history import HistoryMessage, result_draft, text_block
from projector.formats.shared.makers import ANTHROPIC
from projector.run_draft import Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from projector.json_text import JsonText
    from projector.message import Block

PROVIDER: Final = ANTHROPIC
_DENIED: Final = "The user doesn't want to proceed with this tool use."
_INTERRUPTED: Final = "[Request interrupted by user"


def assistant_blocks(content: JsonText, place: str) -> tuple[Block, ...]:
    """The blocks of a response that came whole: text, or a list of blocks."""
    if content.lstrip().startswith('"'):
        return user_blocks(content, place)
    stream = AnthropicStream("", lambda: "")
    try:
        message = f'{{"type":"message_start","message":{{"role":"assistant","content":{content}}}}}'
        return blocks_of(stream.feed(message))
    except FormatError as error:
        raise FormatError(f"{place}: content of an assistant was expected: {error}") from error


def user_blocks(content: JsonText, place: str) -> tuple[Block, ...]:
    """The blocks of a user's message but the results of tools: text, or a list of blocks."""
    if content.lstrip().startswith('"'):
        text = Fields(f'{{"content":{content}}}', place).text("content")
        return (text_block(text),) if text else ()
    return tuple(
        _user_block(block)
        for block in (Fields(item, f"{place}, block {number}") for number, item in enumerate(items_of(content, place)))
        if block.text("type") != "tool_result"
    )


def require_content(message: Fields) -> None:
    """Raises `FormatError` for a message that has none: another program wrote it."""
    if not message.has("content"):
        raise message.wrong(
            f'"content" should be text or a list of blocks, and it is not there, but {sorted(message.names())[:8]}'
        )


def results_of(content: JsonText, place: str) -> list[HistoryMessage]:
    """The results of tools in a user's message, each a message of its own."""
    if content.lstrip().startswith('"'):
        return []
    blocks = [Fields(item, f"{place}, block {number}") for number, item in enumerate(items_of(content, place))]
    return [_result(block) for block in blocks if block.text("type") == "tool_result"]


def usage_of(usage: Fields | None) -> Usage | None:
    """What a request used, as totals: Anthropic counts what is cached beside the input."""
    if usage is None:
        return None
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
    fresh, cached, written, output = (usage.whole(name) for name in names)
    details = usage.object("output_tokens_details")
    total = None if fresh is None else fresh + (cached or 0) + (written or 0)
    thought = details.whole("thinking_tokens") if details is not None else None
    return Usage(total, output, cached, written, thought, usage.source)


def total(drafts: Sequence[HistoryMessage], used: Usage | None) -> list[HistoryMessage]:
    """The messages of a turn, which used that much; what their own numbers leave out, the last answer has.

    Numbers of a message are often those of its beginning.
    """
    at = next((at for at in reversed(range(len(drafts))) if drafts[at].role == "assistant"), None)
    if used is None or at is None:
        return list(drafts)
    told = [draft.usage for draft in drafts if draft.usage is not None]
    own = drafts[at].usage or Usage()
    more: dict[str, int] = {}
    for name in ("input", "output", "cached", "cache_write", "reasoning"):
        left = (getattr(used, name) or 0) - sum(getattr(each, name) or 0 for each in told)
        if left > 0:
            more[name] = (getattr(own, name) or 0) + left
    usage = replace(own, raw=used.raw, **more) if more else drafts[at].usage
    return [*drafts[:at], replace(drafts[at], usage=usage), *drafts[at + 1 :]]


def _user_block(block: Fields) -> Block:
    kind = block.text("type")
    if kind == "text":
        text = block.text("text")
        return text_block(text) if block.names() <= {"type", "text"} else said_block(PROVIDER, text, block.source)
    source = block.object("source")
    if kind in ("image", "document") and source is not None and block.names() <= {"type", "source"}:
        data, url = source.maybe_text("data"), source.maybe_text("url")
        if _is_media(source) and (data or url):
            return media_block(source.maybe_text("media_type"), data=data, url=url)
    return kept_block(PROVIDER, block.source, kind)


def _result(block: Fields) -> HistoryMessage:
    content = block.raw("content") or '""'
    if content.lstrip().startswith('"'):
        said = block.maybe_text("content") or ""
        parts = part_text(said)
    else:
        items = block.objects("content")
        parts = ",".join(_part(item) for item in items)
        said = items[0].maybe_text("text") or "" if items else ""
    return result_draft(block.text("tool_use_id"), f"[{parts}]", status=_status(said, is_error=block.is_true("is_error")))


def _status(said: str, *, is_error: bool) -> str:
    if said.startswith(_DENIED):
        return "denied"
    if said.startswith(_INTERRUPTED):
        return "interrupted"
    return "error" if is_error else "ok"


def _is_media(source: Fields) -> bool:
    return source.maybe_text("type") in ("base64", "url") and source.names() <= {"type", "media_type", "data", "url"}


def _part(item: Fields) -> JsonText:
    kind, source = item.maybe_text("type"), item.object("source")
    if kind == "text":
        text = item.text("text")
        return part_text(text) if item.names() <= {"type", "text"} else part_said(PROVIDER, text, item.source)
    if kind == "image" and source is not None and _is_media(source):
        return part_media(source.maybe_text("media_type"), data=source.maybe_text("data"), url=source.maybe_text("url"))
    return part_kept(PROVIDER, item.source)
