"""AG-UI messages out: a response of the model is one message with us and several of one kind each there.

Ids are those they came with, else derived from ours. What our order does not say, or another maker signed, the metadata
of the written messages says (`tailfold`). Times and usage have no place in AG-UI.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from projector.formats.agui.parts import (
    ACTIVITY,
    ANSWER,
    NO_ARGUMENTS,
    PROVIDER,
    SHELL,
    result_blocks,
    write_content,
)  # fmt: skip
from projector.formats.format import Export
from projector.formats.outgoing.display import HINT, show
from projector.formats.shared.history import Loss
from projector.formats.shared.payloads import maker_of, payload_for, signer_of
from projector.json_text import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from projector.message import Block, Message


def write(messages: Sequence[Message]) -> Export:
    """A path of messages as a list of AG-UI messages; `payload` is that list. Calls without a result stay open."""
    runs = write_runs(messages)
    return Export([piece for _, piece in runs.payload], runs.losses, runs.repairs)


def write_runs(messages: Sequence[Message]) -> Export:
    """The same with the run of each: `payload` is a list of (run id, message)."""
    path, repairs = show(messages, PROVIDER)
    writer = Writer()
    written = [(message, pieces) for message in path if (pieces := writer.pieces(message))]
    for (message, pieces), (_, following) in pairwise([*written, (path[-1], [])] if written else []):
        _tell_apart(message, pieces, following)
    return Export([(message.run_id, piece) for message, pieces in written for piece in pieces], tuple(writer.losses), repairs)


class Writer:
    """Turns messages into AG-UI messages and notes what can't be said."""

    def __init__(self) -> None:
        self.losses: list[Loss] = []
        self._taken: set[str] = set()

    def pieces(self, message: Message) -> list[dict[str, Any]]:
        """One message of ours as messages of AG-UI, each of one kind."""
        shells = _shells_of(message)
        if message.role == "assistant":
            pieces = self._answer(message)
        else:
            pieces = self._result(message, shells) if message.role == "tool" else self._said(message, shells)
        if len(shells) != len(pieces):
            shells = [{}] * len(pieces)
        if message.status == "partial":
            self._lose("that the message is partial", message)
        named = next((piece for piece in pieces if piece["role"] not in ("reasoning", ACTIVITY, "tool")), None)
        if named is not None and message.name is not None:
            named["name"] = message.name
        return [self._finish(piece, shell) for piece, shell in zip(pieces, shells, strict=True)]

    def _finish(self, piece: dict[str, Any], shell: dict[str, Any]) -> dict[str, Any]:
        """The id it came with, unless another one has it by now, and what our own fields do not say."""
        own = shell.get("id")
        if isinstance(own, str) and own not in self._taken:
            piece["id"] = own
        self._taken.add(piece["id"])
        if piece["role"] == "assistant" and "content" not in piece and shell.get("content") == "":
            piece["content"] = ""
        metadata = shell.get("metadata", {}) | piece.get("metadata", {})
        rest = {name: value for name, value in shell.items() if name not in (*piece, "content", "metadata")}
        return piece | rest | ({"metadata": metadata} if metadata else {})

    def _said(self, message: Message, shells: list[dict[str, Any]]) -> list[dict[str, Any]]:
        blocks = []
        for block in message.blocks:
            if block.kind == "text" or (block.kind == "media" and message.role == "user"):
                self._lose_rest(message, block)
                blocks.append(block)
            else:
                self._lose(f"a block of a {message.role} ({block.kind})", message, block)
        content = write_content(blocks, shells[0] if len(shells) == 1 else {})
        while content is None:
            lost = next(block for block in blocks if write_content([block], {}) is None)
            self._lose("media without bytes or an address", message, lost)
            blocks.remove(lost)
            content = write_content(blocks, {})
        return [{"id": message.id, "role": message.role, "content": content}] if blocks else []

    def _result(self, message: Message, shells: list[dict[str, Any]]) -> list[dict[str, Any]]:
        [block] = message.blocks
        shell = shells[0] if len(shells) == 1 else {}
        parts = []
        for part in result_blocks(block):
            if write_content([part], {}) is None:
                self._lose(f"a part of a result that AG-UI has no form for ({part.kind})", message, block)
            else:
                parts.append(part)
        if len(parts) > 1 and all(part.kind == "text" for part in parts) and shell.get("content") != []:
            self._lose("where the parts of the result end", message, block)
        content = write_content(parts, shell)
        piece = {"id": message.id, "role": "tool", "content": content, "toolCallId": block.tool_call_id}
        if block.status not in (None, "ok"):
            said = "".join(part.text for part in parts)
            piece["error"] = shell.get("error", said or block.status)
        if block.status not in (None, "ok", "error"):
            piece["metadata"] = {HINT: {"status": block.status}}
        return [piece]

    def _answer(self, message: Message) -> list[dict[str, Any]]:
        pieces: list[dict[str, Any]] = []
        for block in message.blocks:
            if block.kind == "reasoning":
                pieces.append(self._reasoning(message, block))
            elif block.kind in ("text", "refusal"):
                self._say(message, block, self._open_piece(message, block, pieces))
            elif block.kind == "tool_call":
                self._open_piece(message, block, pieces).setdefault("toolCalls", []).append(self._call(message, block))
            elif block.provider_ref == ACTIVITY and (payload := payload_for(block, PROVIDER)):
                pieces.append(plain(payload))
            else:
                of = f" of {maker}" if (maker := maker_of(block)) else ""
                self._lose(f"AG-UI has no form for this ({block.kind}{of})", message, block)
        return pieces

    def _open_piece(self, message: Message, block: Block, pieces: list[dict[str, Any]]) -> dict[str, Any]:
        """Where text and calls go: the answer that is last, or a new one behind reasoning."""
        if not pieces or pieces[-1]["role"] != "assistant":
            is_first = all(piece["role"] != "assistant" for piece in pieces)
            own = message.id if is_first else f"{message.id}/{block.number}"
            pieces.append({"id": own, "role": "assistant"})
        return pieces[-1]

    def _say(self, message: Message, block: Block, piece: dict[str, Any]) -> None:
        if "toolCalls" in piece:
            self._lose("that the text stands behind a call", message, block)
        elif "content" in piece:
            self._lose("where a block of text begins", message, block)
        if block.kind == "refusal":
            self._lose("that it is a refusal", message, block)
        self._lose_rest(message, block)
        piece["content"] = piece.get("content", "") + block.text

    def _reasoning(self, message: Message, block: Block) -> dict[str, Any]:
        piece: dict[str, Any] = {"id": f"{message.id}/{block.number}", "role": "reasoning", "content": block.text}
        if maker_of(block) not in (None, PROVIDER):
            self._lose(f"what only {maker_of(block)} knows of the reasoning", message, block)
        return piece | _encrypted(block)

    def _call(self, message: Message, block: Block) -> dict[str, Any]:
        arguments = block.input_text or block.text or NO_ARGUMENTS
        call = {"id": block.tool_call_id, "type": "function", "function": {"name": block.name or "", "arguments": arguments}}
        if maker_of(block) not in (None, PROVIDER):
            self._lose(f"what only {maker_of(block)} knows of the call", message, block)
        if block.approval is not None:
            self._lose("that a person was asked", message, block)
        rest: dict[str, Any] = plain(payload_for(block, PROVIDER) or "{}")
        encrypted = _encrypted(block)
        metadata = rest.pop("metadata", {}) | encrypted.pop("metadata", {})
        return call | encrypted | rest | ({"metadata": metadata} if metadata else {})

    def _lose_rest(self, message: Message, block: Block) -> None:
        if block.citations:
            self._lose("citations", message, block)
        if block.signature is not None:
            self._lose(f"a signature of {signer_of(block)} on text", message, block)
        if maker_of(block) not in (None, PROVIDER) and block.kind != "media":
            self._lose(f"what only {maker_of(block)} knows of the text", message, block)

    def _lose(self, what: str, message: Message, block: Block | None = None) -> None:
        self.losses.append(Loss(what, message.id, None if block is None else block.number))


def _encrypted(block: Block) -> dict[str, Any]:
    if block.signature is None:
        return {}
    signer = signer_of(block)
    hint = {} if signer == PROVIDER else {"metadata": {HINT: {"signer": signer}}}
    return {"encryptedValue": block.signature} | hint


def _shells_of(message: Message) -> list[dict[str, Any]]:
    shells = plain(message.metadata_text.get(SHELL, "[]"))
    is_ours = isinstance(shells, list) and all(isinstance(shell, dict) for shell in shells)
    return shells if is_ours else []


def _tell_apart(message: Message, pieces: list[dict[str, Any]], following: list[dict[str, Any]]) -> None:
    """Says which messages are one with us, where their order does not."""
    answers = sum(piece["role"] == "assistant" for piece in pieces)
    runs_on = pieces[-1]["role"] == "reasoning" and following and following[0]["role"] in ANSWER
    if answers > 1 or runs_on or (answers and pieces[-1]["role"] == "reasoning"):
        for piece in pieces:
            metadata = piece.get("metadata", {})
            piece["metadata"] = metadata | {HINT: metadata.get(HINT, {}) | {"message": message.id}}
