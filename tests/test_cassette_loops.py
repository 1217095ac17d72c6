"""Loops in cassettes: a request repeats what was said, an answer is kept once and as it came, what differs is a branch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ledger import open_ledger
from projector.formats.recordings import exchange_trees
from tests.cassette_files import CHAT, CLAUDE, ask, call, completion, exchange, taken, write

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ledger import Ledger
    from projector.formats.shared.history import HistoryMessage
    from tests.cassette_files import Told

pytestmark = pytest.mark.anyio
RESPONSES = "https://api.openai.com/v1/responses"
GEMINI = "https://g/v1/models/m:generateContent"


@pytest.fixture
async def ledger() -> AsyncIterator[Ledger]:
    async with open_ledger("memory:") as made:
        yield made


def said_back(*calls: Any, text: str | None = None) -> dict[str, Any]:
    return {"role": "assistant", "content": text, "tool_calls": list(calls)}


def result(ref: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": ref, "content": text}


def is_line(one: Told) -> bool:
    return one.messages == one.active


async def test_usage_id_model_and_reason_of_every_answer_are_kept(ledger: Ledger, tmp_path: Path) -> None:
    [one] = await taken(
        ledger,
        write(
            tmp_path / "c.yaml",
            exchange(CHAT, ask("hi"), completion("", "c1", [call("k1", a=1)], (10, 20))),
            exchange(CHAT, ask("hi", said_back(call("k1", a=1)), result("k1", "sun")), completion("Sun.", "c2", used=(30, 4))),
        ),
    )
    assert [message.role for message in one.messages] == ["user", "assistant", "tool", "assistant"]
    assert is_line(one)
    assert [message.provider_ref for message in one.messages] == [None, "c1", None, "c2"]
    assert [message.metadata_text.get("model") for message in one.messages] == [None, '"model-c1"', None, '"model-c2"']
    assert [run.finish_reason for run in one.runs if run.usage] == ["tool_calls", "stop"]
    assert [(used.input, used.output) for run in one.runs for used in run.usage.values()] == [(10, 20), (30, 4)]


async def test_an_answer_that_no_request_repeats_is_a_branch(ledger: Ledger, tmp_path: Path) -> None:
    both = completion("I look both up.", "c1", [call("k1", a=1), call("k2", a=2)])
    [one] = await taken(
        ledger,
        write(
            tmp_path / "c.yaml",
            exchange(CHAT, ask("hi"), both),
            exchange(CHAT, ask("hi", said_back(call("k1", a=1)), result("k1", "sun")), completion("Sun.", "c2")),
        ),
    )
    assert [message.role for message in one.active] == ["user", "assistant", "tool", "assistant"]
    [dropped] = [message for message in one.messages if message not in one.active]
    assert (dropped.provider_ref, dropped.parent_id) == ("c1", one.active[0].id)
    assert [block.tool_call_id for block in dropped.blocks] == [None, "k1", "k2"]


@pytest.mark.parametrize("text", [None, "", "I look.", "I look.\n"])
async def test_an_answer_is_known_again_by_its_calls_and_what_it_says(ledger: Ledger, tmp_path: Path, text: str | None) -> None:
    answer = completion("I look.", "c1", [call("k1", a=1, b=[2])])
    again = json.dumps({"b": [2], "a": 1})  # the client has read it and written it anew
    mine = call("k1") | {"function": {"name": "look", "arguments": again}}
    [one] = await taken(
        ledger,
        write(
            tmp_path / "c.yaml",
            exchange(CHAT, ask("hi"), answer),
            exchange(CHAT, ask("hi", said_back(mine, text=text), result("k1", "sun")), completion("Sun.", "c2")),
        ),
    )
    assert is_line(one)
    assert one.texts[1].startswith("I look.")


async def test_other_ids_or_other_words_are_another_message(ledger: Ledger, tmp_path: Path) -> None:
    for name, back in (("ids", said_back(call("x9", a=1))), ("words", said_back(call("k1", a=1), text="I don't."))):
        ref = back["tool_calls"][0]["id"]
        [one] = await taken(
            ledger,
            write(
                tmp_path / f"{name}.yaml",
                exchange(CHAT, ask("hi"), completion("I look.", "c1", [call("k1", a=1)])),
                exchange(CHAT, ask("hi", back, result(ref, "sun")), completion("Sun.", "c2")),
            ),
        )
        assert len(one.messages) == len(one.active) + 1


async def test_requests_that_part_are_branches_and_those_that_share_only_instructions_are_not(
    ledger: Ledger, tmp_path: Path
) -> None:
    system = {"role": "system", "content": "be brief"}
    found = await taken(
        ledger,
        write(
            tmp_path / "c.yaml",
            exchange(CHAT, ask(system, "one"), completion("first", "c1")),
            exchange(CHAT, ask(system, "one"), completion("second", "c2")),
            exchange(CHAT, ask(system, "one", {"role": "assistant", "content": "first"}, "go on"), completion("third", "c3")),
            exchange(CHAT, ask(system, "two"), completion("fourth", "c4")),
        ),
    )
    assert [one.texts for one in found] == [
        ["be brief", "one", "first", "second", "go on", "third"],
        ["be brief", "two", "fourth"],
    ]
    parents = [one.parent_id for one in found[0].messages]
    ids = [one.id for one in found[0].messages]
    assert parents == [None, ids[0], ids[1], ids[1], ids[2], ids[4]]


async def test_whole_answers_of_claude_end_a_run_each(ledger: Ledger, tmp_path: Path) -> None:
    def answer(ref: str, *content: Any, reason: str = "end_turn") -> dict[str, Any]:
        usage = {"input_tokens": 5, "output_tokens": 1}
        return {
            "id": ref,
            "type": "message",
            "role": "assistant",
            "content": list(content),
            "stop_reason": reason,
            "usage": usage,
        }

    use = {"type": "tool_use", "id": "t", "name": "look", "input": {"a": 1}}
    back = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "sun"}]}
    sent = ask("hi", {"role": "assistant", "content": [use]}, back)
    thought = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    [one] = await taken(
        ledger,
        write(
            tmp_path / "c.yaml",
            exchange(CLAUDE, ask("hi"), answer("m1", thought, use, reason="tool_use")),
            exchange(CLAUDE, sent, answer("m2", {"type": "text", "text": "Sun."})),
        ),
    )
    assert is_line(one)
    assert [block.kind for block in one.messages[1].blocks] == ["reasoning", "tool_call"]  # what came, not what was sent back
    assert [(run.finish_reason, list(run.usage)) for run in one.runs] == [("tool_use", ["m1"]), ("end_turn", ["m2"])]


def responses_answer(ref: str, *output: Any) -> dict[str, Any]:
    return {"id": ref, "object": "response", "status": "completed", "output": list(output), "usage": {"input_tokens": 1}}


def function_call(ref: str) -> dict[str, Any]:
    return {"type": "function_call", "id": f"fc_{ref}", "call_id": ref, "name": "look", "arguments": "{}"}


def function_output(ref: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": ref, "output": f"result {ref}"}


DONE = {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]}


async def test_calls_that_are_sent_back_each_with_its_result_are_one_answer(ledger: Ledger, tmp_path: Path) -> None:
    sent = [{"role": "user", "content": "hi"}]
    sent += [item for ref in ("a", "b") for item in (function_call(ref), function_output(ref))]
    [one] = await taken(
        ledger,
        write(
            tmp_path / "c.yaml",
            exchange(RESPONSES, {"input": "hi"}, responses_answer("r1", function_call("a"), function_call("b"))),
            exchange(RESPONSES, {"input": sent}, responses_answer("r2", DONE)),
        ),
    )
    assert is_line(one)
    assert [message.role for message in one.messages] == ["user", "assistant", "tool", "tool", "assistant"]


async def test_a_request_that_names_the_answer_before_goes_on_behind_it(ledger: Ledger, tmp_path: Path) -> None:
    asked = {"input": [function_output("a")], "previous_response_id": "r1", "instructions": "be brief"}
    [one] = await taken(
        ledger,
        write(
            tmp_path / "c.yaml",
            exchange(RESPONSES, {"input": "hi", "instructions": "be brief"}, responses_answer("r1", function_call("a"))),
            exchange(RESPONSES, asked, responses_answer("r2", DONE)),
        ),
    )
    assert is_line(one)
    assert [message.role for message in one.messages] == ["system", "user", "assistant", "tool", "assistant"]


async def test_calls_without_ids_are_answered_by_the_id_that_they_got(ledger: Ledger, tmp_path: Path) -> None:
    user = {"role": "user", "parts": [{"text": "hi"}]}
    model = {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {"a": 1}}}]}
    back = {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"b": 2}}}]}
    final = {"candidates": [{"content": {"role": "model", "parts": [{"text": "Sun."}]}, "finishReason": "STOP"}]}
    path = write(
        tmp_path / "c.yaml",
        exchange(GEMINI, {"contents": [user]}, {"candidates": [{"content": model, "finishReason": "STOP"}]}),
        exchange(GEMINI, {"contents": [user, model, back]}, final),
    )
    [one] = await taken(ledger, path)
    assert is_line(one)
    [called], [answered] = (message.blocks for message in one.messages[1:3])
    assert called.tool_call_id == answered.tool_call_id
    assert (called.tool_call_id or "").startswith(one.messages[1].id)
    assert [added.added for added in (await ledger.import_file(path)).conversations] == [0]


async def test_many_conversations_in_a_cassette_cost_each_its_own(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[object] = []
    key = exchange_trees._key

    def counted(draft: HistoryMessage) -> str:
        looked.append(draft)
        return key(draft)

    monkeypatch.setattr(exchange_trees, "_key", counted)
    asked = [
        {"model": "m", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": f"{n}"}]} for n in range(40)
    ]
    told = await taken(
        ledger, write(tmp_path / "c.yaml", *(exchange(CHAT, one, completion("a", f"c{n}")) for n, one in enumerate(asked)))
    )
    assert len(told) == 40
    assert len(looked) <= 2 * sum(len(one.messages) for one in told)
