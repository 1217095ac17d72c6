"""Media in what a run is fed go to the media store, whatever is cancelled or fails meanwhile."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from projector.formats.shared.media_refs import REFERENCE
from stream import StoreFull

if TYPE_CHECKING:
    from ledger import Ledger
    from projector import Message

pytestmark = pytest.mark.anyio
IMAGE = bytes(range(256)) * 400
MEDIA_ID = hashlib.sha256(IMAGE).hexdigest()
BASE64 = base64.b64encode(IMAGE).decode()
PARTS: list[dict[str, Any]] = [{"kind": "text", "text": "seen"}, {"kind": "media", "media_type": "image/png", "data": BASE64}]
GEMINI = {
    "candidates": [
        {
            "content": {"role": "model", "parts": [{"inlineData": {"mimeType": "image/png", "data": BASE64}}]},
            "finishReason": "STOP",
        }
    ]
}


async def logged(ledger: Ledger) -> str:
    return "".join(event.data.decode() for event in await ledger.store.read("c"))


async def exported(ledger: Ledger) -> str:
    return json.dumps((await ledger.export("c", "anthropic")).payload)


def results(messages: list[Message]) -> list[str | None]:
    return [block.tool_call_id for message in messages for block in message.blocks if block.kind == "tool_result"]


async def test_media_of_a_result_is_in_the_store_and_not_in_the_log(ledger: Ledger) -> None:
    async with ledger.run("c") as run:
        await run.message("user", "look")
        for call in ("t1", "t2"):
            await run.tool_call("look", {}, id=call)
            await run.tool_result(call, PARTS)
    log = await logged(ledger)
    assert BASE64 not in log
    assert log.count(REFERENCE + MEDIA_ID) == 2
    kept = await ledger.media(MEDIA_ID)
    assert (kept.data, kept.media_type) == (IMAGE, "image/png")
    assert results(await ledger.transcript("c")) == ["t1", "t2"]


async def test_media_that_a_provider_streams_are_in_the_store_and_in_what_is_exported(ledger: Ledger) -> None:
    async with ledger.run("c", format="gemini") as run:
        await run.feed(GEMINI)
    assert BASE64 not in await logged(ledger)
    assert (await ledger.media(MEDIA_ID)).data == IMAGE
    assert BASE64 in json.dumps((await ledger.export("c", "ai-sdk")).payload)


async def test_a_result_that_is_cancelled_anywhere_is_taken_in_whole_and_in_its_place(ledger: Ledger) -> None:
    for steps in range(12):
        async with ledger.run("c") as run:
            await run.message("user", f"{steps}")
            await run.tool_call("look", {}, id=f"t{steps}")
            task = asyncio.ensure_future(run.tool_result(f"t{steps}", PARTS))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            await run.message("assistant", "then")
        path = [message for message in await ledger.transcript("c") if message.run_id == run.run_id]
        roles = [message.role for message in path]
        assert roles in (["user", "assistant", "tool", "assistant"], ["user", "assistant", "assistant"])
        assert BASE64 not in await logged(ledger)
        assert roles[2] == "tool" or steps < 4


async def test_media_that_can_not_be_kept_stay_in_the_log(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> str:
        raise StoreFull("the disk is full")

    monkeypatch.setattr("ledger.runs.media.put_media", fail)
    async with ledger.run("c") as run:
        await run.message("user", "look")
        await run.tool_call("look", {}, id="t1")
        await run.tool_result("t1", PARTS)
    assert BASE64 in await logged(ledger)
    assert results(await ledger.transcript("c")) == ["t1"]


async def test_an_erased_medium_is_a_loss_and_the_rest_is_exported(ledger: Ledger) -> None:
    call = {"index": 0, "id": "t1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    async with ledger.run("c", format="chat") as run:
        await run.message("user", "look")
        await run.feed({"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]})
        await run.tool_result("t1", PARTS)
    await ledger.tables.database.write(lambda sql: sql("DELETE FROM media"))
    export = await ledger.export("c", "chat")
    assert any(MEDIA_ID in loss.what for loss in export.losses)
    sent = json.dumps(export.payload)
    assert "look" in sent
    assert "no longer kept" in sent
    assert REFERENCE not in sent


async def test_a_view_that_is_exported_has_its_media(ledger: Ledger) -> None:
    call = {"index": 0, "id": "t1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    async with ledger.run("c", format="chat") as run:
        await run.message("user", "look")
        await run.feed({"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]})
        await run.tool_result("t1", PARTS)
    context = await ledger.context("c")
    sent = json.dumps((await ledger.export("c", "anthropic", messages=context.messages)).payload)
    assert BASE64 in sent
    assert REFERENCE not in sent


async def test_steps_are_counted_and_end_the_message_that_is_open(ledger: Ledger) -> None:
    async with ledger.run("c") as run:
        await run.message("user", "go")
        for text in ("one", "two"):
            await run.step()
            await run.text(text)
    assert [message.text for message in await ledger.transcript("c")] == ["go", "one", "two"]
    [info] = [info async for info in ledger.runs("c")]
    assert len(info.prompts) == 2


async def test_the_name_of_media_of_another_conversation_gives_nothing_of_it(ledger: Ledger) -> None:
    await ledger.add_media("other", IMAGE, "image/png")
    call = {"index": 0, "id": "t1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    async with ledger.run("c", format="chat") as run:
        await run.message("user", "look")
        await run.feed({"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]})
        await run.tool_result("t1", [{"kind": "media", "media_type": "image/png", "data": REFERENCE + MEDIA_ID}])
    export = await ledger.export("c", "anthropic")
    assert BASE64 not in json.dumps(export.payload)
    assert any(MEDIA_ID in loss.what for loss in export.losses)
