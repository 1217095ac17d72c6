"""What a run refuses, by the parameter's name; it takes nothing then, and loses nothing that it had taken."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from ledger import open_ledger
from tests.odd_values import (
    NAN,
    NO_CHOICE,
    NO_CONTENT,
    NO_ID,
    NO_INPUT,
    NO_JSON,
    NO_METADATA,
    NO_NAME,
    NO_NUMBER,
    NO_PARTS,
    NO_TEXT,
)
from tests.open_talks import open_talk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from ledger import Ledger

pytestmark = pytest.mark.anyio


def use_tokens(name: str, run: Any, odd: Any) -> Any:
    return run.usage(**{name: odd})


RUN_ROWS: Final = [
    ("message", "role", NO_CHOICE, lambda run, x: run.message(x, "hi")),
    ("message", "content", NO_CONTENT, lambda run, x: run.message("user", x)),
    ("message", "name", NO_TEXT, lambda run, x: run.message("user", "hi", name=x)),
    ("message", "metadata", NO_METADATA, lambda run, x: run.message("user", "hi", metadata=x)),
    ("message", "created_at", NO_NUMBER, lambda run, x: run.message("user", "hi", created_at=x)),
    ("reasoning", "delta", [None, *NO_TEXT], lambda run, x: run.reasoning(x)),
    ("tool_call", "name", [None, *NO_NAME], lambda run, x: run.tool_call(x, {})),
    ("tool_call", "input", NO_INPUT, lambda run, x: run.tool_call("look", x)),
    ("tool_call", "id", NO_ID, lambda run, x: run.tool_call("look", {}, id=x)),
    *(("usage", name, NO_NUMBER, partial(use_tokens, name))
      for name in ("input", "output", "cached", "cache_write", "reasoning")),
    ("usage", "request_id", NO_ID, lambda run, x: run.usage(input=1, request_id=x)),
    ("usage", "usage", [None], lambda run, x: run.usage(input=x)),
    ("text", "delta", [None, *NO_TEXT], lambda run, x: run.text(x)),
    ("tool_result", "tool_call_id", [None, *NO_TEXT], lambda run, x: run.tool_result(x, "x")),
    ("tool_result", "result", NO_PARTS, lambda run, x: run.tool_result("t", x)),
    ("tool_result", "status", [None, *NO_CHOICE], lambda run, x: run.tool_result("t", "x", status=x)),
    ("tool_result", "created_at", NO_NUMBER, lambda run, x: run.tool_result("t", "x", created_at=x)),
    ("finish", "outcome", NO_CHOICE, lambda run, x: run.finish(x)),
    ("finish", "finish_reason", NO_TEXT, lambda run, x: run.finish(finish_reason=x)),
    ("finish", "error", [x for x in NO_JSON if x is not None], lambda run, x: run.finish("failed", error=x)),
    ("feed", "chunk", [None, 5, NAN, ["x"], object(), {"type": {1}}, {"type": NAN}, "x", b"\xff"], lambda run, x: run.feed(x)),
]  # fmt: skip
SAID: Final = {"outcome": "is no outcome", "chunk": "expected"}


@pytest.fixture
async def ledger(anyio_backend: object) -> AsyncIterator[Ledger]:
    del anyio_backend
    async with open_talk() as opened:
        yield opened


@pytest.mark.parametrize(("parameter", "odd", "call"), [row[1:] for row in RUN_ROWS], ids=[f"{r[0]}({r[1]})" for r in RUN_ROWS])
async def test_what_a_run_refuses_takes_nothing_and_loses_nothing(
    ledger: Ledger, parameter: str, odd: list[Any], call: Callable[[Any, Any], Awaitable[Any]]
) -> None:
    run = await ledger.begin_run("d", format="anthropic" if parameter == "chunk" else None, flush_ms=60_000)
    await run.text("good text that was taken")
    for value in odd:
        with pytest.raises(Exception, match=SAID.get(parameter, parameter)) as refused:
            await call(run, value)
        assert type(refused.value).__name__ in ("ValueError", "InvalidJson", "InvalidId", "FormatError"), refused.value
    await run.text(", and more")
    await run.finish("completed")
    assert [message.text for message in await ledger.transcript("d")] == ["good text that was taken, and more"]
    assert [anomaly.why for anomaly in await ledger.anomalies("d")] == []
    kinds = [event.type for event in await ledger.store.read("d")]
    assert kinds.count("message.started") == 1


@pytest.mark.parametrize("flush_ms", [0, 100])
async def test_a_delta_of_another_type_is_joined_with_nothing(flush_ms: int) -> None:
    """Whoever goes round `Run.text` does no harm to what was taken before."""
    async with open_ledger("memory:") as ledger:
        async with ledger.run("c", flush_ms=flush_ms) as run:
            await run.text("good")
            with pytest.raises(ValueError, match="delta must be text, not b'bytes'"):
                await run.text(b"bytes")  # type: ignore[arg-type]
        assert [message.text for message in await ledger.transcript("c")] == ["good"]
