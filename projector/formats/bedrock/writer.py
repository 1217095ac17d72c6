"""Bedrock out: `{"system", "messages"}`, such as Converse takes them.

Bytes stand in base64, as they are sent; who calls through an AWS SDK decodes them before.
Not expressed: names of speakers, answers about approvals, where in the conversation an instruction stood, statuses of a
tool's result beyond its being an error, media of other types or at an address outside of S3, citations of others, and
what only another provider can read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from projector.formats.bedrock.media import fit_name
from projector.formats.bedrock.parts import cited, write_block, write_result
from projector.formats.bedrock.rules import RULES
from projector.formats.bedrock.stream_reader import PROVIDER
from projector.formats.format import Export
from projector.formats.outgoing.instructions import lead_with_instructions
from projector.formats.outgoing.repair import SYSTEM, mend
from projector.formats.shared.history import Loss
from projector.formats.shared.payloads import maker_of
from projector.formats.shared.values import numbers_as_text, value_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from projector.message import Block, Message

_EMPTY: Final = "[empty]"
_ATTACHED: Final = "[A document is attached.]"
_IN_SYSTEM: Final = ("text", "guardContent", "cachePoint")


def write(messages: Sequence[Message]) -> Export:
    """A path as `{"system"?, "messages"}`, such as Converse takes it.

    Results stand first in the user's message that follows their calls.
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
        self._messages: list[dict[str, Any]] = []
        self._takes_more = False
        self._documents: set[str] = set()

    def payload(self) -> dict[str, Any]:
        """What was written."""
        return ({"system": self._system} if self._system else {}) | {"messages": self._messages}

    def expressible(self, message: Message) -> Message:
        """The message without what no content block says."""
        if message.name is not None:
            self.losses.append(Loss("the name of the speaker", message.id))
        blocks = tuple(block for block in message.blocks if self._is_expressible(message, block))
        return message if blocks == message.blocks else replace(message, blocks=blocks)

    def add(self, message: Message) -> None:
        """The next message of a mended path."""
        if message.role == "tool":
            self._put("user", [self._result(message, message.blocks[0])], takes_more=True)
            return
        said = [(block, one) for block in message.blocks if (one := write_block(block)) is not None]
        blocks = [self._named(message, block, one) for block, one in said]
        if message.role in SYSTEM:
            if self._system:
                self.losses.append(Loss("where an instruction ends: all are one system prompt", message.id))
            self._system += blocks
            return
        if message.role == "user" and any("document" in one for one in blocks) and not any("text" in one for one in blocks):
            self.repairs.append(Loss("text is sent with a document that stands alone", message.id))
            blocks.append({"text": _ATTACHED})
        self._put(message.role, blocks, takes_more=False)

    def _put(self, role: str, blocks: list[dict[str, Any]], *, takes_more: bool) -> None:
        """Results and what the user says behind them are one message."""
        if role == "user" and self._takes_more:
            self._messages[-1]["content"] += blocks
        else:
            self._messages.append({"role": role, "content": blocks})
        self._takes_more = takes_more

    def _is_expressible(self, message: Message, block: Block) -> bool:
        if not block.sealed or block.kind not in RULES.kinds:
            return True  # what becomes of it is said where the path is mended
        is_own = maker_of(block) == PROVIDER
        said = write_block(block)
        if message.role in SYSTEM and (said is None or not said.keys() & set(_IN_SYSTEM)):
            return self._lose(f"an instruction is text, and not {block.kind}", message, block)
        if block.kind == "media" and said is None:
            return self._lose("media of a type, or from a place, that Converse does not take", message, block)
        if is_own and said is None:
            return self._lose(f"a {block.kind} that says nothing", message, block)
        if block.kind in ("tool_call", "server_tool_call"):
            if block.approval is not None:
                self._lose("the answer about the approval", message, block)
            if numbers_as_text(block.input_text or block.text):
                self._lose("a number too large for a float; it is sent as text", message, block)
        for _ in range(len(block.citations) - len(cited(block))):
            self._lose("a citation of another kind", message, block)
        return True

    def _named(self, message: Message, block: Block, said: dict[str, Any]) -> dict[str, Any]:
        """A document under a name that Converse takes and that no other has."""
        document = said.get("document")
        if not isinstance(document, dict):
            return said
        given = str(document.get("name", ""))
        name = fit_name(given, self._documents)
        self._documents.add(name)
        if name == given:
            return said
        self.repairs.append(Loss(f"the document {given!r} is sent as {name!r}", message.id, block.number))
        return {"document": document | {"name": name}}

    def _result(self, message: Message, block: Block) -> dict[str, Any]:
        content = []
        given = value_of(block.parts or "[]")
        for part in given if isinstance(given, list) else [given]:
            said = write_result(part if isinstance(part, dict) else {"kind": "text", "text": str(part)})
            if said is None:
                self._lose("a part of a result that Converse has no form for", message, block)
            elif not isinstance(said.get("text"), str) or said["text"].strip():
                content.append(self._named(message, block, said))
        if not content:
            self.repairs.append(Loss("a result that says nothing is sent as such", message.id, block.number))
            content.append({"text": _EMPTY})
        if block.status in ("denied", "interrupted"):
            self._lose(f"that the result was {block.status}; it is sent as an error", message, block)
        is_error = block.status not in (None, "ok")
        sent = {"toolUseId": block.tool_call_id, "content": content} | ({"status": "error"} if is_error else {})
        return {"toolResult": sent}

    def _lose(self, what: str, message: Message, block: Block) -> bool:
        self.losses.append(Loss(what, message.id, block.number))
        return False
