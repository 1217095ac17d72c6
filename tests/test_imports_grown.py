"""A message that a program stores over and over while it grows: what comes in several goes is what comes in one."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from ledger import ImportDiffers, open_ledger
from projector.formats import READERS

USER: Final = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Which colour?"}]}
STEP: Final = {"type": "step-start"}
MORE: Final = {"id": "u2", "role": "user", "parts": [{"type": "text", "text": "And now?"}]}


def says(*parts: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    return [USER, {"id": "a1", "role": "assistant"} | fields | {"parts": [STEP, *parts]}]


def text(said: str, state: str = "done", kind: str = "text") -> dict[str, Any]:
    return {"type": kind, "text": said, "state": state}


def tool(state: str, ref: str = "c1", **fields: Any) -> dict[str, Any]:
    return {"type": "tool-ask", "toolCallId": ref, "state": state, "input": {"q": 1}} | fields


OUT: Final = tool("output-available", output="green")
OUT_2: Final = tool("output-available", "c2", output="blue")
ASKED, GIVEN = {"id": "p1"}, {"id": "p1", "approved": True}
REFUSED: Final = {"id": "p1", "approved": False, "reason": "no"}
GROWN: Final = {
    "text": [says(text("It", "streaming")), says(text("It is", "streaming")), says(text("It is green"))],
    "text that was done": [says(text("It")), says(text("It is green"))],
    "reasoning": [says(text("th", "streaming", "reasoning")), says(text("think", kind="reasoning"), text("Green"))],
    "the input of a call": [says(tool("input-streaming", input=None)), says(tool("input-available")), says(OUT)],
    "a result and the text behind it": [says(tool("input-available")), says(OUT, STEP, text("Gr", "streaming")),
                                        says(OUT, STEP, text("Green"))],
    "results in another order": [says(tool("input-available"), tool("input-available", "c2")),
                                 says(tool("input-available"), OUT_2), says(OUT, OUT_2), says(OUT, OUT_2, STEP, text("Done"))],
    "an approval": [says(tool("approval-requested", approval=ASKED)), says(tool("approval-responded", approval=GIVEN)),
                    says(OUT | {"approval": GIVEN})],
    "a refusal": [says(tool("approval-requested", approval=ASKED)), says(tool("approval-responded", approval=REFUSED)),
                  says(tool("output-denied", approval=REFUSED), STEP, text("Then not"))],
    "an approval beside a result": [says(tool("approval-requested", approval=ASKED), OUT_2),
                                    says(OUT | {"approval": GIVEN}, OUT_2)],
    "data": [says({"type": "data-w", "id": "d", "data": 1}), says({"type": "data-w", "id": "d", "data": 2}, text("x"))],
    "metadata": [says(text("x"), metadata={"a": 1}), says(text("x"), metadata={"a": 1, "b": {"c": 2}})],
    "the next turn": [says(tool("input-available")), says(OUT, STEP, text("Green")), [*says(OUT, STEP, text("Green")), MORE]],
}  # fmt: skip


@pytest.mark.anyio
@pytest.mark.parametrize("documents", GROWN.values(), ids=GROWN.keys())
async def test_what_comes_in_several_goes_is_what_comes_in_one(documents: list[list[dict[str, Any]]]) -> None:
    once, grown = [await taken(each) for each in (documents[-1:], documents)]
    assert grown == once
    assert await taken([*documents, *documents, *reversed(documents)]) == once  # older ones take nothing back


async def taken(documents: list[list[dict[str, Any]]]) -> Any:
    async with open_ledger("memory:") as ledger:
        for document in documents:
            [history] = READERS["ai-sdk"](json.dumps(document))
            await ledger.take_in("c", history)
        assert [found async for found in ledger.reconcile() if not found.is_note] == []
        return (await ledger.export("c", "ai-sdk")).payload


@pytest.mark.anyio
async def test_another_message_or_one_with_turns_behind_it_is_refused() -> None:
    first = [*says(text("Green")), MORE]
    other = [USER, says(text("Red"))[1] | {"id": "a2"}]
    for second in ([*says(text("Red")), MORE], other, [USER | {"id": "u9", "parts": [text("Else?")]}]):
        async with open_ledger("memory:") as ledger:
            await ledger.take_in(
                "c", next(READERS["ai-sdk"](json.dumps(first if second is not other else says(text("Green")))))
            )
            before = await ledger.transcript("c", branch="all")
            with pytest.raises(ImportDiffers, match="use --into"):
                await ledger.take_in("c", next(READERS["ai-sdk"](json.dumps(second))))
            assert await ledger.transcript("c", branch="all") == before


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["claude-code", "pi"])
async def test_a_record_hangs_on_the_one_that_it_names_wherever_that_stands(name: str) -> None:
    own, parent = ("uuid", "parentUuid") if name == "claude-code" else ("id", "parentId")
    head = [] if name == "claude-code" else [{"type": "session", "id": "s", "version": 3}]

    def record(ref: str, on: str | None, role: str, said: str) -> dict[str, Any]:
        message = {"role": role, "content": [{"type": "text", "text": said}]}
        kind = {"type": role, "sessionId": "s"} if name == "claude-code" else {"type": "message"}
        return {own: ref, parent: on, "timestamp": "2026-01-01T00:00:00Z", "message": message} | kind

    records = [record("1", None, "user", "one"), record("2", "1", "assistant", "A"), record("3", "2", "user", "two"),
               record("4", "3", "assistant", "B")]  # fmt: skip
    for order in ((0, 1, 2, 3), (3, 2, 1, 0), (1, 0, 3, 2), (0, 3, 1, 2), (2, 0, 3, 1)):
        [history] = READERS[name]("\n".join(map(json.dumps, [*head, *(records[at] for at in order)])))
        async with open_ledger("memory:") as ledger:
            await ledger.take_in("c", history)
            assert [message.text for message in await ledger.transcript("c")] == ["one", "A", "two", "B"]
        assert not history.losses
    circle = [record("1", "2", "user", "one"), record("2", "1", "assistant", "A")]
    [history] = READERS[name]("\n".join(map(json.dumps, [*head, *circle])))
    assert len(history.drafts) == 2
    assert any("it hangs on" in loss.what for loss in history.losses)
