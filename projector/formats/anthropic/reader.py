"""Anthropic Messages: requests, lists of messages and whole responses.

Source: the public reference of the *Messages API*.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, get_args

from msgspec.structs import replace

from projector import events as ev
from projector.formats.anthropic.parts import (
    PROVIDER,
    SHELL,
    is_plain,
    read_block,
    read_part,
)
from projector.formats.format import FormatError
from projector.formats.outgoing.repair import SYSTEM
from projector.formats.shared.fields import Fields, items_of, reason_of, shown
from projector.formats.shared.history import History, HistoryMessage, Loss, result_draft, text_block, text_parts
from projector.json_text import InvalidJson, JsonText, decode, dump, join_fields, split
from projector.run_draft import Usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from projector.message import Block

_IN_RESPONSES: Final = ("id", "type", "role", "content", "usage")
_WANTED: Final = 'an object with "messages", a list of messages, or a response with "content"'


def read(text: str) -> Iterator[History]:
    """The history of a request, of a list of messages, or of a whole response. Raises `FormatError`."""
    text = text.removeprefix("\ufeff")
    try:
        yield _read(text)
    except InvalidJson as error:
        raise FormatError(f"the document: JSON was expected, and {error}") from error


def _read(text: str) -> History:
    if text.lstrip().startswith("["):
        return _history(items_of(text, "the document"), {})
    document = Fields(text, "the document")
    if "messages" in document:
        messages = [item for item, _ in document.items("messages")]
        return _history(messages, document.rest("messages", "system"), document.raw("system"))
    if document.maybe_text("role") is None:
        raise document.wrong(f"{_WANTED} was expected, not {shown(text)}")
    return _history([text], {})


def _history(messages: Sequence[JsonText], metadata: dict[str, JsonText], system: JsonText | None = None) -> History:
    drafts: list[HistoryMessage] = []
    losses: list[Loss] = []
    if system is not None:
        drafts += _system(system)
    for number, message in enumerate(messages, 1):
        place = f"message {number}"
        fields = Fields(message, place)
        found = list(_read_message(fields))
        if not found:
            losses.append(Loss(f"{place} has no content"))
        elif fields.names() > {"role", "content"} and all(draft.role == "tool" for draft in found):
            losses.append(Loss(f"{place} has fields that results have no place for"))
        drafts += found
    return History(tuple(drafts), metadata=metadata, losses=tuple(losses))


def _system(system: JsonText) -> Iterator[HistoryMessage]:
    blocks = _read_content(system, "the system prompt")
    if blocks:
        yield HistoryMessage("system", tuple(blocks), metadata=_shell({}, system, blocks))


def _read_content(content: JsonText, place: str) -> list[Block]:
    if content.lstrip().startswith("["):
        return [read_block(Fields(item, f"{place}, block {at}")) for at, item in enumerate(items_of(content, place), 1)]
    said = decode(content)
    if not isinstance(said, str):
        raise FormatError(f"{place}: text or a list of blocks was expected, not {shown(content)}")
    return [text_block(said)] if said else []


def _read_message(message: Fields) -> Iterator[HistoryMessage]:
    role = message.text("role")
    if role not in get_args(ev.Role):
        raise message.wrong(f'"role" should be user or assistant, not {role!r}')
    content = message.raw("content")
    if content is None:
        raise message.wrong('"content" should be text or a list of blocks, and it is not there')
    if message.maybe_text("type") == "message":
        yield _read_response(message, content)
        return
    rest = {name: text for name, text in split(message.source).items() if name not in ("role", "content")}
    rest |= {"role": dump(role)} if role in SYSTEM else {}
    parts: list[Block | HistoryMessage] = []
    if not content.lstrip().startswith("["):
        parts += _read_content(content, message.place)
    else:
        for item, place in message.items("content"):
            block = Fields(item, place)
            parts.append(_read_result(block) if block.text("type") == "tool_result" else read_block(block))
    yield from _grouped(role, parts, rest, content)


def _grouped(
    role: Any, parts: Sequence[Block | HistoryMessage], rest: dict[str, JsonText], content: JsonText
) -> Iterator[HistoryMessage]:
    """Results are messages of their own; what stands between them belongs together."""
    blocks: list[Block] = []
    for part in [*parts, None]:
        if part is not None and not isinstance(part, HistoryMessage):
            blocks.append(part)
            continue
        if blocks:
            yield HistoryMessage(role, tuple(blocks), metadata=_shell(rest, content, blocks if len(parts) == 1 else []))
            blocks, rest = [], {}
        if part is not None:
            yield part


def _read_result(result: Fields) -> HistoryMessage:
    content = result.raw("content")
    rest = {name: text for name, text in split(result.source).items() if name not in ("type", "tool_use_id", "content")}
    if rest.get("is_error") == "true":
        del rest["is_error"]
    blocks = [] if content is None else _read_content(content, f'{result.place}, in "content"')
    if content is not None and not blocks:  # an empty text or list is not the same as none
        rest["content"] = content
    is_list = content is not None and content.lstrip().startswith("[")
    read_parts = ",".join(map(read_part, result.objects("content"))) if is_list else ""
    parts = f"[{read_parts}]" if is_list or not blocks else text_parts(blocks[0].text)
    draft = result_draft(result.text("tool_use_id"), parts, status="error" if result.is_true("is_error") else "ok")
    return replace(draft, metadata=_shell(rest, content or "", blocks))


def _read_response(message: Fields, content: JsonText) -> HistoryMessage:
    """A whole response: what its stream would have given."""
    blocks = _read_content(content, message.place)
    reason = reason_of(message.raw("stop_reason") or "null")
    if reason == "refusal":
        details = message.object("stop_details")
        said = details.maybe_text("explanation") if details is not None else None
        blocks.append(replace(text_block(said or ""), kind="refusal"))
    used = message.object("usage")
    return HistoryMessage(
        "assistant",
        tuple(blocks),
        provider_ref=message.maybe_text("id"),
        metadata=message.rest(*_IN_RESPONSES),
        usage=_usage(used) if used is not None else None,
        model=message.maybe_text("model"),
        provider=PROVIDER,
        finish_reason=reason,
    )


def _usage(used: Fields) -> Usage:
    """Cached tokens stand beside the input here; ours is a total."""
    cached, written = used.whole("cache_read_input_tokens"), used.whole("cache_creation_input_tokens")
    fresh, details = used.whole("input_tokens"), used.object("output_tokens_details")
    total = None if fresh is None else fresh + (cached or 0) + (written or 0)
    reasoning = details.whole("thinking_tokens") if details is not None else None
    return Usage(total, used.whole("output_tokens"), cached, written, reasoning, used.source)


def _shell(rest: dict[str, JsonText], content: JsonText, blocks: Sequence[Block]) -> dict[str, JsonText]:
    fields = dict(rest)
    if content.lstrip().startswith("[") and len(blocks) == 1 and is_plain(blocks[0]):
        fields["content"] = "[]"
    return {SHELL: join_fields(fields)} if fields else {}
