"""The same turns told to other libraries, step by step: asked, call, result, answer, each in the form it is made for.

* `openai-agents`: `SQLiteSession.add_items`, a call a step; what is said before a call goes with it.
* `langgraph-checkpoint-sqlite`: `AsyncSqliteSaver.aput` of all messages so far, a call a step, without the writes of tasks.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

import aiosqlite
import msgspec

from benchmarks.workloads.turns import call_id, turn

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path


async def fill_session(path: Path, turns: int) -> None:
    """A session of items, as OpenAI's Responses have them."""
    session: Any = importlib.import_module("agents.memory.sqlite_session").SQLiteSession("session", path)
    for number in range(turns):
        spoken, call = turn(number), call_id(number)
        arguments = "".join(spoken.arguments)
        for items in (
            [{"role": "user", "content": spoken.asked}],
            [
                {"role": "assistant", "content": "".join(spoken.said)},
                {"type": "function_call", "call_id": call, "name": spoken.tool, "arguments": arguments},
            ],
            [{"type": "function_call_output", "call_id": call, "output": spoken.result}],
            [{"role": "assistant", "content": "".join(spoken.answered)}],
        ):
            await session.add_items(items)
    session.close()


async def fill_checkpoints(path: Path, turns: int) -> None:
    """A checkpoint a step, each of which holds the conversation so far."""
    messages: Any = importlib.import_module("langchain_core.messages")
    empty: Any = importlib.import_module("langgraph.checkpoint.base").empty_checkpoint
    connection = await aiosqlite.connect(path)
    saver: Any = importlib.import_module("langgraph.checkpoint.sqlite.aio").AsyncSqliteSaver(connection)
    await saver.setup()
    config: dict[str, Any] = {"configurable": {"thread_id": "thread", "checkpoint_ns": ""}}
    state: list[Any] = []
    for number in range(turns):
        spoken, call = turn(number), call_id(number)
        arguments = msgspec.json.decode("".join(spoken.arguments))
        for name, kind, text, fields in (
            ("asked", messages.HumanMessage, spoken.asked, {}),
            (
                "call",
                messages.AIMessage,
                "".join(spoken.said),
                {"tool_calls": [{"id": call, "name": spoken.tool, "args": arguments}]},
            ),
            ("result", messages.ToolMessage, spoken.result, {"tool_call_id": call}),
            ("answer", messages.AIMessage, "".join(spoken.answered), {}),
        ):
            state.append(kind(content=text, id=f"{name}-{number}", **fields))
            checkpoint = {**empty(), "channel_values": {"messages": state}}
            config = await saver.aput(config, checkpoint, {"source": "loop", "step": len(state)}, {})
    await connection.close()


FILLERS: Final[dict[str, Callable[[Path, int], Coroutine[object, object, None]]]] = {
    "openai-agents": fill_session,
    "langgraph-checkpoint-sqlite": fill_checkpoints,
}
