"""How runs are begun, only type-checked: a misspelt option is an error, or mypy tells that its `ignore` is not needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_type

from ledger import ACTIVE_LEAF, File, Run
from projector import Block
from projector.events import MessageStatus, Role
from projector.message import BlockKind

if TYPE_CHECKING:
    from ledger import Ledger
    from projector import Message


async def begin(ledger: Ledger) -> None:
    async with ledger.run("c", run_id="r", parent=ACTIVE_LEAF, format="chat", trigger="submit", model="m", flush_ms=0) as run:
        assert_type(run, Run)
    async with ledger.fork("c", "r.1", provider="p") as run:
        assert_type(run, Run)
    assert_type(await ledger.run("c"), Run)
    assert_type(await ledger.fork("c", "r.1"), Run)
    assert_type(await ledger.begin_run("c", parent=None), Run)
    async with await ledger.fork("c", "r.1", model="m") as run:
        assert_type(run, Run)


async def record(ledger: Ledger) -> None:
    async with ledger.run("c", on_error="incomplete", wait=2.5) as run:
        image = File(data=b"x", media_type="image/png", name="x.png")
        question = await run.message("user", ["q", image, Block("text", text="x")], name="ada", metadata={"n": 1}, created_at=1)
        assert_type(question, str)
        await run.reasoning("hm")
        assert_type(await run.tool_call("look", {"at": 1}), str)
        call = await run.tool_call("look", '{"at": 1}', id="t")
        assert_type(await run.tool_result(call, {"any": [None, 1.5]}, status="error", created_at=2), str)
        await run.usage(input=1, output=2, cached=0, cache_write=0, reasoning=1, request_id="q")
    for message in await ledger.transcript("c"):
        assert_type(message.role, Role)
        assert_type(message.status, MessageStatus)
        assert_type(message.metadata, dict[str, Any])
        assert_type([block.kind for block in message.blocks], list[BlockKind])


async def misspell_what_is_said(run: Run, message: Message) -> None:
    await run.message("human", "q")  # type: ignore[arg-type]
    await run.message("user", 5)  # type: ignore[arg-type]
    await run.message("user", [b"x"])  # type: ignore[list-item]
    await run.tool_call("look", ["x"])  # type: ignore[arg-type]
    await run.tool_result("t", 1, status="fine")  # type: ignore[arg-type]
    await run.usage(inputs=1)  # type: ignore[call-arg]
    File(b"x")  # type: ignore[call-arg]
    assert message.role == "human"  # type: ignore[comparison-overlap]


def misspell_what_is_read(message: Message) -> None:
    assert message.status == "done"  # type: ignore[comparison-overlap]


def misspell_a_kind(block: Block) -> None:
    assert block.kind == "txt"  # type: ignore[comparison-overlap]


async def misspell(ledger: Ledger) -> None:
    await ledger.begin_run("c", modle="m")  # type: ignore[call-arg]
    await ledger.run("c", modle="m")  # type: ignore[call-arg]
    await ledger.fork("c", "r.1", modle="m")  # type: ignore[call-arg]
    await ledger.fork("c", "r.1", parent="r.2")  # type: ignore[call-arg]
    await ledger.run("c", flush_ms="soon")  # type: ignore[arg-type]
    await ledger.run("c", "r")  # type: ignore[call-arg]
    await ledger.run("c", on_error="kept")  # type: ignore[arg-type]
    await ledger.run("c", wait="soon")  # type: ignore[arg-type]
    await ledger.fork("c", "r.1", wait=True)  # type: ignore[call-arg]


def misspell_a_name() -> None:
    """Names are loaded when they are asked for, and known all the same."""
    from ledger import Legder  # type: ignore[attr-defined]  # noqa: F401, PLC0415
    from projector.formats import REDAERS  # type: ignore[attr-defined]  # noqa: F401, PLC0415
    from stream import open_stroe  # type: ignore[attr-defined]  # noqa: F401, PLC0415
