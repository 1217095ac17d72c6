"""Events of conversations, for tests that fold and project."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ledger.runs.answer import end
from projector import events as ev
from projector.formats.shared.history import text_parts
from projector.json_text import raw
from stream import Event, NewEvent

if TYPE_CHECKING:
    from ledger import Run
    from projector.events import ToolStatus


def new(kind: str, /, **body: Any) -> NewEvent:
    return NewEvent(kind, json.dumps(body).encode())


def number(events: list[NewEvent], *, first: int = 1) -> list[Event]:
    return [Event("s", seq, event.type, event.data, at=0) for seq, event in enumerate(events, first)]


def started(run_id: str, parent: str | None = None) -> NewEvent:
    return new("run.started", run_id=run_id, parent_message_id=parent, trigger="submit", producer=run_id)


def finished(run_id: str, outcome: str = "completed") -> NewEvent:
    return new("run.finished", run_id=run_id, outcome=outcome)


def said(run_id: str, message_id: str, *pieces: str, role: str = "assistant") -> list[NewEvent]:
    """A whole message of one text block."""
    return [
        new("message.started", run_id=run_id, message_id=message_id, role=role),
        new("block.started", message_id=message_id, block=0, kind="text"),
        *(new("block.delta", message_id=message_id, block=0, text=piece) for piece in pieces),
        new("block.sealed", message_id=message_id, block=0),
        new("message.finished", message_id=message_id, status="complete"),
    ]


def conversation() -> list[NewEvent]:
    """Two runs that interleave, a tool, a reset step, usage, citations, an anomaly; the second run stays open."""
    return [
        started("r1"),
        *said("r1", "r1.1", "What is", " it?", role="user"),
        new("run.step", run_id="r1", n=1, phase="started"),
        new("message.started", run_id="r1", message_id="r1.2", role="assistant", mood="calm"),
        new("block.started", message_id="r1.2", block=0, kind="reasoning"),
        new("block.delta", message_id="r1.2", block=0, text="hm"),
        started("r2", "r1.1"),
        new("message.started", run_id="r2", message_id="r2.1", role="assistant"),
        new("block.sealed", message_id="r1.2", block=0, signature="c2ln"),
        new("block.started", message_id="r2.1", block=0, kind="text"),
        new("block.delta", message_id="r2.1", block=0, text="two \ud83d"),
        new("block.started", message_id="r1.2", block=1, kind="tool_call", name="t", tool_call_id="c1"),
        new("block.delta", message_id="r1.2", block=1, text='{"a":'),
        new("block.delta", message_id="r1.2", block=1, text="1}"),
        new("block.sealed", message_id="r1.2", block=1, parse="ok"),
        new("block.delta", message_id="r1.2", block=7, text="nowhere"),
        new("message.finished", message_id="r1.2", status="complete"),
        new("run.step", run_id="r1", n=1, phase="finished"),
        new(
            "tool.result", run_id="r1", message_id="r1.3", tool_call_id="c1", status="ok", parts=[{"kind": "text", "text": "1"}]
        ),
        new("run.step", run_id="r1", n=2, phase="started"),
        *said("r1", "r1.4", "wrong"),
        new("run.step", run_id="r1", n=2, phase="reset"),
        *said("r1", "r1.5", "right"),
        new("block.annotated", message_id="r1.5", block=0, citation={"kind": "url", "source": {"n": 1}}),
        new("run.usage", run_id="r1", request_id="q", input=3, output=1, raw={"x": [1, None]}),
        new("run.usage", run_id="r1", request_id="q", input=3, output=9),
        finished("r1"),
        new("message.annotated", message_id="r1.5", patch={"rating": 1}),
        new("block.delta", message_id="r2.1", block=0, text=" and more"),
        new("custom", name="n", value=1),
    ]


async def give_unasked(run: Run, tool_call_id: str, text: str, status: ToolStatus = "ok") -> None:
    """The result of a call that nobody has made, as others record such: a run itself takes none."""
    result = ev.ToolResult(run.run_id, run._mint(), tool_call_id, status, raw(text_parts(text)))
    await run._put([*end(run._answer), result], None)
