"""LangChain messages out, flat: text with `tool_calls` where that says all, else content blocks of version 1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from projector.formats.format import Export
from projector.formats.langchain import parts as blocks_of
from projector.formats.langchain.parts import MAKERS, PROVIDER, SHELL
from projector.formats.langchain.rules import RULES
from projector.formats.outgoing.frameworks import mend_for_all
from projector.formats.shared.fields import items_of
from projector.formats.shared.history import Loss, text_block
from projector.formats.shared.payloads import maker_of, part_block, payload_for, signer_of
from projector.json_text import JsonText, plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from projector.message import Block, Message

_TYPES: Final = {"user": "human", "assistant": "ai", "system": "system", "developer": "system", "tool": "tool"}
_VERSION: Final = "output_version"


def write(messages: Sequence[Message]) -> Export:
    """A path of messages as a list of LangChain messages, such as a chain sends them on; `payload` is that list."""
    mended = mend_for_all(messages, RULES)
    writer = _Writer()
    repairs: list[Loss] = []
    written: list[dict[str, Any]] = []
    for message in mended.messages:
        said = writer.message(message)
        if said["content"] or message.role == "tool" or said.get("tool_calls") or said.get("invalid_tool_calls"):
            written.append(said)
        else:
            repairs.append(Loss("a message without content is not sent", message.id))
    return Export(written, (*mended.losses, *writer.losses), (*mended.repairs, *repairs))


class _Writer:
    """Turns messages into LangChain's and notes what can't be said."""

    def __init__(self) -> None:
        self.losses: list[Loss] = []
        self._taken: set[str] = set()

    def message(self, message: Message) -> dict[str, Any]:
        """One message."""
        shell = plain(message.metadata_text.get(SHELL, "{}"))
        shell = shell if isinstance(shell, dict) else {}
        is_list = shell.pop("content", None) == []
        written: dict[str, Any] = {"type": _TYPES[message.role]}
        if message.role == "tool":
            written |= self._result(message, is_list=is_list)
        elif message.role == "assistant":
            written |= self._answer(message, shell, is_list=is_list)
        else:
            written["content"] = self._content(message, message.blocks, is_list=is_list)
        if message.role == "developer":
            shell.setdefault("additional_kwargs", {"__openai_role__": "developer"})
        written |= {"name": message.name} if message.name is not None else {}
        named = self._id(message, shell)
        return written | {name: value for name, value in shell.items() if name not in ("id", "role")} | named

    def _id(self, message: Message, shell: dict[str, Any]) -> dict[str, str]:
        own = shell.get("id")
        if own is None and SHELL in message.metadata_text:
            return {}
        ref = own if isinstance(own, str) and own not in self._taken else message.id
        self._taken.add(ref)
        return {"id": ref}

    def _answer(self, message: Message, shell: dict[str, Any], *, is_list: bool) -> dict[str, Any]:
        about = shell.get("response_metadata") if isinstance(shell.get("response_metadata"), dict) else {}
        is_new = (about or {}).get(_VERSION) == "v1" or not _is_classic(message.blocks)
        said = [block for block in message.blocks if is_new or block.kind != "tool_call"]
        calls = [blocks_of.write_call(block) for block in message.blocks if block.kind == "tool_call"]
        written: dict[str, Any] = {"content": self._content(message, said, is_list=is_list or is_new)}
        written["tool_calls"] = [call for call in calls if call["type"] == "tool_call"]
        written["invalid_tool_calls"] = [call for call in calls if call["type"] != "tool_call"]
        if is_new:
            makers = [theirs for theirs, ours in MAKERS.items() if {ours} == blocks_of.signers(message.blocks)]
            added = {"model_provider": makers[0]} if makers and "model_provider" not in (about or {}) else {}
            shell["response_metadata"] = (about or {}) | added | {_VERSION: "v1"}
        return written

    def _content(self, message: Message, blocks: Sequence[Block], *, is_list: bool) -> str | list[Any]:
        if not is_list and (not blocks or (len(blocks) == 1 and blocks_of.is_plain(blocks[0]))):
            return "".join(block.text for block in blocks)
        content = []
        for block in blocks:
            written = blocks_of.write_block(block)
            if written is None:
                self._lose(f"LangChain has no form for this ({block.kind})", message, block)
            else:
                content.append(written)
                self._lose_rest(message, block)
        return content

    def _result(self, message: Message, *, is_list: bool) -> dict[str, Any]:
        [block] = message.blocks
        parts = [self._part(part) for part in items_of(block.parts or "[]", "parts")]
        content: Any = self._content(message, parts, is_list=is_list)
        if block.status not in (None, "ok", "error", "synthetic"):  # of a synthetic one its text says it
            self._lose(f"that the result is {block.status}, it is sent as an error", message, block)
        return {
            "content": content,
            "tool_call_id": block.tool_call_id,
            "status": "success" if block.status in (None, "ok") else "error",
        }

    def _part(self, text: JsonText) -> Block:
        """A part of a result; JSON goes as its text."""
        part = plain(text)
        made = part_block(part) if isinstance(part, dict) else text_block(part if isinstance(part, str) else text)
        return text_block(made.text) if made.kind == "data" else made

    def _lose_rest(self, message: Message, block: Block) -> None:
        maker = maker_of(block)
        if block.signature is not None and signer_of(block) not in (PROVIDER, *MAKERS.values()):
            self._lose(f"a signature of {signer_of(block)}", message, block)
        if maker in (None, PROVIDER) or block.kind in ("provider", "redacted_reasoning", "media"):
            return
        is_result = block.kind == "server_tool_result"
        self._lose(
            f"what a tool of {maker} gave is sent as it came" if is_result else f"what only {maker} knows", message, block
        )

    def _lose(self, what: str, message: Message, block: Block | None = None) -> None:
        self.losses.append(Loss(what, message.id, None if block is None else block.number))


def _is_classic(blocks: Sequence[Block]) -> bool:
    """Whether a content with `tool_calls` beside it says all, which every version of LangChain takes."""
    kinds = [block.kind for block in blocks]
    first_call = kinds.index("tool_call") if "tool_call" in kinds else len(kinds)
    are_plain = all(payload_for(block, PROVIDER) is None and block.signature is None for block in blocks[first_call:])
    in_order = all(kind in ("text", "media") for kind in kinds[:first_call]) and set(kinds[first_call:]) <= {"tool_call"}
    return are_plain and in_order and not any(block.citations for block in blocks)
