"""The agent of the demo, in a process of its own: it answers a question with a tool, and never comes to its end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import anyio

from ledger.admin.output import print_json
from ledger.opening import open_ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.runs.run import Run

CHAT: Final = "demo"
_QUESTION: Final = "Does the night train to the harbour still run on Sunday, and what does a bed cost?"
_THOUGHT: Final = "I must not guess a timetable, and find_trains knows it."
_FIRST: Final = "Let me look that up."
_TOOL: Final = "find_trains"
_CALL_ID: Final = "toolu_demo_1"
_WANTED: Final = {"date": "2026-12-06", "from": "Central", "to": "Harbour"}
_FOUND: Final = "NJ 471: Central 22:14, Harbour 06:52; bed in a shared cabin 59.00, alone 129.00"
_ANSWER: Final = (
    "Yes: the NJ 471 leaves Central on Sunday at 22:14 and reaches the harbour at 06:52, before breakfast is over there. A bed "
    "in a shared cabin is 59.00, and a cabin of your own 129.00. Both can still be had, and the dining car"
)
"""It breaks off: however slow the machine is, nobody can come too late to break it off."""
_WORDS_A_SECOND: Final = 40


async def run_agent(data: str) -> None:
    """Answers, telling on standard output what was acknowledged, until it is killed."""
    async with open_ledger(data) as ledger, ledger.run(CHAT, format="anthropic") as run:
        print_json({"run_id": run.run_id})
        await run.message("user", _QUESTION)
        await _say(run, _response("msg_demo_1", {"thinking": _THOUGHT, "text": _FIRST}, calls=True))
        await run.tool_result(_CALL_ID, _FOUND)
        print_json({"answers": True})
        await _say(run, _response("msg_demo_2", {"text": _ANSWER}, calls=False))
        await run.flush()
        print_json({"acknowledged_seq": run.acknowledged_seq, "waits": True})
        await anyio.sleep_forever()


async def _say(run: Run, chunks: Iterator[dict[str, Any]]) -> None:
    told = run.acknowledged_seq
    for chunk in chunks:
        await run.feed(chunk)
        await anyio.sleep(1 / _WORDS_A_SECOND)
        if run.acknowledged_seq > told:
            told = run.acknowledged_seq
            print_json({"acknowledged_seq": told})


def _response(ref: str, texts: dict[str, str], *, calls: bool) -> Iterator[dict[str, Any]]:
    """As Anthropic streams it; one without a call is not ended."""
    yield {"type": "message_start", "message": {"id": ref, "role": "assistant", "model": "claude-demo", "content": []}}
    for index, (kind, text) in enumerate(texts.items()):
        yield {"type": "content_block_start", "index": index, "content_block": {"type": kind, kind: ""}}
        for word in text.split():
            yield _delta(index, f"{kind}_delta", kind, f"{word} ")
        if calls:
            yield {"type": "content_block_stop", "index": index}
    if not calls:
        return
    block = {"type": "tool_use", "id": _CALL_ID, "name": _TOOL, "input": {}}
    yield {"type": "content_block_start", "index": len(texts), "content_block": block}
    yield _delta(len(texts), "input_json_delta", "partial_json", json.dumps(_WANTED))
    yield {"type": "content_block_stop", "index": len(texts)}
    yield {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 48}}
    yield {"type": "message_stop"}


def _delta(index: int, kind: str, field: str, text: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, field: text}}
