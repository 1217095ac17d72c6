"""What a provider says of the whole wins over what it streamed; calls and items are known by their ids, not by places."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from ledger import Ledger, open_ledger
from ledger.upkeep.verify import verify
from projector import Block
from projector import events as ev
from projector.formats.agui.stream_writer import AguiStreamWriter
from projector.formats.ai_sdk.stream_writer import AiSdkStreamWriter
from projector.formats.validators import validate_chat, validate_responses
from projector.json_text import raw

if TYPE_CHECKING:
    from projector import Message

RESPONSE: Final = {"id": "resp_1", "object": "response", "status": "in_progress", "output": []}
CREATED: Final = {"type": "response.created", "response": RESPONSE}


def completed(*output: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.completed", "response": RESPONSE | {"status": "completed", "output": [*output]}}


def said(text: str, ref: str = "msg_1", **fields: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": ref, "role": "assistant", "status": "completed", "content": content} | fields


def calls(name: str, arguments: str, ref: str | None = None) -> dict[str, Any]:
    return {"type": "function_call", "id": ref or f"fc_{name}", "call_id": f"call_{name}", "name": name, "arguments": arguments}


def added(item: dict[str, Any], index: int | None) -> dict[str, Any]:
    return {"type": "response.output_item.added", "item": item} | ({} if index is None else {"output_index": index})


def done(item: dict[str, Any], index: int | None) -> dict[str, Any]:
    return added(item, index) | {"type": "response.output_item.done"}


def grows(text: str, ref: str | None, index: int | None = None, kind: str = "output_text") -> dict[str, Any]:
    place = {} if index is None else {"output_index": index}
    return {"type": f"response.{kind}.delta", "delta": text} | place | ({} if ref is None else {"item_id": ref})


def argues(text: str, ref: str | None, index: int | None = None) -> dict[str, Any]:
    return grows(text, ref, index, "function_call_arguments")


async def play(ledger: Ledger, name: str, *chunks: dict[str, Any] | str) -> list[Message]:
    async with ledger.run("c", format=name) as run:
        for chunk in chunks:
            await run.feed(chunk if isinstance(chunk, str) else json.dumps(chunk))
    return await ledger.transcript("c")


async def told(name: str, *chunks: dict[str, Any] | str) -> list[tuple[str, str | None, str]]:
    """The blocks of what was streamed."""
    async with open_ledger("memory:") as ledger:
        return [
            (block.kind, block.name, block.text) for message in await play(ledger, name, *chunks) for block in message.blocks
        ]


PIECES: Final = (grows("Pay ", "msg_1", 0), grows("100", "msg_1", 0))
WHOLES: Final = {
    "the end of the text": ({"type": "response.output_text.done", "output_index": 0, "text": "Pay not 100"}, completed()),
    "the end of the part": (
        {"type": "response.content_part.done", "output_index": 0, "part": {"type": "output_text", "text": "Pay not 100"}},
        completed(),
    ),
    "the end of the item": (done(said("Pay not 100"), 0), completed()),
    "the final list": (completed(said("Pay not 100")),),
    "the final list, under another id": (completed(said("Pay not 100", "msg_x")),),
    "the final list behind an end that says nothing": (done(said("", content=[]), 0), completed(said("Pay not 100"))),
    "the final list behind another end": (done(said("Pay 100"), 0), completed(said("Pay not 100"))),
}


@pytest.mark.anyio
@pytest.mark.parametrize("ends", WHOLES.values(), ids=WHOLES.keys())
async def test_the_whole_text_wins_over_the_deltas_however_it_comes(ends: tuple[dict[str, Any], ...]) -> None:
    assert await told("responses", CREATED, *PIECES, *ends) == [("text", None, "Pay not 100")]


@pytest.mark.anyio
async def test_an_end_without_text_takes_nothing_away() -> None:
    empty = {"type": "response.output_text.done", "output_index": 0, "text": ""}
    assert await told("responses", CREATED, *PIECES, empty, completed()) == [("text", None, "Pay 100")]
    assert await told("responses", CREATED, *PIECES, completed(said(""))) == [("text", None, "Pay 100")]
    begun = (added(calls("f", ""), 0), argues('{"a":1}', "fc_f", 0))
    assert await told("responses", CREATED, *begun, done(calls("f", ""), 0), completed()) == [("tool_call", "f", '{"a":1}')]


@pytest.mark.anyio
async def test_what_is_a_call_is_said_of_the_text_that_is_there() -> None:
    async with open_ledger("memory:") as ledger:
        begun = (added(calls("f", ""), 0), argues('{"a":1,', "fc_f", 0), argues("}", "fc_f", 0))
        [message] = await play(ledger, "responses", CREATED, *begun, done(calls("f", '{"a":1,"b":2}'), 0), completed())
        assert [(block.text, block.parse) for block in message.blocks] == [('{"a":1,"b":2}', "ok")]
    async with open_ledger("memory:") as ledger:
        [message] = await play(ledger, "responses", CREATED, *begun, completed())
        assert [(block.text, block.parse) for block in message.blocks] == [('{"a":1,}', "bad")]
    for text, parse in (('{"a":1}', "ok"), ('{"a":1', "bad")):
        async with open_ledger("memory:") as ledger:
            opened = (added(calls("f", ""), 0), argues(text, "fc_f", 0))
            [message] = await play(ledger, "responses", CREATED, *opened, done(calls("f", ""), 0), completed())
            assert [(block.text, block.parse) for block in message.blocks] == [(text, parse)]


@pytest.mark.anyio
async def test_a_text_that_is_another_at_its_end_is_named_and_nothing_is_wrong() -> None:
    async with open_ledger("memory:") as ledger:
        await play(ledger, "responses", CREATED, *PIECES, completed(said("Pay not 100")))
        [difference] = await ledger.anomalies("c")
        assert "has another text than was streamed" in difference.why
        [finding] = [found async for found in verify(ledger)]
        assert (finding.kind, finding.is_note) == ("text", True)
        await ledger.compact("c")
        assert [message.text for message in await ledger.transcript("c")] == ["Pay not 100"]


F, G = calls("f", '{"q":1}'), calls("g", '{"q":2}')
REASONED = done({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "E"}, 0)
BOTH: Final = [("tool_call", "f", '{"q":1}'), ("tool_call", "g", '{"q":2}')]


def begins(call: dict[str, Any], index: int | None) -> dict[str, Any]:
    return added(call | {"arguments": ""}, index)


LISTS: Final = {
    "in another order": (begins(F, 0), begins(G, 1), completed(G, F)),
    "with other ids": (begins(F, 0), begins(G, 1), completed(F | {"id": "x"}, G | {"id": "y"})),
    "with ids that belong to each other": (begins(F, 0), begins(G, 1), completed(F | {"id": G["id"]}, G | {"id": F["id"]})),
    "with one that was not streamed": (begins(F, 0), completed(G, F)),
    "without what was streamed": (done(F, 0), completed(G)),
    "without the reasoning": (REASONED, begins(F, 1), argues('{"q"', F["id"], 1), begins(G, 2), completed(F, G)),
    "empty, no places": (begins(F, None), begins(G, None), argues('{"q":1}', F["id"]), argues('{"q":2}', G["id"]),
                         completed()),
    "one place for all": (begins(F, 0), argues('{"q":1}', F["id"], 0), begins(G, 0), argues('{"q":2}', G["id"], 0),
                          completed()),
    "one id for all": (begins(F | {"id": "i"}, 0), begins(G | {"id": "i"}, 1), argues('{"q":2}', "i", 1),
                       argues('{"q":1}', "i", 0), completed(F | {"id": "i"}, G | {"id": "i"})),
    "another id with each event": (begins(F, 0), argues('{"q"', "a", 0), argues(":1}", "b", 0), done(F | {"id": "c"}, 0),
                                   begins(G, 1), argues('{"q":2}', "d", 1), completed(F | {"id": "e"}, G | {"id": "f"})),
    "a beginning and an end told twice": (begins(F, 0), begins(F, 0), done(F, 0), done(F, 0), done(G, 1), completed(F, G)),
}  # fmt: skip


@pytest.mark.anyio
@pytest.mark.parametrize("events", LISTS.values(), ids=LISTS.keys())
async def test_a_call_is_known_by_its_call_id_and_never_by_its_place(events: tuple[dict[str, Any], ...]) -> None:
    found = [block for block in await told("responses", CREATED, *events) if block[0] == "tool_call"]
    assert sorted(found, key=str) == BOTH


@pytest.mark.anyio
async def test_messages_without_places_or_with_ids_that_change_are_told_apart() -> None:
    one, two = said("one", "m1"), said("two", "m2")
    expected = [("text", None, "one"), ("text", None, "two")]
    for events in (
        (grows("one", "m1"), done(one, None), grows("two", "m2"), done(two, None), completed(one, two)),
        (grows("one", "m1"), grows("two", "m2"), completed(two, one)),
        (
            grows("on", "x", 0),
            grows("e", "y", 0),
            done(one, 0),
            grows("two", "z", 1),
            completed(said("one", "p"), said("two", "q")),
        ),
        (done(one, 0), completed(one, two)),
        (
            added(said("", "m1", content=[]), None),
            grows("on", "a"),
            grows("e", "b"),
            done(one, None),
            done(two, None),
            completed(),
        ),
    ):
        assert await told("responses", CREATED, *events) == expected


@pytest.mark.anyio
async def test_a_result_inside_a_response_is_a_message_of_its_own() -> None:
    output = {"type": "function_call_output", "id": "fco_1", "call_id": "call_f", "output": "42"}
    answer = said("It is 42")
    for events in (
        (done(F, 0), done(output, 1), done(answer, 2), completed(F, output, answer)),
        (done(F, 0), done(output, 1), grows("It is 42", "msg_1", 2), completed()),
        (begins(F, 0), done(output, 1), done(F, 0), done(answer, 2), completed()),  # it waits for the call
        (completed(F, output, answer),),
        (completed(F, output, answer)["response"],),
    ):
        async with open_ledger("memory:") as ledger:
            messages = await play(ledger, "responses", *([CREATED] if len(events) > 1 else []), *events)
            assert [(message.role, message.status) for message in messages] == [
                ("assistant", "complete"), ("tool", "complete"), ("assistant", "complete"),
            ]  # fmt: skip
            assert [message.text for message in messages][::2] == ["", "It is 42"]
            items, chat = (await ledger.export("c", "responses")).payload, (await ledger.export("c", "chat")).payload
            assert [item["output"] for item in items if item["type"] == "function_call_output"] == ["42"]
            assert [message["content"] for message in chat if message["role"] == "tool"] == ["42"]
            assert (validate_responses(items), validate_chat(chat)) == ([], [])


@pytest.mark.anyio
async def test_what_is_said_at_last_of_a_message_ahead_of_a_result_is_said_of_that_message() -> None:
    output = {"type": "function_call_output", "id": "fco_1", "call_id": "call_f", "output": "42"}
    first, last = said("I look", "m1"), said("It is 42", "m2")
    note = {"type": "url_citation", "url": "https://example.org/", "title": "t", "start_index": 0, "end_index": 1}
    whole = said("I look now", "m1", content=[{"type": "output_text", "text": "I look now", "annotations": [note]}])
    async with open_ledger("memory:") as ledger:
        events = (done(first, 0), done(F, 1), done(output, 2), done(last, 3), completed(whole, F, output, last))
        messages = await play(ledger, "responses", CREATED, *events)
        assert [message.text for message in messages] == ["I look now", "", "It is 42"]
        assert [[len(block.citations) for block in message.blocks] for message in messages] == [[1, 0], [0], [0]]


def fragment(index: int | None = 0, ref: str | None = None, name: str | None = None, said: str | None = None) -> dict[str, Any]:
    function = ({} if name is None else {"name": name}) | ({} if said is None else {"arguments": said})
    call = {"function": function} | ({} if index is None else {"index": index}) | ({} if ref is None else {"id": ref})
    return {"id": "x", "choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}


END: Final = {"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
TWO: Final = [("a", "f", '{"x":1}'), ("b", "g", '{"x":2}')]
FRAGMENTS: Final[dict[str, list[tuple[Any, ...]]]] = {
    "one index for both": [(0, "a", "f"), (0, None, None, '{"x":1}'), (0, "b", "g"), (0, None, None, '{"x":2}')],
    "no index": [(None, "a", "f", '{"x"'), (None, None, None, ":1}"), (None, "b", "g"), (None, None, None, '{"x":2}')],
    "by turns, by id": [(0, "a", "f"), (0, "b", "g"), (0, "a", None, '{"x":1}'), (0, "b", None, '{"x":2}')],
    "the id and the name with every piece": [
        (0, "a", "f", '{"x"'),
        (0, "a", "f", ":1}"),
        (1, "b", "g", '{"x"'),
        (1, "b", "g", ":2}"),
    ],
    "ids late": [(0, None, "f", '{"x"'), (0, "a", None, ":1}"), (1, None, "g", ""), (1, "b", None, '{"x":2}')],
    "ids empty, then there": [(0, "", "f", ""), (0, "a", "", '{"x":1}'), (1, "", "g"), (1, "b", "", '{"x":2}')],
    "an index behind its start": [(0, "a", "f"), (1, "b", "g"), (1, None, None, '{"x":2}'), (0, None, None, '{"x":1}')],
}


@pytest.mark.anyio
@pytest.mark.parametrize("pieces", FRAGMENTS.values(), ids=FRAGMENTS.keys())
async def test_fragments_of_calls_join_by_what_names_them(pieces: list[tuple[Any, ...]]) -> None:
    async with open_ledger("memory:") as ledger:
        [message] = await play(ledger, "chat", *(fragment(*piece) for piece in pieces), END)
        assert [(block.tool_call_id, block.name, block.text) for block in message.blocks] == TWO
        assert [block.parse for block in message.blocks] == ["ok", "ok"]


@pytest.mark.anyio
async def test_a_name_in_pieces_is_one_name_and_another_name_another_call() -> None:
    async with open_ledger("memory:") as ledger:
        pieces: list[tuple[Any, ...]] = [(0, "a", "get_", ""), (0, None, "weather"), (0, None, None, "{}")]
        [message] = await play(ledger, "chat", *(fragment(*piece) for piece in pieces), END)
        assert [(block.name, block.text) for block in message.blocks] == [("get_weather", "{}")]
    async with open_ledger("memory:") as ledger:
        pieces = [(0, None, "f", "{}"), (0, None, "g", "{}"), (0, None, "g", "[]")]
        [message] = await play(ledger, "chat", *(fragment(*piece) for piece in pieces), END)
        assert [(block.name, block.text) for block in message.blocks] == [("f", "{}"), ("g", "{}"), ("g", "[]")]


def ends(message: dict[str, Any], delta: dict[str, Any] | None = None) -> dict[str, Any]:
    """The end of a response at servers that say the whole message there."""
    shown = {} if delta is None else {"delta": delta}
    return {"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": "stop"} | shown]}


def adds(**fields: Any) -> dict[str, Any]:
    return {"id": "x", "choices": [{"index": 0, "delta": fields}]}


@pytest.mark.anyio
@pytest.mark.parametrize("delta", [None, {}, {"content": "!"}])
async def test_a_message_at_the_end_of_its_deltas_is_no_second_answer(delta: dict[str, Any] | None) -> None:
    pieces = (adds(content="Pay "), adds(content="100"))
    for whole in ("Pay 100" + (delta or {}).get("content", ""), "Pay not 100"):
        assert await told("chat", *pieces, ends({"role": "assistant", "content": whole}, delta)) == [("text", None, whole)]
    assert (await told("chat", *pieces, ends({"content": ""}, delta)))[0][2].startswith("Pay 100")
    called = {"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": '{"x":1}'}}], "content": "I look"}
    begun = (adds(content="I"), fragment(0, "a", "f", '{"x"'))
    expected = [("text", None, "I look"), ("tool_call", "f", '{"x":1}')]
    assert await told("chat", *begun, ends(called, {})) == expected
    late = (adds(content="I"), ends(called, {}))
    assert await told("chat", *late) == expected
    pieces_of_messages = ({"id": "x", "choices": [{"message": {"content": "Pay "}}]}, ends({"content": "100"}))
    assert await told("chat", *pieces_of_messages) == [("text", None, "Pay 100")]


def bedrock(text: str) -> dict[str, Any]:
    return {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": text}}}


STOPPED: Final = {"messageStop": {"stopReason": "end_turn"}}
GEMINI: Final = {"candidates": [{"content": {"parts": [{"text": "Hello"}]}}]}
CHAT: Final = {"choices": [{"delta": {"content": "Hello"}}]}
TEXT: Final = ({"type": "text-start", "id": "0"}, {"type": "text-delta", "id": "0", "delta": "Hello"})
AGUI: Final = {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "Hello"}
BROKEN: Final[dict[str, tuple[str, list[dict[str, Any] | str]]]] = {
    "bedrock, no start": ("bedrock", [bedrock("Hello"), {"contentBlockStop": {"contentBlockIndex": 0}}, STOPPED]),
    "bedrock, an empty start": ("bedrock", [{"messageStart": {}}, bedrock("Hello"), STOPPED]),
    "bedrock, no role": ("bedrock", [{"messageStart": {"role": ""}}, bedrock("Hello"), {"messageStop": {}}]),
    "bedrock, a start of nothing": (
        "bedrock", [{"contentBlockStart": {"contentBlockIndex": 0, "start": {}}}, bedrock("Hello"), STOPPED]),
    "bedrock, no end": ("bedrock", [{"messageStart": {"role": "assistant"}}, bedrock("Hello"), "[DONE]"]),
    "gemini, an empty start": ("gemini", [{}, {"candidates": []}, GEMINI, "[DONE]"]),
    "chat, an empty start": (
        "chat", [{"id": "", "choices": []}, {"choices": [{"delta": {"role": "assistant"}}]}, CHAT, "[DONE]"]),
    "chat, no reason": ("chat", [CHAT, "[DONE]"]),
    "responses, no start": ("responses", [grows("Hello", None), "[DONE]"]),
    "responses, an empty start": (
        "responses", [{"type": "response.created"}, grows("Hello", None), {"type": "response.completed"}]),
    "ai-sdk, no start of the text": ("ai-sdk", [TEXT[1], {"type": "finish"}]),
    "ai-sdk, no end": ("ai-sdk", [{"type": "start"}, *TEXT, "[DONE]"]),
    "agui, no start": ("agui", [AGUI, {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}]),
    "agui, no end": ("agui", [{"type": "RUN_STARTED", "threadId": "t", "runId": "r"}, AGUI, "[DONE]"]),
}  # fmt: skip


@pytest.mark.anyio
@pytest.mark.parametrize(("name", "chunks"), BROKEN.values(), ids=BROKEN.keys())
async def test_a_stream_without_its_first_or_its_last_event_is_read(name: str, chunks: list[dict[str, Any] | str]) -> None:
    async with open_ledger("memory:") as ledger:
        [message] = await play(ledger, name, *chunks)
        assert (message.role, message.text, message.status, message.blocks[0].sealed) == (
            "assistant",
            "Hello",
            "complete",
            True,
        )
        assert [run.outcome async for run in ledger.runs("c")] == ["completed"]
        assert await ledger.anomalies("c") == []


def chat_usage(prompt: int | None, completion: int) -> dict[str, Any]:
    return CHAT | {"usage": {"prompt_tokens": prompt, "completion_tokens": completion}}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "chunks"),
    [
        ("chat", [chat_usage(9, 2), chat_usage(None, 5), "[DONE]"]),
        ("chat", [chat_usage(9, 5), chat_usage(0, 0), "[DONE]"]),
        ("gemini", [GEMINI | {"usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 5}},
                    GEMINI | {"usageMetadata": {"promptTokenCount": None, "candidatesTokenCount": 1}}, "[DONE]"]),
        ("bedrock", [bedrock("x"), STOPPED, {"metadata": {"usage": {"inputTokens": 9, "outputTokens": 5}}},
                     {"metadata": {"usage": {"inputTokens": None, "outputTokens": 0}}}]),
    ],
)  # fmt: skip
async def test_no_count_of_tokens_falls_and_null_says_nothing(name: str, chunks: list[dict[str, Any] | str]) -> None:
    async with open_ledger("memory:") as ledger:
        await play(ledger, name, *chunks)
        [run] = [run async for run in ledger.runs("c")]
        assert [(used.input, used.output) for used in run.usage.values()] == [(9, 5)]


@pytest.mark.anyio
async def test_an_end_that_says_more_brings_nothing_back_that_was_redacted() -> None:
    async with open_ledger("memory:") as ledger:
        async with ledger.run("c", format="responses") as run:
            await run.feed(CREATED)
            await run.feed(done(said("PIN 47"), 0))
            await ledger.redact("c", f"{run.run_id}.1", [Block("text", text="(gone)")])
            await run.feed(completed(said("PIN 4711")))
        assert [message.text for message in await ledger.transcript("c")] == ["(gone)"]
        assert "redacted" in (await ledger.anomalies("c"))[0].why


def test_a_result_finds_a_call_that_went_out_before_its_id_was_known() -> None:
    writer, ask = AiSdkStreamWriter(), ev.ToolApproval("c", "p")
    bodies = [
        ev.RunStarted("r", None, "submit", "r"), ev.MessageStarted("r", "m", "assistant"),
        ev.BlockStarted("m", 0, "tool_call", "f"), ev.BlockSealed("m", 0, parse="ok", tool_call_id="c"), ask,
        ev.ToolResult("r", "t", "c", "ok", raw('[{"kind":"text","text":"1"}]')),
    ]  # fmt: skip
    chunks = [chunk for body in bodies for chunk in writer.feed(body)]
    told = [(chunk["type"], chunk["toolCallId"]) for chunk in chunks if "toolCallId" in chunk]
    assert {ref for _, ref in told} == {"call_m_0"}
    assert {"tool-approval-request", "tool-output-available"} <= {kind for kind, _ in told}
    other = AguiStreamWriter()
    events = [event for body in bodies for event in other.feed(body)]
    assert [event["toolCallId"] for event in events if event["type"] in ("TOOL_CALL_END", "TOOL_CALL_RESULT")] == [
        "call_m_0"
    ] * 2
