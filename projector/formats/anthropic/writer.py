"""Anthropic Messages out: `{"system", "messages"}`, such as the Messages API takes them.

Not expressed: names of speakers, answers about approvals, where in the conversation an instruction stood, statuses of a
tool's result beyond its being an error, media without bytes or address, what only another provider can read.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from projector.formats.anthropic.parts import (
    PROVIDER,
    SHELL,
    is_plain,
    known_block,
    lost_citations,
    write_block,
    write_part,
)
from projector.formats.anthropic.rules import RULES
from projector.formats.format import Export
from projector.formats.outgoing.repair import SYSTEM, mend
from projector.formats.outgoing.unicode import mend_json
from projector.formats.shared.history import Loss
from projector.formats.shared.payloads import maker_of
from projector.formats.shared.values import numbers_as_text, value_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from projector.message import Block, Message

_EMPTY_ERROR: Final = "[error]"


def write(messages: Sequence[Message]) -> Export:
    """A path as `{"system"?, "messages"}`, such as the Messages API takes it.

    Results stand first in the user's message that follows their calls.
    """
    writer = _Writer()
    mended = mend(writer.arranged([writer.expressible(message) for message in messages]), RULES)
    for message, following in zip_longest(mended.messages, mended.messages[1:]):
        writer.add(message, following)
    return Export(writer.payload(), (*writer.losses, *mended.losses), (*mended.repairs, *writer.repairs))


class _Writer:
    def __init__(self) -> None:
        self.losses: list[Loss] = []
        self.repairs: list[Loss] = []
        self._system: list[dict[str, Any]] = []
        self._is_text = False
        self._messages: list[dict[str, Any]] = []
        self._takes_more = False

    def payload(self) -> dict[str, Any]:
        """What was written."""
        system: Any = self._system[0]["text"] if self._is_text and len(self._system) == 1 else self._system
        return ({"system": system} if system else {}) | {"messages": self._messages}

    def expressible(self, message: Message) -> Message:
        """The message without what no block of Anthropic says."""
        if message.name is not None:
            self.losses.append(Loss("the name of the speaker", message.id))
        known = (known_block(block) for block in message.blocks)
        blocks = tuple(block for block in known if self._is_expressible(message, block))
        return message if blocks == message.blocks else replace(message, blocks=blocks)

    def arranged(self, messages: Sequence[Message]) -> list[Message]:
        """Instructions first, but for those that came from inside a conversation of Anthropic's."""
        first = [message for message in messages if message.role in SYSTEM and not _is_inside(message)]
        rest = [message for message in messages if message.role not in SYSTEM or _is_inside(message)]
        for message, given in zip([*first, *rest], messages, strict=True):
            if message is not given and message.role in SYSTEM:
                self.repairs.append(Loss("an instruction inside the conversation is sent before it", message.id))
        return first + rest

    def add(self, message: Message, following: Message | None) -> None:
        """The next message of a mended path, and the one behind it."""
        if message.role == "tool":
            results = [self._result(message, message.blocks[0])]
            if self._takes_more:
                self._messages[-1]["content"] += results
            else:
                self._messages.append({"role": "user", "content": results})
            self._takes_more = True
            return
        blocks = [said for block in message.blocks if (said := write_block(block)) is not None]
        shell = {name: value for name, value in _shell_of(message).items() if name not in ("role", "content")}
        if message.role in SYSTEM and not self._has_place(message, following):
            self._instruct(message, blocks)
        elif message.role == "user" and self._takes_more:
            self._messages[-1] |= {"content": self._messages[-1]["content"] + blocks} | shell
            self._takes_more = False
        else:
            content = message.text if _prefers_text(message) else blocks
            self._messages.append({"role": message.role, "content": content} | shell)
            self._takes_more = False

    def _has_place(self, message: Message, following: Message | None) -> bool:
        """Whether an instruction may stand here (*Mid-conversation system messages*; newer models only)."""
        if not _is_inside(message) or not self._messages or (following is not None and following.role != "assistant"):
            return False
        before = self._messages[-1]
        last = before["content"][-1] if isinstance(before["content"], list) else {"type": "text"}
        is_of_server = "server_tool" in last["type"] or "tool_use_id" in last
        return before["role"] == "user" or (before["role"] == "assistant" and is_of_server)

    def _instruct(self, message: Message, blocks: Sequence[dict[str, Any]]) -> None:
        texts = [block for block in blocks if block["type"] == "text"]
        if _is_inside(message):
            self.repairs.append(Loss("an instruction that has no place in the conversation is sent before it", message.id))
            self.losses += [Loss("an instruction is text", message.id)] if len(texts) < len(blocks) else []
        if self._system and texts:
            self.losses.append(Loss("where an instruction ends: all are one system prompt", message.id))
        self._is_text = not self._system and _prefers_text(message)
        self._system += texts

    def _is_expressible(self, message: Message, block: Block) -> bool:
        if message.role in SYSTEM and block.kind != "text" and not _is_inside(message):
            self._lose(f"an instruction is text, and not {block.kind}", message, block)
            return False
        if block.kind == "reasoning" and block.sealed and not block.signature:
            self._lose("reasoning without its signature", message, block)
            return False
        if block.kind == "media" and message.role == "assistant":
            self._lose("an assistant has no media", message, block)
            return False
        if block.kind == "media" and block.sealed and write_block(block) is None:
            self._lose("media without bytes or an address that Anthropic takes", message, block)
            return False
        if block.kind in RULES.kinds and maker_of(block) in (None, PROVIDER) and write_block(block) is None:
            self._lose(f"a {block.kind} that says nothing", message, block)
            return False
        if block.kind in ("tool_call", "server_tool_call"):
            if block.approval is not None:
                self._lose("the answer about the approval", message, block)
            if numbers_as_text(block.input_text or block.text):
                self._lose("a number too large for a float; it is sent as text", message, block)
        for _ in range(lost_citations(block)):
            self._lose("a citation of another kind", message, block)
        return True

    def _result(self, message: Message, block: Block) -> dict[str, Any]:
        shell = _shell_of(message)
        content: Any = list(self._parts(message, block))
        if len(content) == 1 and content[0].keys() == {"type", "text"} and shell.get("content") != []:
            content = content[0]["text"]
        else:
            filled = [part for part in content if part["type"] != "text" or part["text"].strip()]
            if len(filled) < len(content):
                self.repairs.append(Loss("blank parts of a result are not sent", message.id, block.number))
            content = filled
        is_error = block.status not in (None, "ok")
        if is_error and not content:
            self.repairs.append(Loss("an error without text is sent as such", message.id, block.number))
            content = _EMPTY_ERROR
        if block.status in ("denied", "interrupted"):
            self._lose(f"that the result was {block.status}; it is sent as an error", message, block)
        sent = {"type": "tool_result", "tool_use_id": block.tool_call_id} | ({"is_error": True} if is_error else {})
        sent |= {name: value for name, value in shell.items() if name != "content"}
        return sent | ({"content": content} if content else {"content": shell["content"]} if "content" in shell else {})

    def _parts(self, message: Message, block: Block) -> Iterator[dict[str, Any]]:
        given = value_of(block.parts or "[]")
        for part in given if isinstance(given, list) else [given]:
            said = write_part(part if isinstance(part, dict) else {"kind": "text", "text": str(part)})
            if said is None:
                self._lose("a part of a result that Anthropic has no form for", message, block)
            else:
                yield said

    def _lose(self, what: str, message: Message, block: Block) -> bool:
        self.losses.append(Loss(what, message.id, block.number))
        return False


def _prefers_text(message: Message) -> bool:
    is_one = len(message.blocks) == 1 and is_plain(message.blocks[0])
    return is_one and "content" not in _shell_of(message)


def _is_inside(message: Message) -> bool:
    """Whether an instruction came as a message among others."""
    return _shell_of(message).get("role") == "system"


def _shell_of(message: Message) -> dict[str, Any]:
    shell = value_of(mend_json(message.metadata_text.get(SHELL, "{}"), refuse_nul=False)[0])
    return shell if isinstance(shell, dict) else {}
