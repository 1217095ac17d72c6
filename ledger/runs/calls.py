"""The tool calls that a run may give the result of: its own, and those that the conversation has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.errors import UnknownToolCall
from projector import events as ev
from projector.message import CALLS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ledger.engine import Engine


class Calls:
    """Knows the calls of one run as they are made, and asks the ledger for others."""

    def __init__(self, engine: Engine, conversation: str) -> None:
        self._engine = engine
        self._conversation = conversation
        self._own: set[str] = set()

    def note(self, bodies: Iterable[ev.Body]) -> None:
        """Remembers the calls among events of this run."""
        for body in bodies:
            if isinstance(body, ev.BlockStarted):
                if body.kind in CALLS and body.tool_call_id is not None:
                    self._own.add(body.tool_call_id)
            elif isinstance(body, ev.BlockSealed) and body.tool_call_id is not None:
                self._own.add(body.tool_call_id)

    async def require(self, tool_call_id: str) -> None:
        """Raises `UnknownToolCall` for one that neither this run nor another of the conversation has made."""
        if tool_call_id in self._own:
            return
        caught = await self._engine.catch_up(self._conversation)
        if any(run.find_call(tool_call_id) for run in caught.state.open.values()):
            return
        if await self._engine.tables.calling(self._conversation, tool_call_id) is None:
            raise UnknownToolCall(self._conversation, tool_call_id)
