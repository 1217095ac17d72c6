"""Calls and results together: every call has exactly one result, directly behind the message that calls."""

from __future__ import annotations

import re
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from projector.formats.shared.history import text_parts
from projector.formats.shared.makers import ANTHROPIC
from projector.formats.shared.payloads import opaque, payload_for
from projector.json_text import InvalidJson, decode, join_fields, split
from projector.message import Block, Message

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from projector.formats.outgoing.rules import Notes, Rules

NO_RESULT: Final = "[No result: the call was interrupted before there was one.]"
_UNTRUE: Final = ("synthetic", "interrupted")
_NAME: Final = re.compile(r"[^a-zA-Z0-9_-]")


class _Call:
    """A call of a turn, and its result once it is found: the how manieth it is, and behind which turn it came.

    Turns count the messages that are no results.
    """

    def __init__(self, turn: int, given: str | None, sent: str) -> None:
        self.turn, self.given, self.sent = turn, given or "", sent
        self.answer: Message | None = None
        self.order = 0
        self.behind = turn


class _Pairs:
    """A path as turns and their calls."""

    def __init__(self, rules: Rules, notes: Notes, taken: set[str]) -> None:
        self._rules, self._notes, self._taken = rules, notes, taken
        self._turns: list[tuple[Message, list[_Call]]] = []
        self._calls: dict[str, list[_Call]] = {}
        self._answers = 0

    def add(self, message: Message) -> None:
        if message.role == "tool":
            self._answer(message, message.blocks[0])
        else:
            self._turn(message)

    def messages(self) -> Iterator[Message]:
        calls: list[_Call] = []
        for at, (message, own) in enumerate(self._turns):
            yield message
            calls += own
            if calls and not self._goes_on(at, calls):
                for call in calls:
                    self._note(message, call, at)
                yield from (call.answer or _say_no_result(message, call) for call in self._ordered(message, calls))
                calls = []

    def _goes_on(self, at: int, calls: list[_Call]) -> bool:
        """Whether the next message belongs to the same turn of the assistant: all results come behind it too."""
        is_next = at + 1 < len(self._turns) and self._turns[at + 1][0].role == "assistant"
        return is_next and self._rules.turns_combine and all(call.answer and call.behind > at for call in calls)

    def _note(self, message: Message, call: _Call, at: int) -> None:
        if call.answer is None:
            self._notes.repair(f"the call {call.sent} was never answered, a result is sent that says so", message)
        elif call.behind != at:
            self._notes.repair(f"the result of {call.given} is sent directly behind its call", call.answer)

    def _ordered(self, message: Message, calls: list[_Call]) -> list[_Call]:
        came = sorted(calls, key=lambda call: call.order if call.answer else self._answers + 1)
        if not self._rules.results_in_order or came == calls:
            return came
        self._notes.repair("results are sent in the order of their calls", message)
        return calls

    def _turn(self, message: Message) -> None:
        calls: list[_Call] = []
        blocks = []
        for block in message.blocks:
            if block.kind == "tool_call":
                sent = self._id(message, block)
                call = _Call(len(self._turns), block.tool_call_id, sent)
                calls.append(call)
                self._calls.setdefault(call.given, []).append(call)
                blocks.append(self._named(message, block, sent))
            else:
                blocks.append(block)
        self._turns.append((replace(message, blocks=tuple(blocks)) if calls else message, calls))

    def _answer(self, message: Message, result: Block) -> None:
        known = self._calls.get(result.tool_call_id or "", [])
        open_calls = [call for call in known if call.answer is None]
        newest = max((call.turn for call in open_calls), default=None)
        call = next((call for call in open_calls if call.turn == newest), None)
        if call is None:
            call = known[-1] if known else None
            if call is None:
                self._notes.repair(f"a result without a call before it ({result.tool_call_id}) is not sent", message)
                return
            before = call.answer.blocks[0].status if call.answer else None
            if before not in _UNTRUE or result.status in _UNTRUE:
                self._notes.repair(f"a second result of {result.tool_call_id} is not sent", message)
                return
            self._notes.repair(f"the first result of {result.tool_call_id} was none, the second one is sent", message)
        self._answers += 1
        call.order, call.behind = self._answers, len(self._turns) - 1
        call.answer = replace(message, blocks=(replace(result, tool_call_id=call.sent),))

    def _named(self, message: Message, block: Block, sent: str) -> Block:
        name = _NAME.sub("_", block.name or "unnamed")[: self._rules.name_length]
        if name != block.name:
            self._notes.repair(f"the tool {block.name!r} is sent as {name}", message, block)
        if sent != block.tool_call_id:
            self._notes.repair(f"the call {block.tool_call_id!r} is sent as {sent}", message, block)
        return block if (name, sent) == (block.name, block.tool_call_id) else replace(block, name=name, tool_call_id=sent)

    def _id(self, message: Message, block: Block) -> str:
        rules = self._rules
        wanted = block.tool_call_id or f"call_{message.id}_{block.number}"
        if rules.id_characters is not None:
            wanted = re.sub(f"[^{rules.id_characters}]", "_", wanted)
        made, number = wanted[: rules.id_length], 1
        while made in self._taken:
            number += 1
            made = f"{wanted[: rules.id_length - len(str(number)) - 1]}_{number}"
        self._taken.add(made)
        return made


def pair(messages: Sequence[Message], rules: Rules, notes: Notes) -> list[Message]:
    """The path with each result directly behind the message that calls; what can't be paired is closed or dropped.

    Messages of the role `tool` are one result each, and there are none elsewhere.
    """
    server_calls = {
        block.tool_call_id or "" for message in messages for block in message.blocks if block.kind == "server_tool_call"
    }
    pairs = _Pairs(rules, notes, server_calls)
    for message in messages:
        pairs.add(message)
    return list(pairs.messages())


def _say_no_result(message: Message, call: _Call) -> Message:
    result = Block("tool_result", sealed=True, tool_call_id=call.sent, status="synthetic", parts=text_parts(NO_RESULT))
    return Message(
        id=f"{message.id}~{call.sent}", parent_id=message.id, run_id=message.run_id, role="tool", status="complete",
        blocks=(result,), created_at=message.created_at, seq=message.seq,
    )  # fmt: skip


def pair_server_tools(messages: Sequence[Message], notes: Notes) -> list[Message]:
    """The path with server tools and their results in pairs.

    A call at the end of the path that the provider will go on with waits for its result: the response paused, or a
    program of the provider called tools of ours. Once a user speaks, nothing is waited for. A call of a program that is
    not on the path is said as the model's own.
    """
    programs = {block.tool_call_id for message in messages for block in message.blocks if block.kind == "server_tool_call"}
    pairs = _ServerPairs()
    for at, message in enumerate(messages):
        if message.role == "user":
            pairs.close()
        for place, block in enumerate(message.blocks):
            pairs.add((at, place), block)
    last = max((at for at, message in enumerate(messages) if message.role == "assistant"), default=None)
    if last is None:
        return list(messages)
    pairs.close(waiting=_waiting(messages[last]))
    lonely = pairs.lonely
    kept = []
    for at, message in enumerate(messages):
        blocks = []
        for place, block in enumerate(message.blocks):
            if (at, place) in lonely or (block.kind == "tool_call" and caller_of(block) in pairs.dropped):
                notes.repair(f"a {block.kind} whose other half is missing is not sent", message, block)
            elif block.kind == "tool_call" and caller_of(block) not in (None, *programs):
                notes.repair("a call of a program that is not there is sent as the model's", message, block)
                blocks.append(_as_own(block))
            else:
                blocks.append(block)
        kept.append(message if blocks == list(message.blocks) else replace(message, blocks=tuple(blocks)))
    return kept


class _ServerPairs:
    """Which blocks of server tools have no other half."""

    def __init__(self) -> None:
        self._answered: set[str] = set()
        self._open: dict[str, tuple[int, int]] = {}
        self.lonely: set[tuple[int, int]] = set()
        self.dropped: set[str] = set()

    def add(self, place: tuple[int, int], block: Block) -> None:
        name = block.tool_call_id or ""
        if block.kind == "server_tool_call":
            if name in self._answered:
                self.lonely.add(place)
                return
            if name in self._open:  # the same call once more: the response was asked for again
                self.lonely.add(self._open[name])
            self._open[name] = place
        elif block.kind == "server_tool_result":
            if self._open.pop(name, None) is None:
                self.lonely.add(place)
            else:
                self._answered.add(name)

    def close(self, waiting: frozenset[str] = frozenset()) -> None:
        for name, place in self._open.items():
            if name not in waiting:
                self.lonely.add(place)
                self.dropped.add(name)
        self._open = {}


def _waiting(message: Message) -> frozenset[str]:
    calls = {caller for block in message.blocks if block.kind == "tool_call" and (caller := caller_of(block))}
    reason = message.metadata_text.get("stop_reason")
    if any(block.kind == "tool_call" for block in message.blocks):  # it is not the end: results follow
        return frozenset(calls)
    if reason == '"pause_turn"' or (reason is None and message.status == "complete"):
        paused = takewhile(lambda block: block.kind == "server_tool_call", reversed(message.blocks))
        calls |= {block.tool_call_id or "" for block in paused}
    return frozenset(calls)


def _as_own(block: Block) -> Block:
    fields = split(payload_for(block, ANTHROPIC) or "{}")
    return replace(
        block, opaque=opaque(ANTHROPIC, join_fields({name: text for name, text in fields.items() if name != "caller"}))
    )


def caller_of(block: Block) -> str | None:
    """The server tool whose program made this call (Anthropic, *Programmatic tool calling*)."""
    try:
        payload = decode(payload_for(block, ANTHROPIC) or "null")
    except InvalidJson:
        return None
    caller = payload.get("caller") if isinstance(payload, dict) else None
    found = caller.get("tool_id") if isinstance(caller, dict) else None
    return found if isinstance(found, str) else None
