"""Turns of an agent that uses a tool: asked, a call with JSON arguments, its result, an answer, in deltas.

A turn is the same for the same number. Its stream is Anthropic's, without model and usage.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from benchmarks.talk import DELTA_BYTES, SEED
from projector import events as ev
from projector.events import to_event
from projector.formats.anthropic.stream_reader import AnthropicStream

if TYPE_CHECKING:
    from ledger import Run
    from stream import NewEvent

_LETTERS: Final = "eeeeeetttttaaaaooooiiiinnnsssshhhrrrdddllluucmfwypvbgk"
_SAID: Final = 7  # deltas before a call, behind its result, and of its arguments
_ANSWERED: Final = 50
_PIECES: Final = 10
_LINE_BYTES: Final = 90
RESULT_BYTES: Final = 1200


class Turn(NamedTuple):
    """What one run takes in: about 2.7 kB of text, most of it a result and an answer."""

    asked: str
    said: list[str]
    tool: str
    arguments: list[str]
    result: str
    answered: list[str]

    @property
    def text_bytes(self) -> int:
        """UTF-8 bytes of all that was said, the arguments and the result included."""
        return sum(len(text.encode()) for text in (self.asked, *self.said, *self.arguments, self.result, *self.answered))


def turn(number: int, *, result_bytes: int = RESULT_BYTES) -> Turn:
    """Turn `number` of any conversation."""
    chance = random.Random(SEED + number)
    pieces = [_some(chance, chance.choice(DELTA_BYTES)) for _ in range(_SAID + _ANSWERED)]
    path = f"reports/{chance.randrange(2000, 2030)}/{number:05}.txt"
    asked_for = {"path": path, "pattern": _some(chance, 50), "context": chance.randrange(9), "why": _some(chance, 70)}
    arguments = msgspec.json.encode(asked_for).decode()
    size = -(-len(arguments) // _PIECES)
    return Turn(
        asked=_some(chance, chance.randrange(40, 200)),
        said=pieces[:_SAID],
        tool="search_file",
        arguments=[arguments[start : start + size] for start in range(0, len(arguments), size)],
        result="".join(_lines(chance, path, chance.randrange(result_bytes // 2, result_bytes * 3 // 2))),
        answered=pieces[_SAID:],
    )


async def play(run: Run, number: int, spoken: Turn) -> None:
    """Says it all through a run that was begun with `format="anthropic"`; others have a turn of the loop after each chunk."""
    await run.message("user", spoken.asked)
    for chunk in _calling(number, spoken):
        await run.feed(chunk)
        await asyncio.sleep(0)
    await run.tool_result(call_id(number), spoken.result)
    for chunk in _answering(number, spoken):
        await run.feed(chunk)
        await asyncio.sleep(0)


def recorded(run_id: str, number: int, spoken: Turn, parent: str | None) -> tuple[list[NewEvent], str]:
    """The events that `play` would make, begin and end included, and the id of the last message."""
    ids = iter(range(1, 5))
    user, stream = f"{run_id}.{next(ids)}", AnthropicStream(run_id, lambda: f"{run_id}.{next(ids)}")
    parts = msgspec.Raw(msgspec.json.encode([{"kind": "text", "text": spoken.result}]))
    bodies: list[ev.Body] = [
        ev.RunStarted(run_id, parent, "submit", run_id, None, "anthropic"),
        ev.MessageStarted(run_id, user, "user"),
        ev.BlockStarted(user, 0, "text"),
        ev.BlockDelta(user, 0, spoken.asked),
        ev.BlockSealed(user, 0),
        ev.MessageFinished(user, "complete"),
    ]
    for chunk in _calling(number, spoken):
        bodies += stream.feed(chunk)
    bodies.append(ev.ToolResult(run_id, f"{run_id}.{next(ids)}", call_id(number), "ok", parts))
    for chunk in _answering(number, spoken):
        bodies += stream.feed(chunk)
    bodies.append(ev.RunFinished(run_id, "completed", "end_turn"))
    return [to_event(body) for body in bodies], f"{run_id}.4"


def _calling(number: int, spoken: Turn) -> list[dict[str, Any]]:
    call = {"type": "tool_use", "id": call_id(number), "name": spoken.tool, "input": {}}
    return [
        _start(f"msg_{number:020}a"),
        *_block(0, {"type": "text", "text": ""}, [{"type": "text_delta", "text": text} for text in spoken.said]),
        *_block(1, call, [{"type": "input_json_delta", "partial_json": text} for text in spoken.arguments]),
        *_stop("tool_use"),
    ]


def _answering(number: int, spoken: Turn) -> list[dict[str, Any]]:
    return [
        _start(f"msg_{number:020}b"),
        *_block(0, {"type": "text", "text": ""}, [{"type": "text_delta", "text": text} for text in spoken.answered]),
        *_stop("end_turn"),
    ]


def _start(ref: str) -> dict[str, Any]:
    return {"type": "message_start", "message": {"id": ref, "type": "message", "role": "assistant", "content": []}}


def _block(index: int, block: dict[str, Any], deltas: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def _stop(reason: str) -> list[dict[str, Any]]:
    return [{"type": "message_delta", "delta": {"stop_reason": reason}}, {"type": "message_stop"}]


def call_id(number: int) -> str:
    return f"toolu_{number:020}"


def _lines(chance: random.Random, path: str, length: int) -> list[str]:
    return [f"{path}:{number}: {_some(chance, _LINE_BYTES - 30)}\n" for number in range(1, 2 + length // _LINE_BYTES)]


def _some(chance: random.Random, length: int) -> str:
    """Words as rare and as common as those of a language, so that they can be compressed as prose can."""
    return " ".join(chance.choices(_WORDS, cum_weights=_HOW_OFTEN, k=1 + length // 4))[:length]


def _vocabulary() -> list[str]:
    chance = random.Random(SEED)
    return ["".join(chance.choices(_LETTERS, k=chance.randrange(1, 4) + chance.randrange(7))) for _ in range(5000)]


_WORDS: Final = _vocabulary()
_HOW_OFTEN: Final = list(itertools.accumulate(1 / rank for rank in range(1, len(_WORDS) + 1)))
