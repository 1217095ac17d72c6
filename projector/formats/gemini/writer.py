"""Gemini out: `{"systemInstruction", "contents"}`, such as `generateContent` takes them.

Not expressed: names of speakers, answers about approvals, citations, where in the conversation an instruction stood,
statuses of a tool's result beyond its being an error, thoughts without a signature, media without bytes or address, and
what only another provider can read. Newer models want a signature on each call of the turn that goes on: calls that
another model made have none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from projector.formats.format import Export
from projector.formats.gemini.parts import ERROR, OF_MODELS, OUTPUT, SHELL, names_its_call, write_part, write_result
from projector.formats.gemini.rules import RULES
from projector.formats.gemini.stream_reader import PROVIDER
from projector.formats.outgoing.instructions import lead_with_instructions
from projector.formats.outgoing.metadata import extra_of
from projector.formats.outgoing.repair import SYSTEM, mend
from projector.formats.shared.history import Loss
from projector.formats.shared.payloads import maker_of
from projector.formats.shared.values import numbers_as_text, value_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from projector.message import Block, Message


def write(messages: Sequence[Message]) -> Export:
    """A path as `{"systemInstruction"?, "contents"}`, such as `generateContent` takes it.

    The results of a message's calls are one content, in the order of the calls.
    """
    writer = _Writer()
    given, moved = lead_with_instructions([writer.expressible(message) for message in messages])
    mended = mend(given, RULES)
    for message in mended.messages:
        writer.add(message)
    return Export(writer.payload(), (*writer.losses, *mended.losses), (*moved, *mended.repairs, *writer.repairs))


class _Writer:
    def __init__(self) -> None:
        self.losses: list[Loss] = []
        self.repairs: list[Loss] = []
        self._system: list[dict[str, Any]] = []
        self._contents: list[dict[str, Any]] = []
        self._has_results = False
        self._names: dict[str | None, str | None] = {}
        self._has_ids = True

    def payload(self) -> dict[str, Any]:
        """What was written."""
        return ({"systemInstruction": {"parts": self._system}} if self._system else {}) | {"contents": self._contents}

    def expressible(self, message: Message) -> Message:
        """The message without what no part says."""
        if message.name is not None:
            self.losses.append(Loss("the name of the speaker", message.id))
        blocks = tuple(block for block in message.blocks if self._is_expressible(message, block))
        return message if blocks == message.blocks else replace(message, blocks=blocks)

    def add(self, message: Message) -> None:
        """The next message of a mended path."""
        if message.role == "tool":
            result = self._result(message, message.blocks[0])
            if self._has_results:
                self._contents[-1]["parts"].append(result)
            else:
                self._contents.append({"role": "user", "parts": [result]})
            self._has_results = True
            return
        calls = [block for block in message.blocks if block.kind == "tool_call"]
        if calls:
            self._names = {block.tool_call_id: block.name for block in calls}
            self._has_ids = all(map(names_its_call, calls))
        parts = [self._named(block, part) for block in message.blocks if (part := write_part(block)) is not None]
        if message.role in SYSTEM:
            if self._system:
                self.losses.append(Loss("where an instruction ends: all are one system instruction", message.id))
            self._system += parts
        else:
            self._contents.append({"role": "model" if message.role == "assistant" else "user", "parts": parts})
            self._has_results = False

    def _is_expressible(self, message: Message, block: Block) -> bool:
        if message.role in SYSTEM and block.kind != "text":
            return self._lose(f"an instruction is text, and not {block.kind}", message, block)
        is_own = block.sealed and block.kind in RULES.kinds and maker_of(block) == PROVIDER
        if block.kind == "media" and block.sealed and write_part(block) is None:
            return self._lose("media without bytes or an address that Gemini takes", message, block)
        if is_own and write_part(block) is None:
            return self._lose(f"a {block.kind} that says nothing", message, block)
        if message.role != "assistant" and block.sealed and not OF_MODELS.isdisjoint(write_part(block) or ()):
            return self._lose(f"a {block.kind} of a user: only a model has one", message, block)
        if block.kind == "tool_call":
            if block.approval is not None:
                self._lose("the answer about the approval", message, block)
            if numbers_as_text(block.input_text or block.text):
                self._lose("a number too large for a float; it is sent as text", message, block)
        if block.citations:
            self._lose("citations can't be sent", message, block)
        return True

    def _named(self, block: Block, part: dict[str, Any]) -> dict[str, Any]:
        """A call with the id that its result will name, unless Gemini gave one call of the message none."""
        if block.kind != "tool_call":
            return part
        call = {name: value for name, value in part["functionCall"].items() if name != "id"}
        return part | {"functionCall": ({"id": block.tool_call_id} if self._has_ids else {}) | call}

    def _result(self, message: Message, block: Block) -> dict[str, Any]:
        said: list[Any] = []
        media: list[dict[str, Any]] = []
        given = value_of(block.parts or "[]")
        for part in given if isinstance(given, list) else [given]:
            told = write_result(part if isinstance(part, dict) else {"kind": "text", "text": str(part)})
            if told is None:
                self._lose("a part of a result that Gemini has no form for", message, block)
            elif told[1] is not None:
                media.append(told[1])
            else:
                said.append(told[0])
        if block.status in ("denied", "interrupted"):
            self._lose(f"that the result was {block.status}; it is sent as an error", message, block)
        is_error = block.status not in (None, "ok")
        if len(said) == 1 and isinstance(said[0], dict) and not is_error:
            response = said[0]
        else:
            response = {ERROR if is_error else OUTPUT: said[0] if len(said) == 1 else said or ""}
        known: dict[str, Any] = {"id": block.tool_call_id} if self._has_ids else {}
        known |= {"name": self._names.get(block.tool_call_id), "response": response}
        known |= {"parts": media} if media else {}
        extra = extra_of(message, SHELL, self.repairs)
        return {"functionResponse": {name: value for name, value in extra.items() if name not in known} | known}

    def _lose(self, what: str, message: Message, block: Block) -> bool:
        self.losses.append(Loss(what, message.id, block.number))
        return False
