"""Messages as the chunks in which `streamGenerateContent` would have streamed them.

Only what a model says is streamed. What Gemini has no form for, or did not sign, has none here either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from projector.formats.gemini.parts import names_its_call, write_part
from projector.formats.gemini.rules import RULES
from projector.formats.shared.payloads import maker_of, signer_of
from projector.json_text import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from projector.message import Block, Message


def write_stream(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """A chunk for each block of a message of the model, and one that ends it. A message that is not complete breaks off."""
    return [chunk for message in messages if message.role == "assistant" for chunk in _chunks(message)]


def _chunks(message: Message) -> Iterator[dict[str, Any]]:
    shell = {"responseId": message.provider_ref or message.id}
    if "modelVersion" in message.metadata_text:
        shell["modelVersion"] = str(plain(message.metadata_text["modelVersion"]))
    for block in message.blocks:
        part = _part(block)
        if part is not None:
            yield {"candidates": [{"content": {"parts": [part], "role": "model"}, "index": 0}]} | shell
        if not block.sealed:
            return
    if message.status == "complete":
        ended = {"content": {"parts": [{"text": ""}], "role": "model"}, "finishReason": "STOP", "index": 0}
        yield {"candidates": [ended]} | shell


def _part(block: Block) -> dict[str, Any] | None:
    """A block as a part; what goes on is text, or nothing that can be told yet."""
    if not block.sealed:
        thought = {"thought": True} if block.kind == "reasoning" else {}
        return {"text": block.text} | thought if block.kind in ("text", "reasoning") and block.text else None
    is_foreign = maker_of(block) not in (None, RULES.provider)
    is_unsigned = block.signature is not None and signer_of(block) != RULES.provider
    if is_foreign or is_unsigned or (block.kind == "reasoning" and not block.signature):
        return None
    part = write_part(block)
    if part is None or block.kind != "tool_call" or not names_its_call(block):
        return part
    return part | {"functionCall": {"id": block.tool_call_id} | part["functionCall"]}
