"""Formats of frameworks, which make nothing of their own: they hand on what any provider has made, each to its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from projector.formats.outgoing.repair import Mended, mend
from projector.formats.shared.payloads import opaque, payload_for
from projector.json_text import split

if TYPE_CHECKING:
    from collections.abc import Sequence

    from projector.formats.outgoing.rules import Rules
    from projector.message import Block, Message


def mend_for_all(messages: Sequence[Message], rules: Rules) -> Mended:
    """A path of messages as `mend` leaves it, but that nothing in it which has a form there is foreign."""
    mended = mend(
        [replace(message, blocks=tuple(_wrap(block, rules) for block in message.blocks)) for message in messages], rules
    )
    unwrapped = (
        replace(message, blocks=tuple(_unwrap(block, rules) for block in message.blocks)) for message in mended.messages
    )
    return mended._replace(messages=tuple(unwrapped))


def _wrap(block: Block, rules: Rules) -> Block:
    """The block as if this format had made what somebody has made."""
    is_server = block.kind in ("server_tool_call", "server_tool_result")
    has_maker = block.opaque is not None or block.signature is not None or is_server
    if not has_maker or block.kind not in rules.kinds or block.kind == "media":
        return block
    return replace(block, opaque=opaque(rules.provider, f'{{"inner":{block.opaque or "null"}}}'))


def _unwrap(block: Block, rules: Rules) -> Block:
    is_wrapped = block.kind in rules.kinds and block.kind != "media"
    payload = payload_for(block, rules.provider) if is_wrapped else None
    if payload is None:
        return block
    inner = split(payload).get("inner", "null")
    return replace(block, opaque=None if inner == "null" else inner)
