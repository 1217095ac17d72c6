"""Items of the Responses API as messages: for the API itself, and for programs that keep its items."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from projector.formats.shared.fields import Fields, says_nothing
from projector.formats.shared.history import HistoryMessage, text_parts
from projector.formats.shared.openai_items import (
    EXTRA,
    PROVIDER,
    content_parts,
    is_client_call,
    is_result,
    item_blocks,
    item_type,
    part_block,
)
from projector.json_text import InvalidJson, JsonText, dump, join_fields, split
from projector.message import Block

_CLIENTS: Final = ("user", "system", "developer")
_TEXT_RESULTS: Final = (
    "function_call_output", "custom_tool_call_output", "local_shell_call_output", "apply_patch_call_output",
)  # fmt: skip
_NEEDED: Final = {
    "function_call": ("call_id", "name"),
    "custom_tool_call": ("call_id", "name"),
    "function_call_output": ("call_id",),
    "custom_tool_call_output": ("call_id",),
}
"""Without these an item is half of one: nobody could tell what is called, or answered."""
_OF_CLIENT: Final = {"mcp_approval_response": "user", "additional_tools": "developer"}
"""Items that the client adds, with the role of the message that they become."""


class ItemReader:
    """Items in their order: what the model said in one go is one message."""

    def __init__(self) -> None:
        self.drafts: list[HistoryMessage] = []
        self._calls: dict[str, str] = {}
        self._is_answering = False

    def read(self, item: Fields) -> None:
        """The next item. Raises `FormatError` for what is none."""
        try:
            self._read(item)
        except InvalidJson as error:
            raise item.wrong(f"the item can't be read ({error})") from error

    def end_answer(self) -> None:
        """A response is whole: what the model says next is another message."""
        self._is_answering = False

    def _read(self, item: Fields) -> None:
        fields = split(item.source)
        kind = item_type(fields)
        role: Any = item.maybe_text("role") if kind == "message" else _OF_CLIENT.get(kind)
        if kind == "message" and role not in (*_CLIENTS, "assistant"):
            raise item.wrong(f'"role" should be one of {", ".join(_CLIENTS)} or assistant, not {dump(role)}')
        _require(item, kind)
        if is_result(fields, self._calls):
            self._add(result_of(item, kind), is_answer=False)
        elif role in _CLIENTS:
            self._add(_said(role, item, kind), is_answer=False)
        else:
            if kind in ("function_call", "custom_tool_call") or is_client_call(kind, fields):
                self._calls[item.maybe_text("call_id") or item.maybe_text("id") or ""] = kind
            self._answer(item_blocks(item.source, item.place))

    def _answer(self, blocks: list[Block]) -> None:
        if not self._is_answering:
            self._add(HistoryMessage("assistant", ()), is_answer=True)
        last = self.drafts[-1]
        self.drafts[-1] = replace(last, blocks=(*last.blocks, *blocks))

    def _add(self, draft: HistoryMessage, *, is_answer: bool) -> None:
        self.drafts.append(draft)
        self._is_answering = is_answer


def _require(item: Fields, kind: str) -> None:
    """Raises `FormatError` for half an item."""
    if kind == "message" and "content" not in item:
        raise item.wrong('"content" should be text or a list of parts, and it is not there')
    item.need_texts(*_NEEDED.get(kind, ()))
    if kind == "function_call":
        item.text("arguments")


def _said(role: Any, item: Fields, kind: str) -> HistoryMessage:
    if kind in _OF_CLIENT:
        return HistoryMessage(role, tuple(item_blocks(item.source, item.place)))
    parts = content_parts(split(item.source), item.place)
    return HistoryMessage(role, tuple(part_block(part) for part in parts), metadata=_extra(item, "type", "role", "content"))


def result_of(item: Fields, kind: str) -> HistoryMessage:
    """What the client's own tool gave back, as a message."""
    ref = item.maybe_text("call_id") or item.maybe_text("id") or ""
    output = item.raw("output") or '""'
    status, metadata = "ok", {}
    if kind in _TEXT_RESULTS:
        is_list = output.startswith("[")
        parts = _parts(item) if is_list else text_parts(item.maybe_text("output") or "")
        metadata = _extra(item, "type", "call_id", "output", *(("status",) if kind == "apply_patch_call_output" else ()))
        if kind == "apply_patch_call_output" and item.maybe_text("status") == "failed":
            status = "error"
    else:
        own = f'{{"provider":"{PROVIDER}","payload":{item.source}}}'
        parts = f'[{{"kind":"text","text":{dump(item.raw("output") or item.raw("tools") or "")}}},'
        parts += f'{{"kind":"provider","opaque":{own}}}]'
    block = Block("tool_result", sealed=True, tool_call_id=ref, status=status, parts=parts)
    return HistoryMessage("tool", (block,), metadata=metadata)


def _parts(item: Fields) -> JsonText:
    parts = []
    for text, _ in item.items("output"):
        block = part_block(text)
        part = {"kind": dump(block.kind)} | ({"text": dump(block.text)} if block.kind == "text" else {})
        part |= {"media_type": dump(block.media_type)} if block.media_type else {}
        part |= {"type": dump(block.provider_ref)} if block.kind == "provider" else {}
        parts.append(join_fields(part | ({"opaque": block.opaque} if block.opaque else {})))
    return "[" + ",".join(parts) + "]"


def _extra(item: Fields, *known: str) -> dict[str, JsonText]:
    rest = {name: text for name, text in item.rest(*known).items() if not says_nothing(text)}
    rest = {name: text for name, text in rest.items() if (name, text) != ("status", '"completed"')}
    return {EXTRA: join_fields(rest)} if rest else {}
