"""Items of the Responses API out, such as it takes them back.

Reasoning and what follows it move together, an item goes back under its own id only where the reasoning before it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec.structs import replace

from projector.formats.format import Export
from projector.formats.outgoing.metadata import extra_of
from projector.formats.outgoing.repair import mend
from projector.formats.responses.parts import (
    REASONING,
    SAID,
    groups,
    has_own_id,
    is_sound,
    item_of,
    result_item,
    result_parts,
    type_of_call,
    without_id,
    write_citation,
    write_part,
)
from projector.formats.responses.rules import RULES
from projector.formats.shared.history import Loss
from projector.formats.shared.openai_items import (
    EXTRA,
    PART,
    PROVIDER,
)
from projector.formats.shared.payloads import maker_of, payload_for
from projector.json_text import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from projector.message import Block, Message

_NOTHING: Final = -1


def write(messages: Sequence[Message], *, reasoning: Literal["encrypted", "any"] = "encrypted") -> Export:
    """A path of messages as items that the API takes.

    Reasoning goes back with its encrypted content; `any` also sends what has none, which only a server takes that has
    kept the response (`store`), or that reads reasoning in plain text.
    """
    writer = _Writer()
    given = [writer.prepare(message, reasoning) for message in _without_blind_calls(messages, writer.repairs)]
    mended = mend(given, RULES)
    originals = {message.id: message for message in messages}
    for message in mended.messages:
        if message.role == "assistant":
            writer.answer(message, originals.get(message.id, message))
        elif message.role == "tool":
            writer.result(message)
        else:
            writer.say(message)
    return Export(writer.items, (*writer.losses, *mended.losses), (*mended.repairs, *writer.repairs))


class _Writer:
    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self.losses: list[Loss] = []
        self.repairs: list[Loss] = []
        self._ids: set[str] = set()
        self._calls: dict[str | None, str] = {}

    def prepare(self, message: Message, reasoning: str) -> Message:
        """The message without reasoning that can't be sent."""
        kept = []
        for block in message.blocks:
            is_own = block.kind in REASONING and maker_of(block) == PROVIDER
            if is_own and block.signature is None and reasoning != "any":
                self.losses.append(Loss("reasoning without encrypted content is not sent", message.id, block.number))
            elif is_own and not (has_own_id(item_of([block])) or (reasoning == "any" and block.provider_ref)):
                self.losses.append(Loss("reasoning without an id of OpenAI is not sent", message.id, block.number))
            elif maker_of(block) == PROVIDER and not is_sound(item_of([block])):
                self.losses.append(Loss("an item whose ids are broken is not sent", message.id, block.number))
            else:
                kept.append(block)
        return replace(message, blocks=tuple(kept))

    def answer(self, message: Message, original: Message) -> None:
        leads, follows = _bonds(original)
        kept = {block.number for block in message.blocks}
        blocks = []
        for block in message.blocks:
            if block.kind in REASONING and follows.get(block.number, block.number) not in kept:
                self.repairs.append(Loss("reasoning without what it led to is not sent", message.id, block.number))
            else:
                blocks.append(block)
        for group in groups(blocks):
            block = group[0]
            item = item_of(group)
            is_loose = not leads.get(block.number, set()) <= kept
            if is_loose and block.kind not in (*SAID, "tool_call"):
                self.losses.append(Loss("it is not taken without its reasoning", message.id, block.number))
                continue
            self._note_citations(message, group)
            if block.kind == "tool_call":
                self._calls[block.tool_call_id] = type_of_call(block)
            self.items += self._with_fit_id(message, block, item, is_loose=is_loose)

    def say(self, message: Message) -> None:
        """A message of the client: its content, then items of its own."""
        if message.name:
            self.losses.append(Loss("a message has no name here", message.id))
        parts: list[dict[str, Any]] = []
        own: list[dict[str, Any]] = []
        for block in message.blocks:
            if _is_item(block):
                own += self._own(message, block)
                continue
            part = write_part(block)
            if part is None:
                self.losses.append(Loss(f"there is no form for it ({block.media_type})", message.id, block.number))
            else:
                parts.append(part)
        if not parts and any(not _is_item(block) for block in message.blocks):
            parts = [{"type": "input_text", "text": "[What this message held can't be sent.]"}]
        if parts:
            is_plain = [set(part) for part in parts] == [{"type", "text"}]
            content = parts[0]["text"] if is_plain else parts
            self.items.append({"role": message.role, "content": content} | extra_of(message, EXTRA, self.repairs))
        self.items += own

    def result(self, message: Message) -> None:
        [block] = message.blocks
        item = result_item(block, self._calls.get(block.tool_call_id, "function_call"))
        if item is None:
            raise AssertionError("calls whose result can't be sent are left out")
        if block.status == "error" and item["type"] != "apply_patch_call_output":
            self.losses.append(Loss("that a tool failed can't be said, but by its text", message.id, block.number))
        for part in result_parts(block.parts):
            if part.kind == "media" and write_part(part) is None:
                self.losses.append(Loss(f"there is no form for such media ({part.media_type})", message.id, block.number))
            if part.kind == "provider" and payload_for(part, PROVIDER) is None:
                self.losses.append(Loss("a part of a result that only its maker reads", message.id, block.number))
        self.items.append(item | extra_of(message, EXTRA, self.repairs))

    def _own(self, message: Message, block: Block) -> list[dict[str, Any]]:
        item: dict[str, Any] = plain(payload_for(block, PROVIDER) or "{}")
        request = item.get("approval_request_id")
        if request is not None and request not in self._ids:
            self.repairs.append(Loss(f"an answer to {request}, which is not asked here, is not sent", message.id, block.number))
            return []
        return [item]

    def _with_fit_id(self, message: Message, block: Block, item: dict[str, Any], *, is_loose: bool) -> list[dict[str, Any]]:
        ref = item.get("id")
        if ref is None:
            return [without_id(item)]
        is_seen = str(ref) in self._ids
        self._ids.add(str(ref))
        if block.kind not in (*SAID, "tool_call"):
            if is_seen:
                self.repairs.append(Loss(f"the item {ref} is there twice, it is sent once", message.id, block.number))
            return [] if is_seen else [item]
        if has_own_id(item) and not is_loose and not is_seen:
            return [item]
        if is_seen:
            self.repairs.append(Loss(f"the id {ref} is there twice, it is sent once", message.id, block.number))
        else:
            why = "for its reasoning is not sent" if is_loose else "for it is not one of OpenAI's"
            self.losses.append(Loss(f"the id {ref} is not sent, {why}", message.id, block.number))
        return [without_id(item)]

    def _note_citations(self, message: Message, group: Sequence[Block]) -> None:
        for block in group:
            if any(write_citation(citation) is None for citation in block.citations):
                self.losses.append(Loss("citations of another provider are not sent", message.id, block.number))


def _is_item(block: Block) -> bool:
    """Whether a block of the client is an item of its own, and no part of a message."""
    return block.kind == "provider" and not (block.provider_ref or "").startswith(PART)


def _bonds(message: Message) -> tuple[dict[int, set[int]], dict[int, int]]:
    """For each block the reasoning directly before it, for each reasoning what follows it."""
    leads: dict[int, set[int]] = {}
    follows: dict[int, int] = {}
    open_reasoning: set[int] = set()
    for block in message.blocks:
        if block.kind in REASONING and maker_of(block) == PROVIDER:
            open_reasoning.add(block.number)
        elif block.kind not in REASONING:
            leads[block.number] = open_reasoning
            is_answer = block.kind != "server_tool_result"  # whose call is missing
            follows |= dict.fromkeys(open_reasoning, block.number if is_answer else _NOTHING)
            open_reasoning = set()
    return leads, follows


def _without_blind_calls(messages: Sequence[Message], repairs: list[Loss]) -> list[Message]:
    """A computer's call is answered by a picture and by nothing else: one without is left out."""
    results = [block for message in messages for block in message.blocks if block.kind == "tool_result"]
    shown = {block.tool_call_id for block in results if result_item(block, "computer_call") is not None}
    kept = []
    for message in messages:
        blocks = []
        for block in message.blocks:
            if block.kind == "tool_call" and type_of_call(block) == "computer_call" and block.tool_call_id not in shown:
                repairs.append(Loss("a call of a computer without its picture is not sent", message.id, block.number))
            else:
                blocks.append(block)
        kept.append(message if len(blocks) == len(message.blocks) else replace(message, blocks=tuple(blocks)))
    return kept
