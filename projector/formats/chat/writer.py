"""Chat Completions messages out: what the API takes.

Reasoning goes only where the target names the field it wants it in, citations and server tools never.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from projector.formats.chat.parts import (
    DETAILS,
    EXTRA,
    PLAIN_REASONING,
    PROVIDER,
    THINKING,
    write_detail,
    write_media,
    write_text,
)
from projector.formats.chat.rules import rules_for
from projector.formats.format import Export
from projector.formats.outgoing.metadata import extra_of
from projector.formats.outgoing.repair import mend
from projector.formats.shared.fields import items_of
from projector.formats.shared.history import Loss
from projector.formats.shared.payloads import payload_for
from projector.json_text import decode, plain, split
from projector.message import Block, Message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from projector.formats.chat.rules import Reasoning

_NAME: Final = re.compile(r"[\s<|\\/>\x00-\x1f\ud800-\udfff]")
_MAX_NAME: Final = 64


def write(messages: Sequence[Message], *, reasoning: Reasoning | None = None) -> Export:
    """A path of messages as the API takes it.

    `reasoning` names the field in which the target takes back what came in it; None is OpenAI, which takes neither
    reasoning nor what another maker has added to a call.
    """
    losses: list[Loss] = []
    given = [_without_foreign_reasoning(message, reasoning, losses) for message in messages]
    mended = mend(given, rules_for(reasoning))
    writer = _Writer(reasoning, losses)
    payload = [writer.write(message) for message in mended.messages]
    return Export(payload, (*losses, *mended.losses), (*mended.repairs, *writer.repairs))


class _Writer:
    def __init__(self, reasoning: Reasoning | None, losses: list[Loss]) -> None:
        self._reasoning = reasoning
        self._losses = losses
        self.repairs: list[Loss] = []

    def write(self, message: Message) -> dict[str, Any]:
        for block in message.blocks:
            if block.citations:
                self._losses.append(Loss("citations can't be sent", message.id, block.number))
        extra = extra_of(message, EXTRA, self.repairs)
        if message.role == "tool":
            return self._result(message) | extra
        written: dict[str, Any] = {"role": message.role}
        if message.name:
            written["name"] = self._name(message, message.name)
        written["content"] = self._content(message)
        if message.role == "assistant":
            written |= self._assistant(message)
        return written | extra

    def _name(self, message: Message, name: str) -> str:
        sent = _NAME.sub("_", name)[:_MAX_NAME]
        if sent != name:
            self.repairs.append(Loss(f"the name {name!r} is sent as {sent}", message.id))
        return sent

    def _content(self, message: Message) -> str | list[dict[str, Any]] | None:
        parts: list[dict[str, Any]] = []
        seen_call = False
        for block in message.blocks:
            part = self._part(message, block)
            seen_call = seen_call or block.kind == "tool_call"
            if part is not None:
                parts.append(part)
                if seen_call:
                    self._losses.append(Loss("what stands behind a call is sent before it", message.id, block.number))
        if [set(part) for part in parts] == [{"type", "text"}]:
            only: str = parts[0]["text"]
            return only
        refusals = [block.text for block in message.blocks if block.kind == "refusal"]
        if not parts and refusals:
            return [{"type": "refusal", "refusal": "\n\n".join(refusals)}]
        if not parts and message.role != "assistant":
            return "[What this message held can't be sent.]"
        return parts or None

    def _part(self, message: Message, block: Block) -> dict[str, Any] | None:
        if block.kind == "text":
            return write_text(block)
        if block.kind == "provider":
            given: dict[str, Any] = plain(payload_for(block, PROVIDER) or "{}")
            return given
        if block.kind == "reasoning" and block.provider_ref == THINKING == self._reasoning:
            rest: dict[str, Any] = plain(payload_for(block, PROVIDER) or "{}")
            return {"type": THINKING, THINKING: [{"type": "text", "text": block.text}]} | rest
        if block.kind != "media" or _is_audio_of(message, block):
            return None
        part = write_media(block, is_plain=self._reasoning is None) if message.role == "user" else None
        if part is None:
            self._losses.append(Loss(f"there is no form for such media ({block.media_type})", message.id, block.number))
        return part

    def _assistant(self, message: Message) -> dict[str, Any]:
        written: dict[str, Any] = {}
        refusals = [block.text for block in message.blocks if block.kind == "refusal"]
        if refusals and any(block.kind in ("text", "media", "provider") for block in message.blocks):
            written["refusal"] = "\n\n".join(refusals)
        if self._reasoning in PLAIN_REASONING:
            said = [block.text for block in message.blocks if block.kind == "reasoning"]
            written |= {self._reasoning: "".join(said)} if said else {}
        elif self._reasoning == DETAILS:
            details = [write_detail(block) for block in message.blocks if block.kind in ("reasoning", "redacted_reasoning")]
            written |= {DETAILS: details} if details else {}
        for block in message.blocks:
            if _is_audio_of(message, block):
                audio: dict[str, Any] = plain(payload_for(block, PROVIDER) or "{}")
                written["audio"] = {"id": audio.get("audio", audio).get("id")}
        calls = [self._call(message, block) for block in message.blocks if block.kind == "tool_call"]
        return written | ({"tool_calls": calls} if calls else {})

    def _call(self, message: Message, block: Block) -> dict[str, Any]:
        rest: dict[str, Any] = plain(payload_for(block, PROVIDER) or "{}")
        kind = rest.pop("type", "function")
        if rest and self._reasoning is None:
            self._losses.append(Loss("what another maker has added to a call is not sent", message.id, block.number))
            rest = {}
        call = {"id": block.tool_call_id, "type": kind} | rest
        if kind == "custom":
            return call | {"custom": {"name": block.name, "input": block.text}}
        return call | {"function": {"name": block.name, "arguments": block.input_text or block.text}}

    def _result(self, message: Message) -> dict[str, Any]:
        [block] = message.blocks
        if block.status == "error":
            self._losses.append(Loss("that a tool failed can't be said, but by its text", message.id, block.number))
        parts = []
        for part in items_of(block.parts or "[]", "parts"):
            fields = split(part)
            if decode(fields.get("kind", "null")) in ("text", "data"):  # a value is told as its JSON
                rest: dict[str, Any] = plain(payload_for(Block("text", opaque=fields.get("opaque")), PROVIDER) or "{}")
                parts.append({"type": "text", "text": decode(fields.get("text", '""'))} | rest)
            else:
                self._losses.append(Loss("a tool's result is text only", message.id, block.number))
        is_plain = all(set(part) == {"type", "text"} for part in parts)
        content = "".join(part["text"] for part in parts) if is_plain and len(parts) < 2 else parts
        return {"role": "tool", "tool_call_id": block.tool_call_id, "content": content}


def _is_audio_of(message: Message, block: Block) -> bool:
    """Sound that the model has made goes back by its id."""
    return block.kind == "media" and message.role == "assistant" and block.provider_ref == "audio"


def _without_foreign_reasoning(message: Message, reasoning: Reasoning | None, losses: list[Loss]) -> Message:
    """Reasoning goes back in the field it came in, and in no other."""
    if reasoning is None:
        return message
    kinds = ("reasoning", "redacted_reasoning")
    foreign = [block for block in message.blocks if block.kind in kinds and block.provider_ref != reasoning]
    losses += [Loss(f"reasoning that did not come as {reasoning} is not sent", message.id, block.number) for block in foreign]
    kept = tuple(block for block in message.blocks if block not in foreign)
    return msgspec.structs.replace(message, blocks=kept) if foreign else message
