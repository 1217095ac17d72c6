"""UIMessages of the AI SDK: one for all steps of a run, its calls and their results as one part each.

Each step is a message of ours (a response of the model), and the results of its tools are messages behind it.
Source: the published types of the AI SDK 7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from projector.formats.ai_sdk import parts as parts_of
from projector.formats.ai_sdk.parts import DYNAMIC, SHELL, STEP, TOOL
from projector.formats.format import FormatError
from projector.formats.shared.fields import Fields, messages_of, shown
from projector.formats.shared.history import History, HistoryMessage, Loss, result_draft
from projector.json_text import join_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from projector.events import Role
    from projector.message import Block

_EXPECTED: Final = 'UIMessages were expected: a JSON list, one message, or an object with "messages"'
_ROLES: Final = ("system", "user", "assistant")
_SAID: Final = ("text", "reasoning")


def read(text: str) -> Iterator[History]:
    """The conversation in a list of UIMessages, one of them, or the body of a chat request. Raises `FormatError`."""
    given = messages_of(text, _EXPECTED)
    if isinstance(given, list):
        yield _history(given)
    elif "messages" in given:
        found = _history(given.objects("messages"))
        yield History(found.drafts, name=given.maybe_text("id"), metadata=given.rest("messages", "id"), losses=found.losses)
    elif "parts" in given:
        yield _history([given])
    else:
        raise FormatError(f"{_EXPECTED}, not {shown(given.source)}")


def _history(messages: Iterable[Fields]) -> History:
    drafts: list[HistoryMessage] = []
    losses: list[Loss] = []
    for message in messages:
        role = message.text("role")
        if role not in _ROLES:
            raise message.wrong(f"the role {role!r} is none of {', '.join(_ROLES)}")
        if "parts" not in message:
            raise message.wrong('"parts" should be a list, and it is not there')
        reader = _Reader(message, role)
        for part in message.objects("parts"):
            reader.take(part)
        drafts += reader.drafts()
        losses += reader.losses
    return History(tuple(drafts), losses=tuple(losses))


class _Reader:
    """Takes the parts of one UIMessage."""

    def __init__(self, message: Fields, role: str) -> None:
        self.losses: list[Loss] = []
        self._message, self._role = message, cast("Role", role)
        self._ref = message.maybe_text("id")
        self._steps: list[tuple[bool, list[Block], list[HistoryMessage]]] = []

    def take(self, part: Fields) -> None:
        """One part. A step begins with `step-start`, or with the message."""
        kind = part.text("type")
        if kind == STEP:
            self._steps.append((True, [], []))
            return
        if not self._steps:
            self._steps.append((False, [], []))
        _, blocks, results = self._steps[-1]
        if kind in _SAID:
            blocks.append(self._kept(parts_of.said_block(part, self._role)))
        elif kind == DYNAMIC or kind.startswith(TOOL):
            self._take_tool(part, blocks, results)
        else:
            blocks.append(parts_of.other_block(part))

    def drafts(self) -> Iterator[HistoryMessage]:
        """The steps as messages, each with the results behind it."""
        rest = self._message.rest("role", "parts")
        for begins, blocks, results in self._steps or [(False, [], [])]:
            shell = rest | ({"step": "true"} if begins else {})
            rest = {name: text for name, text in rest.items() if name == "id"}
            said = any(block.kind not in _SAID or block.text or block.signature for block in blocks)
            if not said:
                self._lose("a message or step without content")
            yield HistoryMessage(self._role, tuple(blocks), provider_ref=self._ref, metadata={SHELL: join_fields(shell)})
            yield from results

    def _take_tool(self, part: Fields, blocks: list[Block], results: list[HistoryMessage]) -> None:
        call, outcome = self._kept(parts_of.call_block(part)), parts_of.outcome_of(part)
        blocks.append(call)
        if outcome is None:
            return
        tool_call_id = part.text("toolCallId")
        if call.kind == "server_tool_call":
            blocks.append(parts_of.server_block(tool_call_id, outcome))
            return
        draft = result_draft(tool_call_id, outcome.parts, status=outcome.status)
        kept = {SHELL: join_fields(outcome.rest)} if outcome.rest else {}
        results.append(HistoryMessage("tool", draft.blocks, metadata=kept))

    def _kept(self, block: Block) -> Block:
        if not block.sealed and block.opaque is not None:
            self._lose("what stands beside a part that is not finished")
        elif block.kind in _SAID and not block.text and block.signature is None:
            self._lose("a part without text")
        return block

    def _lose(self, what: str) -> None:
        self.losses.append(Loss(what, self._ref))
