"""Blocks and parts that readers make: media, what is kept for its maker, and the blocks that events stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from projector import events as ev
from projector.formats.shared.payloads import opaque
from projector.json_text import JsonText, dump, text_of
from projector.message import Block
from projector.run_draft import MessageDraft, Usage, amend, freeze_block, grow_block, seal_block, start_block

if TYPE_CHECKING:
    from collections.abc import Iterable


def blocks_of(bodies: Iterable[ev.Body]) -> tuple[Block, ...]:
    """The blocks that events of one message make, finished or not."""
    draft = MessageDraft("", "assistant", 0, 0)
    for body in bodies:
        if isinstance(body, ev.BlockStarted):
            draft = start_block(draft, body, 0)
        elif isinstance(body, ev.BlockDelta):
            draft = grow_block(draft, body)
        elif isinstance(body, ev.BlockSealed):
            draft = seal_block(draft, body)
        elif isinstance(body, ev.BlockAnnotated):
            draft = amend(draft, body)
    return _blocks(draft)


def usage_in(bodies: Iterable[ev.Body]) -> Usage | None:
    """The tokens that events tell of, where they do."""
    used = [body for body in bodies if isinstance(body, ev.RunUsage)]
    if not used:
        return None
    last = used[-1]
    return Usage(last.input, last.output, last.cached, last.cache_write, last.reasoning, text_of(last.raw))


def part_text(text: str) -> JsonText:
    """Text as one part of a tool's result."""
    return dump({"kind": "text", "text": text})


def part_media(media_type: str | None, *, data: str | None = None, url: str | None = None) -> JsonText:
    """Media as one part of a tool's result: its bytes in base64, or its address."""
    said = {"kind": "media", "media_type": media_type, "data": data, "url": url}
    return dump({name: value for name, value in said.items() if value is not None})


def part_data(value: JsonText) -> JsonText:
    """A JSON value as one part of a tool's result; its text is the value as it came."""
    return dump({"kind": "data", "text": value})


def part_kept(provider: str, payload: JsonText) -> JsonText:
    """What has no other form as one part of a tool's result, kept as it came for who made it."""
    return f'{{"kind":"provider","opaque":{opaque(provider, payload)}}}'


def media_block(media_type: str | None, *, data: str | None = None, url: str | None = None, name: str | None = None) -> Block:
    """Media in a message: its bytes in base64, or its address, and the name of a file."""
    said = {"data": data, "url": url, "name": name}
    return Block("media", sealed=True, media_type=media_type, fields={name: text for name, text in said.items() if text})


def kept_block(provider: str, payload: JsonText, name: str | None = None) -> Block:
    """What has no other form, kept as it came for who made it."""
    return Block("provider", sealed=True, provider_ref=name, opaque=opaque(provider, payload))


def said_block(provider: str, text: str, payload: JsonText) -> Block:
    """Text with more than our fields say of it, which is kept as it came for who made it."""
    return Block("text", text=text, sealed=True, opaque=opaque(provider, payload))


def part_said(provider: str, text: str, payload: JsonText) -> JsonText:
    """The same as one part of a tool's result."""
    return f'{{"kind":"text","text":{dump(text)},"opaque":{opaque(provider, payload)}}}'


def _blocks(draft: MessageDraft) -> tuple[Block, ...]:
    blocks = {number: block for number, (_, block) in draft.sealed.items()}
    blocks |= {number: freeze_block(block) for number, block in draft.live.items()}
    return tuple(blocks[number] for number in sorted(blocks))
