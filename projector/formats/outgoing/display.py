"""Histories for clients that show them: what is open or partial stays so, and only what no client can place is mended.

`mend` closes and drops what a provider would refuse. A client wants to see it: an answer that was cut off, a call
that waits for a person.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from projector.formats.outgoing.unicode import mend_json, mend_text
from projector.formats.shared.history import Loss
from projector.formats.shared.payloads import maker_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from projector.json_text import JsonText
    from projector.message import Block, Message

HINT: Final = "tailfold"
"""Our name in the metadata that a format leaves open: what its own fields can't say, for the way back."""
_NO_TRUTH: Final = ("synthetic", "interrupted")
_CALLS: Final = ("tool_call", "server_tool_call")
_JSON_FIELDS: Final = ("input_text", "parts", "opaque")


class Shown(NamedTuple):
    """`repairs`: what was changed so that a client can place it."""

    messages: tuple[Message, ...]
    repairs: tuple[Loss, ...]


def show(messages: Iterable[Message], provider: str) -> Shown:
    """A path of messages, root first, for the format that makes payloads as `provider`. Showing twice changes nothing more.

    Afterwards ids are unique, also those of calls; a result is a message of its own (role `tool`) behind the message
    that calls and behind no other; a call has at most one; text is well-formed. A call without a result stays open.
    """
    repairs: list[Loss] = []
    turns = _Turns(repairs)
    for message in _unique([_well_formed(message, provider, repairs) for message in messages], repairs):
        turns.add(message)
    return Shown(tuple(turns.messages()), tuple(repairs))


class _Call:
    """A call, the place of its message, and its result once there is one."""

    def __init__(self, turn: int, tool_call_id: str) -> None:
        self.turn, self.tool_call_id = turn, tool_call_id
        self.answer: Message | None = None


class _Turns:
    """Messages that are no results, each with the results of its calls in the order in which they came."""

    def __init__(self, repairs: list[Loss]) -> None:
        self._repairs = repairs
        self._turns: list[tuple[Message, list[_Call]]] = []
        self._calls: dict[str, list[_Call]] = {}
        self._taken: set[str] = set()

    def add(self, message: Message) -> None:
        results = [block for block in message.blocks if block.kind == "tool_result"]
        rest = tuple(block for block in message.blocks if block.kind != "tool_result")
        for number, result in enumerate(results):
            own = message.id if len(message.blocks) == 1 else f"{message.id}~{number}"
            self._answer(replace(message, id=own, role="tool", blocks=(result,)), result)
        if rest and message.role == "tool":
            self._say("a message of a tool has only results, the rest is not sent", message)
        elif rest:
            self._turns.append((self._name_calls(replace(message, blocks=rest) if results else message), []))
        elif not results:
            self._say("a message without content is not sent", message)

    def messages(self) -> Iterator[Message]:
        for message, answered in self._turns:
            yield message
            yield from (call.answer for call in answered if call.answer is not None)

    def _name_calls(self, message: Message) -> Message:
        blocks = []
        for block in message.blocks:
            named = block
            if block.kind in _CALLS:
                sent = self._free(block.tool_call_id or f"call_{message.id}_{block.number}")
                if block.kind == "tool_call":
                    self._calls.setdefault(block.tool_call_id or "", []).append(_Call(len(self._turns), sent))
                if sent != block.tool_call_id:
                    self._say(f"the call {block.tool_call_id!r} is sent as {sent}", message, block)
                    named = replace(block, tool_call_id=sent)
            blocks.append(named)
        return message if tuple(blocks) == message.blocks else replace(message, blocks=tuple(blocks))

    def _answer(self, message: Message, result: Block) -> None:
        known = self._calls.get(result.tool_call_id or "", [])
        open_calls = [call for call in known if call.answer is None]
        call = next((call for call in open_calls if call.turn == open_calls[-1].turn), None)
        if call is None and known and known[-1].answer is not None:
            if known[-1].answer.blocks[0].status not in _NO_TRUTH or result.status in _NO_TRUTH:
                self._say(f"a second result of {result.tool_call_id} is not sent", message)
                return
            call = known[-1]
            self._say(f"the first result of {result.tool_call_id} was none, the second one is sent", message)
        if call is None:
            self._say(f"a result without a call before it ({result.tool_call_id}) is not sent", message)
            return
        if call.turn != len(self._turns) - 1:
            self._say(f"the result of {result.tool_call_id} is sent directly behind its call", message)
        named = result if result.tool_call_id == call.tool_call_id else replace(result, tool_call_id=call.tool_call_id)
        if call.answer is None:
            self._turns[call.turn][1].append(call)
        call.answer = message if named is result else replace(message, blocks=(named,))

    def _free(self, wanted: str) -> str:
        made, number = wanted, 1
        while made in self._taken:
            number += 1
            made = f"{wanted}~{number}"
        self._taken.add(made)
        return made

    def _say(self, what: str, message: Message, block: Block | None = None) -> None:
        self._repairs.append(Loss(what, message.id, None if block is None else block.number))


def _unique(messages: Sequence[Message], repairs: list[Loss]) -> list[Message]:
    taken = {message.id for message in messages}
    kept: dict[str, Message] = {}
    for message in messages:
        first = kept.get(message.id)
        if first is None:
            kept[message.id] = message
        elif (first.role, first.blocks) == (message.role, message.blocks):
            repairs.append(Loss("the message is there twice and is sent once", message.id))
        else:
            own = next(name for name in (f"{message.id}~{n}" for n in range(2, len(taken) + 3)) if name not in taken)
            taken.add(own)
            kept[own] = replace(message, id=own)
            repairs.append(Loss(f"another message has this id, it is sent as {own}", message.id))
    return list(kept.values())


def _well_formed(message: Message, provider: str, repairs: list[Loss]) -> Message:
    """Clients read UTF-8, which has no lone surrogates. A payload of another maker stays as it is, for it is no text here."""
    blocks = []
    for block in message.blocks:
        mended, count = _mend(block, provider)
        if count:
            repairs.append(Loss(f"characters that no text may have were replaced: {count}", message.id, block.number))
        blocks.append(mended if count else block)
    return message if tuple(blocks) == message.blocks else replace(message, blocks=tuple(blocks))


def _mend(block: Block, provider: str) -> tuple[Block, int]:
    changes: dict[str, Any] = {}
    total = 0
    for name in ("text", "name", *_JSON_FIELDS):
        value: str | JsonText | None = getattr(block, name)
        if value and (name != "opaque" or maker_of(block) == provider):
            mend = mend_json if name in _JSON_FIELDS else mend_text
            changes[name], count = mend(value, refuse_nul=False)
            total += count
    fields = {name: mend_text(text, refuse_nul=False) for name, text in block.fields.items()}
    citations = [mend_json(text, refuse_nul=False) for text in block.citations]
    total += sum(count for _, count in fields.values()) + sum(count for _, count in citations)
    changes["fields"] = {name: text for name, (text, _) in fields.items()}
    changes["citations"] = tuple(text for text, _ in citations)
    return replace(block, **changes) if total else block, total
