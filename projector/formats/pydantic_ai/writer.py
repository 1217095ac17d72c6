"""Pydantic AI's messages out: what is said to the model as parts of requests, its answers as responses.

Not expressed: ids of messages, names of speakers, that an instruction is a developer's.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from projector.formats.format import Export
from projector.formats.outgoing.frameworks import mend_for_all
from projector.formats.outgoing.unicode import mend_text
from projector.formats.pydantic_ai import parts as parts_of
from projector.formats.pydantic_ai.content import PROVIDER, write_item, write_result
from projector.formats.pydantic_ai.parts import SHELL, says_signature, write_citation
from projector.formats.pydantic_ai.rules import RULES
from projector.formats.shared.history import Loss
from projector.formats.shared.payloads import maker_of, payload_for, signer_of
from projector.json_text import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from projector.message import Block, Message

T = TypeVar("T")
_OUTCOMES: Final = {"ok": "success", "error": "failed", "denied": "denied", "interrupted": "interrupted"}
_SAME: Final = {"failed": "error", "retried": "error", "success": "ok"}
_NO_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)


def write(messages: Sequence[Message]) -> Export:
    """A path of messages as `ModelMessagesTypeAdapter` reads it, such as an agent goes on with; `payload` is that list."""
    mended = mend_for_all(messages, RULES)
    writer = _Writer()
    for message in mended.messages:
        writer.take(message)
    return Export(writer.written(), (*mended.losses, *writer.losses), (*mended.repairs, *writer.repairs))


class _Writer:
    """Turns messages into requests and responses and notes what can't be said."""

    def __init__(self) -> None:
        self.losses: list[Loss] = []
        self.repairs: list[Loss] = []
        self._written: list[dict[str, Any]] = []
        self._places: list[int] = []  # of the parts of the last request
        self._instructions: str | None = None
        self._tools: dict[str, str] = {}  # the tool of each call

    def take(self, message: Message) -> None:
        """One message."""
        shell = _shell_of(message)
        if message.name is not None:
            self._lose("the name of the speaker", message)
        if message.role == "assistant":
            self._response(message, shell)
        else:
            self._say(message, shell)

    def written(self) -> list[dict[str, Any]]:
        """What was taken so far."""
        self._place_parts()
        return self._written

    def _response(self, message: Message, shell: dict[str, Any]) -> None:
        self._place_parts()
        for block in message.blocks:
            if block.kind in ("tool_call", "server_tool_call"):
                self._tools[block.tool_call_id or ""] = block.name or "unnamed"
        parts = [part for part in (self._part(message, block) for block in message.blocks) if part is not None]
        if not parts and not _is_kept_empty(message):
            self.repairs.append(Loss("a message without content is not sent", message.id))
            return
        known = _object(shell, "response")
        if known is None:
            known = {"timestamp": time} if (time := _time(message)) else {}
            known |= {"provider_response_id": message.provider_ref} if message.provider_ref is not None else {}
        if message.status == "partial":
            known.setdefault("state", "interrupted")
        self._written.append(self._well_formed({"kind": "response", "parts": parts} | known, message))

    def _part(self, message: Message, block: Block) -> dict[str, Any] | None:
        if _is_nothing(block):
            return None
        part = parts_of.write_part(block, self._tools.get)
        if part is None:
            self._lose(f"Pydantic AI has no form for this ({block.kind})", message, block)
            return None
        if block.signature is not None and not says_signature(block):
            self._lose(f"a signature of {signer_of(block)}", message, block)
        maker = maker_of(block)
        if block.kind == "server_tool_result" and maker != PROVIDER:
            self._lose(f"what a tool of {maker} gave is sent as it came", message, block)
        elif maker not in (None, PROVIDER) and block.kind not in ("redacted_reasoning", "compaction"):
            self._lose(f"what only {maker} knows", message, block)
        if not all(map(write_citation, block.citations)):
            self._lose("a citation without an address or words", message, block)
        return part

    def _say(self, message: Message, shell: dict[str, Any]) -> None:
        """A message that is not the model's: parts of a request, which begins behind an answer, or where one began."""
        made = self._parts(message, shell)
        is_instruction = shell.get("instructions") is True and message.role == "system"
        if not made and not is_instruction and not _is_kept_empty(message):
            self.repairs.append(Loss("a message without content is not sent", message.id))
            return
        begins = _object(shell, "request")
        if begins is not None or not self._written or self._written[-1]["kind"] != "request":
            self._place_parts()
            self._written.append({"kind": "request", "parts": []} | self._well_formed(begins or {}, message))
            self._instructions = message.text if is_instruction else self._instructions
            if self._instructions is not None and (begins is None or shell.get("instructs") is True):
                self._written[-1]["instructions"] = self._instructions
        request = self._written[-1]
        at = shell.get("at")
        request["parts"] += self._well_formed(made, message)
        self._places += [at if isinstance(at, int) else len(self._places)] * len(made)

    def _place_parts(self) -> None:
        """The parts of the last request as they stood there: results come first here."""
        if self._written and self._places:
            parts = self._written[-1]["parts"]
            self._written[-1]["parts"] = [parts[at] for at in sorted(range(len(parts)), key=self._places.__getitem__)]
        self._places = []

    def _parts(self, message: Message, shell: dict[str, Any]) -> list[dict[str, Any]]:
        if message.role == "tool":
            return [self._result(message, shell)]
        kept = [_kept_part(block) for block in message.blocks]
        if any(part is not None for part in kept):
            return [part for part in kept if part]
        rest = _object(shell, "part") or ({} if shell or not (time := _time(message)) else {"timestamp": time})
        if message.role != "user":
            if shell.get("instructions") is True:
                return []
            if message.role == "developer":
                self._lose("that it is an instruction of the developer, it is sent as the system's", message)
            return [{"part_kind": "system-prompt", "content": text} | rest for text in self._texts(message)]
        if rest.get("part_kind") in ("retry-prompt", "retry-feedback", "compaction"):
            said = "\n\n".join(self._texts(message))
            is_list = shell.get("form") == "list" and said.startswith("[")
            return [{"content": plain(said) if is_list else said} | rest]
        return self._prompts(message, shell, rest)

    def _prompts(self, message: Message, shell: dict[str, Any], rest: dict[str, Any]) -> list[dict[str, Any]]:
        [first, *others] = message.blocks
        spoken: dict[str, Any] = plain(payload_for(first, PROVIDER) or "{}")
        if first.kind == "text" and not others and spoken.get("part_kind") == "speech":
            return [parts_of.write_speech(first.text, spoken)]
        items = []
        for block in message.blocks:
            item = write_item(block)
            if item is None:
                self._lose(f"Pydantic AI has no form for this in a prompt ({block.kind})", message, block)
            else:
                self._lose_citations(message, block)
                items.append(item)
        is_text = len(items) == 1 and isinstance(items[0], str) and shell.get("form") != "list"
        return [{"part_kind": "user-prompt", "content": items[0] if is_text else items} | rest] if items else []

    def _texts(self, message: Message) -> list[str]:
        texts = []
        for block in message.blocks:
            if block.kind == "text":
                self._lose_citations(message, block)
                texts.append(block.text)
            else:
                self._lose(f"Pydantic AI has text only in such a message ({block.kind})", message, block)
        return texts

    def _result(self, message: Message, shell: dict[str, Any]) -> dict[str, Any]:
        [block] = message.blocks
        ref, rest = block.tool_call_id or "", _object(shell, "part")
        content = write_result(block.parts or "[]", shell.get("form"), lambda what: self._lose(what, message, block))
        said = {
            "part_kind": "tool-return",
            "tool_name": self._tools.get(ref, "unnamed"),
            "content": content,
            "tool_call_id": ref,
        }
        if rest is None:
            rest = {"timestamp": time} if (time := _time(message)) else {}
        if rest.get("part_kind") == "retry-prompt":
            return said | rest
        outcome = rest.pop("outcome", None) or "success"
        if _SAME.get(outcome, outcome) != (block.status or "ok"):
            outcome = _OUTCOMES.get(block.status or "ok", "interrupted")
        return said | rest | ({"outcome": outcome} if outcome != "success" else {})

    def _well_formed(self, value: T, message: Message) -> T:
        """The values, such as UTF-8 can hold them: in JSON that stood inside of text nobody has looked so far."""
        sound, count = _mend(value)
        if count:
            self.repairs.append(Loss(f"characters that no text may have were replaced: {count}", message.id))
        return cast("T", sound)

    def _lose_citations(self, message: Message, block: Block) -> None:
        if block.citations:
            self._lose("citations in what is no answer", message, block)

    def _lose(self, what: str, message: Message, block: Block | None = None) -> None:
        self.losses.append(Loss(what, message.id, None if block is None else block.number))


def _mend(value: Any) -> tuple[Any, int]:
    if isinstance(value, str):
        return mend_text(value, refuse_nul=False)
    if isinstance(value, list):
        items = [_mend(item) for item in value]
        return [item for item, _ in items], sum(count for _, count in items)
    if isinstance(value, dict):
        fields = [(_mend(name), _mend(item)) for name, item in value.items()]
        return {name: item for (name, _), (item, _) in fields}, sum(one + other for (_, one), (_, other) in fields)
    return value, 0


def _shell_of(message: Message) -> dict[str, Any]:
    shell = plain(message.metadata_text.get(SHELL, "{}"))
    return shell if isinstance(shell, dict) else {}


def _object(shell: dict[str, Any], name: str) -> dict[str, Any] | None:
    value = shell.get(name)
    return dict(value) if isinstance(value, dict) else None


def _kept_part(block: Block) -> dict[str, Any] | None:
    """A part of a request that was kept as it came; of a request without parts there is none."""
    payload = payload_for(block, PROVIDER) if block.kind == "provider" else None
    kept: dict[str, Any] = plain(payload or "null")
    return None if payload is None or (kept and "part_kind" not in kept) else kept


def _is_nothing(block: Block) -> bool:
    return block.kind == "provider" and payload_for(block, PROVIDER) == "{}"


def _is_kept_empty(message: Message) -> bool:
    """Whether this stands for a request or a response without parts."""
    return any(map(_is_nothing, message.blocks))


def _time(message: Message) -> str | None:
    """When a message was made; None for a time that no calendar has."""
    try:
        return (_NO_TIME + timedelta(milliseconds=message.created_at)).isoformat()
    except OverflowError:
        return None
