"""Canonical messages: what a conversation consists of, whoever made it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from projector.events import Kind, MessageStatus, Role
from projector.json_text import InvalidJson, JsonText, decode, is_json, plain

if TYPE_CHECKING:
    BlockKind = Kind | Literal["tool_result"]
else:
    BlockKind = str  # what a redaction or a later version has put in a block is read as it is
FREE_FORM: Final = ("opaque", "input_text", "parts", "approval")
"""The fields of a block that are JSON text."""
CALLS: Final = ("tool_call", "server_tool_call")
_SHOWN: Final = ("opaque", "input", "parts", "approval")


class Block(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One part of a message, in the provider's order.

    `number` is how events name it. `text` holds the joined deltas (for tool calls the arguments as text), `sealed`
    is false for a block that was never finished. Fields of free form are JSON text; of a tool call `input_text`, where the
    text is not its input as it stands. `approval` is the newest `{approval_id, approved}` of a call that a human was asked
    about.
    """

    kind: BlockKind
    number: int = 0
    text: str = ""
    sealed: bool = False
    name: str | None = None
    tool_call_id: str | None = None
    media_type: str | None = None
    provider_ref: str | None = None
    fields: dict[str, str] = {}
    signature: str | None = None
    opaque: JsonText | None = None
    input_text: JsonText | None = msgspec.field(default=None, name="input")
    parse: str | None = None
    status: str | None = None
    parts: JsonText | None = None
    citations: tuple[JsonText, ...] = ()
    approval: JsonText | None = None

    @property
    def input(self) -> Any:
        """The input of a tool call, made anew each time; None while it is not whole, where it is no JSON, of other blocks."""
        text = self.input_text or self.text
        if self.kind not in CALLS or not self.sealed or self.parse == "bad" or not text:
            return None
        try:
            return decode(text)
        except InvalidJson:
            return None

    @property
    def result(self) -> Any:
        """What a tool gave, made anew each time: text, the JSON value it was, or the parts there are; None of other blocks."""
        match decode(self.parts) if self.parts else None:
            case [{"kind": "text", "text": text, **more}] if not more:
                return text
            case [{"kind": "data", "text": str(text), **more}] if not more and is_json(text):
                return decode(text)
            case parts:
                return parts


class Unknown(msgspec.Struct, frozen=True, gc=False):
    """Fields of an event that its type does not know, kept with the message they belong to."""

    seq: int
    type: str
    fields: dict[str, JsonText]


class Message(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One model response, one user's input, one tool result. `seq` is that of its first event, `created_at` in ms.

    `status` is `partial` where it was never finished. A message is a value that all who read it may share: nothing in it
    is to be changed, also not in its dicts. `metadata_text` is what it holds of `metadata`, each value as JSON text.
    """

    id: str
    parent_id: str | None
    run_id: str
    role: Role
    status: MessageStatus
    blocks: tuple[Block, ...]
    created_at: int
    seq: int
    name: str | None = None
    provider_ref: str | None = None
    metadata_text: dict[str, JsonText] = msgspec.field(default_factory=dict, name="metadata")
    unknown: tuple[Unknown, ...] = ()

    @property
    def metadata(self) -> dict[str, Any]:
        """Names and values that were noted of it, made anew of their JSON each time they are asked for."""
        return {name: decode(text) for name, text in self.metadata_text.items()}

    @property
    def text(self) -> str:
        """What it says, without reasoning and tools."""
        return "".join(block.text for block in self.blocks if block.kind == "text")


def read_blocks(text: JsonText) -> list[Block]:
    """A JSON array of blocks, such as a redaction puts in place of others. Raises `InvalidJson` for what is none."""
    try:
        blocks: list[Block] = decode(text, list[Block])
    except InvalidJson as error:
        raise InvalidJson(f"blocks is no list of blocks: {error}") from error
    for number, block in enumerate(blocks):
        for name in FREE_FORM:
            value = getattr(block, name)
            if value is not None and not is_json(value):
                raise InvalidJson(f"{name.removesuffix('_text')} of block {number} is no JSON text")
        if not all(is_json(citation) for citation in block.citations):
            raise InvalidJson(f"a citation of block {number} is no JSON text")
    return blocks


def present(message: Message) -> dict[str, Any]:
    """The message as plain values, JSON text decoded; absent fields are left out."""
    shown: dict[str, Any] = msgspec.to_builtins(message)
    shown["blocks"] = [_present_block(block) for block in message.blocks]
    if message.metadata_text:
        shown["metadata"] = {name: plain(text) for name, text in message.metadata_text.items()}
    for unknown in shown.get("unknown", ()):
        unknown["fields"] = {name: plain(text) for name, text in unknown["fields"].items()}
    return shown


def _present_block(block: Block) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(block)
    for name in _SHOWN:
        if name in shown:
            shown[name] = plain(shown[name])
    if block.citations:
        shown["citations"] = [plain(text) for text in block.citations]
    return {"kind": block.kind, "text": block.text, "sealed": block.sealed} | shown
