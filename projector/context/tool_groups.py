"""Tool groups: a call and its results move together, and the view closes what is open."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from projector.context.facts import facts_of, table_in_use
from projector.message import Block, Message

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SYNTHETIC: Final = "synthetic:"
"""How the ids of results begin that stand only in a view."""
_NO_RESULT: Final = "[no result: the call was not answered]"


def calls_of(message: Message) -> tuple[str, ...]:
    """The tool calls of an assistant message that a client answers, in order."""
    if message.role != "assistant":
        return ()
    facts = facts_of(message)
    if facts.calls is None:
        calls = (block.tool_call_id for block in message.blocks if block.kind == "tool_call")
        facts.calls = tuple(call for call in calls if call is not None)
    return facts.calls


def answers(message: Message) -> str | None:
    """The call that a tool's message is the result of."""
    if message.role != "tool":
        return None
    for block in message.blocks:
        if block.kind == "tool_result":
            return block.tool_call_id
    return None


def pair(messages: Sequence[Message]) -> list[Message]:
    """The view with every result right behind its call, what stood between behind them.

    A call that was never answered gets a synthetic result, with an id of its own where a call's id is used again; a
    result without its call ahead of it, or a second one, is left out. What is paired stays as it is.
    """
    table = table_in_use()
    known = table.paired
    start = len(known) if tuple(messages[: len(known)]) == known else 0
    if _is_paired(messages[start:] if start else messages):
        if len(messages) > len(known):
            table.paired = tuple(messages)
        return list(messages)
    results: dict[tuple[int, str], tuple[int, Message]] = {}
    asking: dict[str, int] = {}  # the newest message that makes a call
    for place, message in enumerate(messages):
        asking |= dict.fromkeys(calls_of(message), place)
        answered = answers(message)
        if answered in asking:
            results.setdefault((asking[answered], answered), (place, message))
    view: list[Message] = []
    closed: set[str] = set()
    for place, message in enumerate(messages):
        if message.role == "tool":
            continue
        view.append(message)
        calls = list(dict.fromkeys(calls_of(message)))
        found = [results[place, call] for call in calls if (place, call) in results]
        view += [result for _, result in sorted(found, key=lambda one: one[0])]
        for call in calls:
            if (place, call) not in results:
                made = synthetic_result(message, call)
                view.append(replace(made, id=f"{made.id}:{message.id}") if call in closed else made)
                closed.add(call)
    return view


def _is_paired(messages: Sequence[Message]) -> bool:
    """Whether every call is answered right behind it, once, and nothing else is an answer: the usual case, and cheap."""
    waiting: set[str] = set()  # a message may make thousands of calls
    for message in messages:
        role = message.role
        if role == "tool":
            answered = answers(message)
            if answered not in waiting:
                return False
            waiting.remove(answered)
        elif waiting:
            return False
        elif role == "assistant":
            for block in message.blocks:
                if block.kind == "tool_call" and block.tool_call_id is not None:
                    waiting.add(block.tool_call_id)
    return not waiting


def group(messages: Sequence[Message]) -> list[list[Message]]:
    """A paired view as what can't be taken apart: a message, or a call with all its results."""
    groups: list[list[Message]] = []
    for message in messages:
        if message.role == "tool" and groups:
            groups[-1].append(message)
        else:
            groups.append([message])
    return groups


def group_at(messages: Sequence[Message], place: int) -> Sequence[Message]:
    """The group that stands at a place of a paired view."""
    first, end = place, place + 1
    while first > 0 and messages[first].role == "tool":
        first -= 1
    while end < len(messages) and messages[end].role == "tool":
        end += 1
    return messages[first:end]


def synthetic_result(calling: Message, tool_call_id: str) -> Message:
    """A result that says that there is none."""
    parts = json.dumps([{"kind": "text", "text": _NO_RESULT}])
    block = Block("tool_result", sealed=True, tool_call_id=tool_call_id, status="synthetic", parts=parts)
    return Message(
        f"{SYNTHETIC}{tool_call_id}", calling.id, calling.run_id, "tool", "complete", (block,), calling.created_at, calling.seq
    )


def ids_of(messages: Iterable[Message]) -> list[str]:
    """The ids, in order."""
    return [message.id for message in messages]
