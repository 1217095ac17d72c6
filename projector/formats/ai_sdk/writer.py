"""UIMessages of the AI SDK out: what a run says is one of them.

Its id is the run's unless it came with one, and what came with it stays. Times and usage have no place of their own.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from projector.formats.ai_sdk import parts as parts_of
from projector.formats.ai_sdk.parts import DYNAMIC, PROVIDER, SHELL, STEP, TOOL
from projector.formats.format import Export
from projector.formats.outgoing.display import show
from projector.formats.shared.fields import Fields
from projector.formats.shared.history import Loss
from projector.formats.shared.payloads import maker_of, payload_for
from projector.json_text import JsonText, join_fields, plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from projector.message import Block, Message


def write(messages: Sequence[Message]) -> Export:
    """A path of messages as a list of UIMessages; `payload` is that list. Calls without a result stay open."""
    path, repairs = show(messages, PROVIDER)
    writer = _Writer()
    written = [writer.message(group) for group in _groups(path)]
    return Export([message for message in written if message["parts"]], tuple(writer.losses), repairs)


class _Step(NamedTuple):
    """A message of ours with what it had in the AI SDK and the results of its calls."""

    message: Message
    shell: dict[str, Any]
    results: dict[str, Message]


def _groups(path: Iterable[Message]) -> Iterator[list[_Step]]:
    """The messages that are one UIMessage: what an assistant says in a run or under one id, and each other message alone."""
    steps: list[_Step] = []
    for message in path:
        if message.role == "tool" and steps:  # `show` has put it behind the message that calls
            steps[-1].results[message.blocks[0].tool_call_id or ""] = message
        else:
            steps.append(_Step(message, shell_of(message), {}))

    def owner(step: _Step) -> tuple[str, ...]:
        message = step.message
        if message.role != "assistant":
            return (message.role, message.id)
        own = step.shell.get("id")  # one that grew while it was taken in is of several runs
        return ("assistant", "", own) if isinstance(own, str) else ("assistant", message.run_id)

    for _, group in groupby(steps, key=owner):
        yield list(group)


def shell_of(message: Message) -> dict[str, Any]:
    """What the AI SDK added to a message."""
    shell = plain(message.metadata_text.get(SHELL, "{}"))
    return shell if isinstance(shell, dict) else {}


class _Writer:
    """Turns groups of messages into UIMessages and notes what can't be said."""

    def __init__(self) -> None:
        self.losses: list[Loss] = []
        self._taken: set[str] = set()

    def message(self, group: Sequence[_Step]) -> dict[str, Any]:
        """One UIMessage."""
        first, shell = group[0].message, group[0].shell
        own = shell.get("id")
        wanted = [own] if isinstance(own, str) else []
        wanted += [first.run_id] if first.role == "assistant" else []
        ref = next((name for name in (*wanted, first.id) if name not in self._taken), f"{first.id}~")
        self._taken.add(ref)
        if first.role == "developer":
            self._lose("that it is of the developer, it is sent as the system's", first)
        role = "system" if first.role == "developer" else first.role
        rest = {
            name: value for name, value in shell.items() if name not in ("id", "step", "approvals", "resultProviderMetadata")
        }
        parts = [part for step in group for part in self._parts(step, role)]
        return {"id": ref, "role": role} | rest | {"parts": _newest_data(parts)}

    def _parts(self, step: _Step, role: str) -> Iterator[dict[str, Any]]:
        message = step.message
        if message.name is not None:
            self._lose("the name of who speaks", message)
        written = [part for block in message.blocks for part in self._block(step, block, role)]
        if written and role == "assistant" and step.shell.get("step", SHELL not in message.metadata_text):
            yield {"type": STEP}
        yield from written

    def _block(self, step: _Step, block: Block, role: str) -> Iterator[dict[str, Any]]:
        message, part = step.message, None
        if block.kind in ("text", "refusal", "reasoning", "redacted_reasoning"):
            part = self._said(message, block, role)
        elif block.kind in ("tool_call", "server_tool_call"):
            part = self._tool(step, block)
        elif block.kind == "server_tool_result":
            if any(_calls(other, block) for other in message.blocks):
                return  # it stands with its call
        elif block.kind == "media":
            part = parts_of.write_media(block)
        elif (payload := payload_for(block, PROVIDER)) is not None:
            part = plain(payload)
        if part is None:
            of = f" of {maker}" if (maker := maker_of(block)) else ""
            self._lose(f"the AI SDK has no form for this ({block.kind}{of})", message, block)
        else:
            yield part

    def _said(self, message: Message, block: Block, role: str) -> dict[str, Any]:
        is_text = block.kind in ("text", "refusal")
        part: dict[str, Any] = {"type": "text" if is_text else "reasoning", "text": block.text}
        if block.kind == "refusal":
            self._lose("that it is a refusal", message, block)
        ref = block.provider_ref if SHELL in message.metadata_text else f"{message.id}/{block.number}"
        part |= {"id": ref} if not is_text and ref is not None else {}
        state = parts_of.state_of(role, sealed=block.sealed)
        part |= {"state": state} if state is not None else {}
        found = [parts_of.write_citation(text, f"{message.id}/{block.number}/{n}") for n, text in enumerate(block.citations)]
        if None in found:
            self._lose("citations without an address", message, block)
        cited = [citation for citation in found if citation is not None]
        part |= {"citations": cited} if cited else {}
        return _without_null(part | parts_of.metadata_of(block))

    def _tool(self, step: _Step, block: Block) -> dict[str, Any]:
        rest = parts_of.metadata_of(block, "callProviderMetadata")
        is_dynamic = block.provider_ref == DYNAMIC
        named = {"type": DYNAMIC, "toolName": block.name or ""} if is_dynamic else {"type": f"{TOOL}{block.name or ''}"}
        part: dict[str, Any] = named | {"toolCallId": block.tool_call_id, "state": "input-available"}
        part |= {"providerExecuted": True} if block.kind == "server_tool_call" else {}
        text = block.input_text or block.text
        if not block.sealed:
            part |= {"state": "input-streaming"} | ({"rawInput": text} if text else {})
        elif block.parse == "bad":
            part |= {"rawInput": text}
        else:
            part["input"] = plain(text or "{}")
        kept = {**rest.pop("approval", {}), **step.shell.get("approvals", {}).get(block.tool_call_id, {})}
        outcome = self._outcome(step, block)
        approval = parts_of.settled(parts_of.approval_of(block, kept), outcome, block.tool_call_id or "")
        if approval is not None:
            asked = "approval-responded" if "approved" in approval else "approval-requested"
            part |= {"approval": approval} | ({"state": asked} if block.sealed else {})
        return _without_null(part | rest | outcome)

    def _outcome(self, step: _Step, block: Block) -> dict[str, Any]:
        """What the result adds to its call."""
        if block.kind == "server_tool_call":
            return self._server_outcome(step.message, block)
        result = step.results.get(block.tool_call_id or "")
        if result is not None:
            shell, [said] = shell_of(result), result.blocks
            return self._output(result, said, said.status or "ok", said.parts or "[]") | shell
        if block.sealed and block.parse == "bad":
            self._lose("a call with broken input is sent as one that failed", step.message, block)
            return {"state": "output-error", "errorText": "the input is no JSON"}
        return {}

    def _server_outcome(self, message: Message, call: Block) -> dict[str, Any]:
        found = (block for block in message.blocks if block.kind == "server_tool_result")
        block = next((block for block in found if block.tool_call_id == call.tool_call_id), None)
        if block is None:
            return {}
        kept = payload_for(block, PROVIDER)
        if kept is not None:
            said = Fields(kept, "the result")
            rest: dict[str, Any] = plain(join_fields(said.rest("status", "parts")))
            return self._output(message, block, said.text("status"), said.raw("parts") or "[]") | rest
        given = plain(block.opaque or "{}").get("payload")
        output = given
        if isinstance(given, dict):
            output = next((given[name] for name in ("content", "output", "result") if name in given), given)
        self._lose(f"what a tool of {maker_of(block)} gave is sent as it came", message, block)
        return {"state": "output-available", "output": output}

    def _output(self, message: Message, block: Block, status: str, parts: JsonText) -> dict[str, Any]:
        if status == "ok":
            output, is_whole = parts_of.write_output(parts)
            if not is_whole:
                self._lose("several parts of a result are sent as a list", message, block)
            return {"state": "output-available"} | output
        if status == "denied":
            said = parts_of.text_of_parts(parts)
            return {"state": "output-denied"} | ({"approval": {"reason": said}} if said else {})
        if status != "error":
            self._lose(f"that the result is {status}, it is sent as an error", message, block)
        return {"state": "output-error", "errorText": parts_of.text_of_parts(parts) or status}

    def _lose(self, what: str, message: Message, block: Block | None = None) -> None:
        self.losses.append(Loss(what, message.id, None if block is None else block.number))


def _calls(block: Block, result: Block) -> bool:
    return block.kind == "server_tool_call" and block.tool_call_id == result.tool_call_id


def _newest_data(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Data with an id that came several times stands once, where it came first, as it came last."""
    newest = {(part["type"], part["id"]): part for part in parts if _has_identity(part)}
    kept = []
    for part in parts:
        if not _has_identity(part):
            kept.append(part)
        elif (part["type"], part["id"]) in newest:
            kept.append(newest.pop((part["type"], part["id"])))
    return kept


def _has_identity(part: dict[str, Any]) -> bool:
    return str(part["type"]).startswith(parts_of.DATA) and isinstance(part.get("id"), str)


def _without_null(part: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if value is not None or name in ("input", "output")}
