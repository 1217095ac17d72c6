"""Conversations and plugins for tests of the history chain."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

from hypothesis import strategies as st

from projector import Block, Message
from projector.context.chain import ChainSession, run_chain
from projector.context.model_registry import ModelConfig
from projector.context.plugins import BUNDLED, DEFAULT, UserPlugin

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from projector.context.chain import Chained
    from projector.context.plugins import Plugin
    from projector.events import Role

FIRST: Final = BUNDLED[DEFAULT]
MODELS: Final = {"big": ModelConfig(128), "small": ModelConfig(2), "free": ModelConfig()}


def text(message_id: str, role: Role, said: str = "said") -> Message:
    return Message(message_id, None, "r", role, "complete", (Block("text", text=said, sealed=True),), 5, 7)


def tool_group(name: str, results: int, said: str = "result") -> list[Message]:
    calls = [Block("tool_call", number, sealed=True, name="look", tool_call_id=f"{name}.{number}") for number in range(results)]
    asking = Message(name, None, "r", "assistant", "complete", tuple(calls), 5, 7)
    parts = json.dumps([{"kind": "text", "text": said}])
    blocks = [Block("tool_result", sealed=True, tool_call_id=block.tool_call_id, parts=parts) for block in calls]
    return [asking, *(Message(f"t.{block.tool_call_id}", None, "r", "tool", "complete", (block,), 5, 7) for block in blocks)]


TALK: Final = [text("u1", "user"), *tool_group("a1", 2), text("a2", "assistant", "done"), text("u2", "user", "thanks")]


def run(path: Sequence[Message], *plugins: Plugin, max_ctx: int = 200, time_limit: float = 60.0) -> Chained:
    return asyncio.run(run_chain(path, [FIRST, *plugins], ChainSession(max_ctx=max_ctx), time_limit=time_limit))


def plugin(process: Callable[[Any, Any, Any], object], name: str = "plugin_history_mine") -> UserPlugin:
    return UserPlugin(name, process)


SPEAKERS: Final[tuple[Role, ...]] = ("user", "assistant", "system")
GROUPS = st.one_of(st.sampled_from(SPEAKERS), st.integers(1, 3))


@st.composite
def paths(draw: st.DrawFn) -> list[Message]:
    made: list[Message] = []
    for number, kind in enumerate(draw(st.lists(GROUPS, max_size=12))):
        made += tool_group(f"m{number}", kind) if isinstance(kind, int) else [text(f"m{number}", kind)]
    return made


@st.composite
def shapes(draw: st.DrawFn) -> UserPlugin:
    """A plugin that keeps some items in any order, edits some, and adds some."""
    is_reversed = draw(st.booleans())
    keep, edit = draw(st.integers(0, 12)), draw(st.integers(0, 3))
    notes = draw(st.lists(st.sampled_from([{}, {"id": "n"}, {"id": "m0"}, {"id": "t.m1.0"}]), max_size=3))

    def process(history: list[dict[str, str]], session: dict[str, Any], model_cfg: dict[str, Any]) -> list[dict[str, str]]:
        del session, model_cfg
        kept = sorted(history, key=lambda item: item["id"], reverse=is_reversed)[:keep]
        changed = [item | {"content": "edited"} if place < edit else item for place, item in enumerate(kept)]
        return [*({"role": "user", "content": f"note {n}"} | note for n, note in enumerate(notes)), *changed]

    return plugin(process, f"plugin_history_{draw(st.integers(0, 10**6))}")
