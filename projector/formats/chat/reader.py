"""Chat Completions messages: what most programs keep of a conversation.

The old `function_call` is a tool call with an id of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from projector.formats.chat.parts import DETAILS, EXTRA, PLAIN_REASONING, PROVIDER, detail_block, keep, part_block
from projector.formats.format import FormatError
from projector.formats.shared.fields import Fields, is_whole, items_of, says_nothing, shown
from projector.formats.shared.history import History, HistoryMessage, call_block, text_block, text_parts
from projector.formats.shared.payloads import opaque
from projector.json_text import InvalidJson, JsonText, decode, dump, join_fields, split
from projector.message import Block

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROLES: Final = ("system", "developer", "user", "assistant", "tool", "function")
_KNOWN: Final = (
    "role", "content", "name", "tool_calls", "function_call", "tool_call_id", "refusal", "audio", DETAILS, *PLAIN_REASONING,
)  # fmt: skip


def read(text: str) -> Iterator[History]:
    """The one history in a document: a list of messages, or an object that has it as `messages`.

    Raises `FormatError` with the place and what was expected.
    """
    metadata: dict[str, JsonText] = {}
    if text.lstrip("\ufeff \t\r\n").startswith("["):
        items = [(item, f"message {at}") for at, item in enumerate(items_of(text.lstrip("\ufeff"), "the document"))]
    else:
        document = Fields(text.removeprefix("\ufeff"), "the document")
        if "messages" not in document:
            raise document.wrong('a list of messages was expected, or an object with "messages"')
        items, metadata = document.items("messages"), document.rest("messages")
    reader = _Reader()
    drafts = [reader.read(Fields(item, place)) for item, place in items]
    yield History(tuple(drafts), metadata=metadata)


class _Reader:
    """Messages in their order; calls of the old form get ids by their place."""

    def __init__(self) -> None:
        self._at = -1
        self._functions: dict[str, str] = {}

    def read(self, fields: Fields) -> HistoryMessage:
        self._at += 1
        role = fields.text("role")
        if role not in _ROLES:
            raise fields.wrong(f'"role" should be one of {", ".join(_ROLES)}, not {shown(dump(role))}')
        try:
            return self._result(fields, role) if role in ("tool", "function") else self._message(fields, role)
        except InvalidJson as error:
            raise fields.wrong(f"the content can't be read ({error})") from error

    def _message(self, fields: Fields, role: Any) -> HistoryMessage:
        blocks = [*_reasoning(fields), *_content(fields)]
        if refusal := fields.maybe_text("refusal"):
            blocks.append(Block("refusal", text=refusal, sealed=True))
        blocks += [self._call(call) for call in fields.objects("tool_calls")]
        if (function := fields.object("function_call")) is not None:
            ref = self._functions[function.text("name")] = f"call_{self._at}"
            arguments = function.maybe_text("arguments") or ""
            blocks.append(call_block(function.text("name"), ref, arguments, is_json=is_whole(arguments)))
        if (audio := fields.raw("audio")) is not None:
            payload = opaque(PROVIDER, f'{{"audio":{audio}}}')
            blocks.append(Block("media", sealed=True, media_type="audio", provider_ref="audio", opaque=payload))
        return HistoryMessage(role, tuple(blocks), name=fields.maybe_text("name"), metadata=_extra(fields, _KNOWN))

    def _call(self, call: Fields) -> Block:
        custom = call.object("custom")
        inner = custom or call.need("function")
        inner.need_texts("name")
        call.need_texts("id")
        name, ref = inner.text("name"), call.text("id")
        rest = call.rest("id", "type", "index", "function", "custom")
        if custom is not None:
            text = custom.maybe_text("input") or ""
            kept = keep(rest | {"type": '"custom"'})
            given = dump({"input": text})
            return Block(
                "tool_call", text=text, sealed=True, name=name, tool_call_id=ref, input_text=given, parse="ok", opaque=kept
            )
        given = inner.raw("arguments") or '""'
        text = given if given.startswith("{") else inner.maybe_text("arguments") or ""
        block = call_block(name, ref, text, is_json=is_whole(text))
        return msgspec.structs.replace(block, opaque=keep(rest))

    def _result(self, fields: Fields, role: str) -> HistoryMessage:
        name = fields.maybe_text("name")
        known = ("role", "content", "tool_call_id") if role == "tool" else ("role", "content", "tool_call_id", "name")
        if role == "tool":
            fields.need_texts("tool_call_id")
        ref = fields.maybe_text("tool_call_id") or (self._functions.get(name or "") if role == "function" else None) or ""
        content = fields.raw("content") or '""'
        parts = _result_parts(fields) if content.startswith("[") else text_parts(fields.maybe_text("content") or "")
        block = Block("tool_result", sealed=True, tool_call_id=ref, status="ok", parts=parts)
        return HistoryMessage("tool", (block,), metadata=_extra(fields, known))


def _content(fields: Fields) -> list[Block]:
    content = fields.raw("content") or "null"
    if content.startswith("["):
        return [part_block(item, place) if item.lstrip().startswith("{") else text_block(_said(item, place))
                for item, place in fields.items("content")]  # fmt: skip
    text = fields.maybe_text("content")
    return [text_block(text)] if text else []


def _said(item: JsonText, place: str) -> str:
    text = decode(item)
    if not isinstance(text, str):
        raise FormatError(f"{place}: a part of the content should be an object or text, not {shown(item)}")
    return text


def _reasoning(fields: Fields) -> list[Block]:
    """What a dialect says of its reasoning, once."""
    if details := fields.items(DETAILS):
        return [detail_block(split(item)) for item, _ in details]
    found = ((name, fields.maybe_text(name)) for name in PLAIN_REASONING)
    said = next(((name, text) for name, text in found if text), None)
    return [] if said is None else [Block("reasoning", text=said[1], sealed=True, provider_ref=said[0])]


def _result_parts(fields: Fields) -> JsonText:
    """The parts of a result in our own words; what they do not say stays with them."""
    parts = []
    for item, place in fields.items("content"):
        block = part_block(item, place) if item.lstrip().startswith("{") else text_block(_said(item, place))
        part = {"kind": dump(block.kind)} | ({"text": dump(block.text)} if block.kind == "text" else {})
        part |= {"media_type": dump(block.media_type)} if block.media_type else {}
        parts.append(join_fields(part | ({"opaque": block.opaque} if block.opaque else {})))
    return "[" + ",".join(parts) + "]"


def _extra(fields: Fields, known: tuple[str, ...]) -> dict[str, JsonText]:
    rest = {name: text for name, text in fields.rest(*known).items() if not says_nothing(text)}
    return {EXTRA: join_fields(rest)} if rest else {}
