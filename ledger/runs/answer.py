"""What an agent says piece by piece: one message of the assistant with text, reasoning and tool calls, in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from projector import events as ev

if TYPE_CHECKING:
    from collections.abc import Callable

    from projector.json_text import JsonText


class Answer(NamedTuple):
    """A message that goes on: its newest block, and what that is as long as it grows.

    It is a value: what was said counts only once its events were taken.
    """

    message_id: str
    block: int = -1
    grows: Literal["text", "reasoning"] | None = None


class Said(NamedTuple):
    """The events of something that was said, and the answer behind it."""

    bodies: list[ev.Body]
    answer: Answer


def say(answer: Answer | None, run_id: str, mint: Callable[[], str], kind: Literal["text", "reasoning"], delta: str) -> Said:
    """A piece of text or of reasoning, in a block of its own where the one before it is another's."""
    if answer is not None and answer.grows == kind:
        return Said([ev.BlockDelta(answer.message_id, answer.block, delta)], answer)
    bodies, answer = _next_block(answer, run_id, mint)
    at = answer.message_id, answer.block
    return Said([*bodies, ev.BlockStarted(*at, kind), ev.BlockDelta(*at, delta)], answer._replace(grows=kind))


def call(
    answer: Answer | None, run_id: str, mint: Callable[[], str], name: str, tool_call_id: str, given: tuple[JsonText, bool]
) -> Said:
    """A whole tool call; `given` is its input as text, and whether that is JSON."""
    text, is_json = given
    bodies, answer = _next_block(answer, run_id, mint)
    at = answer.message_id, answer.block
    bodies += [ev.BlockStarted(*at, "tool_call", name, tool_call_id), ev.BlockDelta(*at, text)]
    return Said([*bodies, ev.BlockSealed(*at, parse="ok" if is_json else "bad")], answer)


def end(answer: Answer | None) -> list[ev.Body]:
    """The answer is whole."""
    return [] if answer is None else [*_seal(answer), ev.MessageFinished(answer.message_id, "complete")]


def _next_block(answer: Answer | None, run_id: str, mint: Callable[[], str]) -> Said:
    if answer is None:
        message_id = mint()
        return Said([ev.MessageStarted(run_id, message_id, "assistant")], Answer(message_id, 0))
    return Said(_seal(answer), Answer(answer.message_id, answer.block + 1))


def _seal(answer: Answer) -> list[ev.Body]:
    return [] if answer.grows is None else [ev.BlockSealed(answer.message_id, answer.block)]
