"""Chat Completions: what no recording has, messages in and out, and what is mended on the way."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from projector import Block, Message
from projector.events import Body, RawEvent, RunUsage, to_event
from projector.formats import FormatError
from projector.formats.chat import reader as chat
from projector.formats.chat import writer as chat_writer
from projector.formats.chat.stream_writer import write_stream
from projector.formats.validators import validate_chat
from projector.json_text import text_of
from tests.openai_recordings import feed, imported, messages_of

END = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CUSTOM = {"id": "call_1", "type": "custom", "custom": {"name": "s", "input": "x y"}}
ASKS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
ANSWERS = {"role": "tool", "tool_call_id": "call_1", "content": "1"}
HELLO = {"role": "user", "content": "hi"}


def delta(ref: str = "c1", **fields: Any) -> dict[str, Any]:
    return {"id": ref, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": fields}]}


def call(**fields: Any) -> dict[str, Any]:
    return delta(tool_calls=[fields])


def blocks(*chunks: dict[str, Any] | str) -> list[Block]:
    [message] = messages_of(feed("chat", [*chunks, END])[1])
    assert message.status == "complete"
    return list(message.blocks)


def raw_events(bodies: list[Body]) -> list[Any]:
    return [json.loads(text_of(body.event) or "") for body in bodies if isinstance(body, RawEvent)]


def read(*messages: dict[str, Any]) -> list[Message]:
    [history] = chat.read(json.dumps(messages))
    return imported(history)


def test_fragments_of_a_call_join_by_index_and_ids_that_come_again_change_nothing() -> None:
    first, second = blocks(
        call(index=0, id="a", type="function", function={"name": "f", "arguments": ""}),
        call(index=1, id="b", function={"name": "g", "arguments": "[1"}),
        call(index=0, id="", function={"name": "", "arguments": '{"x"'}),
        call(index=1, function={"arguments": "]"}),
        call(index=0, id="a", function={"arguments": ":1}"}),
    )
    assert (first.name, first.tool_call_id, first.text, first.parse) == ("f", "a", '{"x":1}', "ok")
    assert (second.name, second.tool_call_id, second.input) == ("g", "b", [1])


def test_calls_without_an_index_are_told_apart_by_their_ids() -> None:
    found = blocks(
        call(id="a", function={"name": "f", "arguments": {"x": 1.50}}), call(id="b", function={"name": "f", "arguments": "{}"})
    )
    assert [(each.tool_call_id, each.input) for each in found] == [("a", {"x": 1.5}), ("b", {})]


def test_whole_calls_that_all_have_the_same_index_are_several_calls() -> None:
    found = blocks(*(call(index=0, id=ref, function={"name": "f", "arguments": "{}"}) for ref in ("a", "b")))
    assert [each.tool_call_id for each in found] == ["a", "b"]


def test_a_call_without_an_id_gets_the_same_one_each_time() -> None:
    [found] = blocks(call(index=0, function={"name": "f", "arguments": "{}"}))
    assert found.tool_call_id == "r.1.0"
    [old] = blocks(delta(function_call={"name": "f", "arguments": '{"a"'}), delta(function_call={"arguments": ":1}"}))
    assert (old.name, old.input, old.tool_call_id) == ("f", {"a": 1}, "r.1.0")


def test_a_call_whose_name_comes_later_keeps_its_arguments() -> None:
    [found] = blocks(
        call(index=0, id="a", function={"arguments": '{"a"'}), call(index=0, function={"name": "f", "arguments": ":1}"})
    )
    assert (found.name, found.text) == ("f", '{"a":1}')


def test_a_custom_tool_takes_text_which_stands_inside_an_object() -> None:
    [found] = blocks(
        call(index=0, id="a", type="custom", custom={"name": "sql", "input": "SELECT "}), call(index=0, custom={"input": "1"})
    )
    assert (found.text, found.input, found.parse) == ("SELECT 1", {"input": "SELECT 1"}, "ok")


def test_what_another_maker_adds_to_a_call_is_kept_and_goes_back_only_where_it_is_asked_for() -> None:
    added = {"google": {"thought_signature": "c2lnbmF0dXJl"}}
    [found] = blocks(call(index=0, id="a", function={"name": "f", "arguments": "{}"}, extra_content=added))
    message = Message("m", None, "r", "assistant", "complete", (found,), 0, 0)
    plain, named = chat_writer.write([message]), chat_writer.write([message], reasoning="reasoning_content")
    assert "extra_content" not in plain.payload[0]["tool_calls"][0]
    assert [loss.what for loss in plain.losses] == ["what another maker has added to a call is not sent"]
    assert named.payload[0]["tool_calls"][0]["extra_content"] == added


def test_reasoning_that_is_sent_in_two_fields_is_said_once() -> None:
    thought, said = blocks(delta(reasoning="hm", reasoning_content="hm"), delta(reasoning_content=" so"), delta(content="x"))
    assert (thought.kind, thought.text, thought.provider_ref, said.text) == ("reasoning", "hm so", "reasoning_content", "x")


def test_details_of_reasoning_come_in_pieces_and_go_back_whole() -> None:
    details = [
        {"type": "reasoning.text", "text": "a", "format": "anthropic-claude-v1", "index": 0},
        {"type": "reasoning.text", "text": "b", "signature": "c2lnbmF0dXJl+/=", "index": 0},
        {"type": "reasoning.encrypted", "data": "Z0FBQUFB\u00e9", "id": "rs_1", "format": "openai-responses-v1", "index": 1},
    ]
    found = blocks(*(delta(reasoning=detail.get("text"), reasoning_details=[detail]) for detail in details), delta(content="x"))
    assert [each.kind for each in found] == ["reasoning", "redacted_reasoning", "text"]
    message = Message("m", None, "r", "assistant", "complete", tuple(found), 0, 0)
    [sent] = chat_writer.write([message], reasoning="reasoning_details").payload
    assert sent["reasoning_details"] == [details[0] | details[1] | {"text": "ab"}, details[2]]
    [plain] = chat_writer.write([message]).payload
    assert plain == {"role": "assistant", "content": "x"}


def test_parts_of_content_that_nobody_knows_are_kept_as_they_came() -> None:
    part = '{"type": "hologram",  "n": 1e400, "s": "\\ud83d"}'
    chunk = json.dumps(delta(content=["PART"])).replace('"PART"', part)
    found = blocks(delta(content="a"), chunk, delta(content=[{"type": "text", "text": "b"}]))
    assert [each.text for each in found] == ["a", "", "b"]
    assert found[1].opaque == f'{{"provider":"chat","payload":{part}}}'


def test_an_error_in_the_middle_fails_the_run_and_what_follows_does_not_undo_it() -> None:
    error = '{"message": "\\ud83d", "code": 1e400}'
    for broken in (f'{{"error":{error}}}', f'{{"id":"c1","error":{error},"choices":[{{"index":0,"delta":{{"content":""}}}}]}}'):
        stream, bodies = feed("chat", [delta(content="so far"), broken, END, "[DONE]"])
        assert (stream.end().outcome, stream.end().error) == ("failed", error)
        [message] = messages_of(bodies)
        assert (message.text, message.status, message.blocks[0].sealed) == ("so far", "partial", False)
    alone, _ = feed("chat", ['{"object":"error","message":"no"}'])
    assert (alone.end().outcome, alone.end().error) == ("failed", '{"object":"error","message":"no"}')


def test_a_response_without_a_reason_is_whole_when_the_stream_says_so() -> None:
    stream, bodies = feed("chat", [delta(content="x")])
    assert stream.end().outcome == "incomplete"
    bodies += stream.feed("[DONE]")
    assert (stream.end().outcome, messages_of(bodies)[0].status) == ("completed", "complete")


def test_what_comes_behind_the_end_is_kept_as_it_came() -> None:
    late = delta(content="late")
    _, bodies = feed("chat", [delta(content="x"), END, late])
    assert (raw_events(bodies), messages_of(bodies)[0].text) == ([late], "x")


def test_another_completion_in_the_middle_leaves_the_first_as_partial() -> None:
    first, second = messages_of(feed("chat", [delta(content="torn"), delta("c2", content="whole"), END | {"id": "c2"}])[1])
    assert [(first.text, first.status), (second.text, second.status)] == [("torn", "partial"), ("whole", "complete")]


def test_of_several_choices_the_first_is_the_message_and_no_other_is_lost() -> None:
    both = {"id": "c1", "choices": [{"index": index, "delta": {"content": text}} for index, text in ((1, "b"), (0, "a"))]}
    _, bodies = feed("chat", [both, END])
    assert (messages_of(bodies)[0].text, raw_events(bodies)) == ("a", [both])


@pytest.mark.parametrize(
    ("chunk", "wanted"),
    [
        ({"usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}}, (3, 4, None, None)),
        ({"x_groq": {"id": "q", "usage": {"prompt_tokens": 3, "completion_tokens": 4}}}, (3, 4, None, None)),
        ({"usage": {"prompt_tokens": 3, "completion_tokens": 4, "prompt_cache_hit_tokens": 2}}, (3, 4, 2, None)),
        (
            {"usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 12,
                       "completion_tokens_details": {"reasoning_tokens": 5}}},
            (3, 9, None, 5),
        ),
    ],
    ids=["beside", "groq", "deepseek", "xai"],
)  # fmt: skip
def test_usage_is_a_total_wherever_it_stands(chunk: dict[str, Any], wanted: tuple[int | None, ...]) -> None:
    _, bodies = feed(
        "chat", [delta(content="x"), END, {"id": "c1", "choices": []} | chunk, {"id": "c1", "choices": []} | chunk]
    )
    [used] = [body for body in bodies if isinstance(body, RunUsage)]
    assert (used.request_id, used.input, used.output, used.cached, used.reasoning) == ("c1", *wanted)


def test_refusals_sounds_and_citations_have_their_places() -> None:
    note = {
        "type": "url_citation",
        "url_citation": {"url": "https://example.org", "title": "t", "start_index": 0, "end_index": 1},
    }
    sound = [{"id": "audio_1", "transcript": "he"}, {"data": "AAAA", "transcript": "llo"}, {"expires_at": 7}]
    text, refused, heard = blocks(
        delta(content="x"),
        delta(annotations=[note]),
        delta(refusal="I can"),
        delta(refusal="not"),
        *(delta(audio=s) for s in sound),
    )
    assert [json.loads(citation)["source"] for citation in text.citations] == [note]
    assert (refused.kind, refused.text) == ("refusal", "I cannot")
    assert (heard.kind, heard.fields) == ("media", {"transcript": "hello", "data": "AAAA"})
    message = Message("m", None, "r", "assistant", "complete", (heard,), 0, 0)
    assert chat_writer.write([message]).payload == [{"role": "assistant", "content": None, "audio": {"id": "audio_1"}}]


def test_a_text_that_is_split_elsewhere_and_a_chunk_in_another_form_are_the_same() -> None:
    text = "a\ud83d\ude00 \u00e9\0 \ud83d"
    wanted = blocks(delta(content=text))
    for cut in range(len(text) + 1):
        assert blocks(delta(content=text[:cut]), delta(content=""), delta(content=text[cut:])) == wanted
    chunks = [json.dumps(chunk) for chunk in (delta(content="\u00e9"), END)]
    texts = [to_event(body) for body in feed("chat", chunks)[1]]
    assert [to_event(body) for body in feed("chat", [chunk.encode() for chunk in chunks])[1]] == texts
    assert [to_event(body) for body in feed("chat", map(json.loads, chunks))[1]] == texts


def test_memory_does_not_grow_with_the_stream() -> None:
    stream, _ = feed("chat", [delta(content="x"), delta(reasoning="x")])
    tracemalloc.start()
    for part in range(4000):
        stream.feed(delta(content="word " * 20) if part % 100 else delta(reasoning="hm"))
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 20_000


@pytest.mark.parametrize(
    "chunk",
    [
        "", "{", "[]", "null", "7", '{"a":1}', '{"choices":{}}', b'{"choices":"\xff"}', '{"choices":[7]}',
        '{"choices":[{"delta":{"content":7}}]}', '{"choices":[{"delta":{"tool_calls":7}}]}',
        '{"choices":[{"delta":{"content":"x","tool_calls":[{"function":7}]}}]}', '{"choices":[],"usage":7}',
        '{"choices":[{"delta":{"content":[{"type":"thinking","thinking":7}]}}]}',
    ],
)  # fmt: skip
def test_what_is_no_chunk_is_refused_and_the_stream_goes_on(chunk: str | bytes) -> None:
    stream, bodies = feed("chat", [])
    with pytest.raises(FormatError):
        stream.feed(chunk)
    bodies += stream.feed(delta(content="a"))
    if chunk != '{"a":1}':  # inside a stream an event of another kind is kept
        with pytest.raises(FormatError):
            stream.feed(chunk)
    for good in (delta(content="b"), END):
        bodies += stream.feed(good)
    assert (messages_of(bodies)[0].text, stream.end().outcome) == ("ab", "completed")


HISTORIES: dict[str, list[dict[str, Any]]] = {
    "roles": [{"role": "system", "content": "s"}, {"role": "developer", "content": "d"}, HELLO | {"name": "ann"}, HELLO],
    "calls": [HELLO, ASKS, ANSWERS, {"role": "assistant", "content": "done", "tool_calls": [CALL | {"id": "call_2"}]},
              ANSWERS | {"tool_call_id": "call_2", "content": ""}],
    "parallel calls": [HELLO, {"role": "assistant", "content": None, "tool_calls": [CALL, CALL | {"id": "b"}]},
                       ANSWERS | {"tool_call_id": "b"}, ANSWERS],
    "custom calls": [HELLO, ASKS | {"tool_calls": [CUSTOM]}, ANSWERS],
    "media": [{"role": "user", "content": [
        {"type": "text", "text": "see", "cache_control": {"type": "ephemeral"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "file", "file": {"file_id": "file-1"}}]}],
    "refusal": [HELLO, {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}],
    "both": [HELLO, {"role": "assistant", "content": "yes", "refusal": "but"}],
    "parts of results": [HELLO, ASKS, ANSWERS | {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
    "other fields": [HELLO, {"role": "assistant", "content": "x", "prefix": True}, HELLO, ASKS, ANSWERS | {"name": "f"}],
    "old sound": [HELLO, {"role": "assistant", "content": None, "audio": {"id": "audio_1"}}],
}  # fmt: skip


@pytest.mark.parametrize("name", HISTORIES)
def test_a_history_comes_out_as_it_went_in(name: str) -> None:
    export = chat_writer.write(read(*HISTORIES[name]))
    assert (export.payload, export.losses, export.repairs) == (HISTORIES[name], (), ())
    assert validate_chat(export.payload) == []


def test_the_old_form_of_a_call_comes_back_in_the_new_one() -> None:
    old = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"a": 1.50}'}}
    _, asks, answers = chat_writer.write(read(HELLO, old, {"role": "function", "name": "f", "content": "1"})).payload
    assert asks["tool_calls"] == [{"id": "call_1", "type": "function", "function": old["function_call"]}]
    assert answers == {"role": "tool", "tool_call_id": "call_1", "content": "1"}


@pytest.mark.parametrize(
    ("history", "said"),
    [
        ([HELLO, ASKS, HELLO], "never answered"),
        ([HELLO, ANSWERS, HELLO], "without a call"),
        ([HELLO, ASKS, ANSWERS, ANSWERS], "second result"),
        ([HELLO, {"role": "assistant", "content": " \n"}, HELLO], "blank"),
        ([HELLO | {"content": "a\ud83d"}], "characters that no text may have"),
        ([HELLO | {"content": "a\0"}], "characters that no text may have"),
        ([HELLO, ASKS | {"tool_calls": [CALL | {"function": {"name": "f", "arguments": '{"a'}}]}, ANSWERS], "no JSON object"),
        ([HELLO, ASKS, ANSWERS, ASKS, ANSWERS], "is sent as"),
        ([HELLO, ASKS | {"tool_calls": [CALL | {"id": "x" * 50}]}, ANSWERS | {"tool_call_id": "x" * 50}], "is sent as"),
        ([HELLO | {"name": "a b"}], "is sent as a_b"),
    ],
    ids=["open call", "lone result", "two results", "blank", "surrogate", "NUL", "bad input", "id twice", "long id", "name"],
)
def test_a_broken_history_is_mended_and_it_is_said(history: list[dict[str, Any]], said: str) -> None:
    messages = read(*history)
    export = chat_writer.write(messages)
    assert validate_chat(export.payload) == []
    assert [repair for repair in export.repairs if said in repair.what]
    assert read(*history) == messages


def test_what_the_format_can_not_say_is_said_to_be_lost() -> None:
    cited = Block("text", text="x", sealed=True, citations=('{"source":{}}',))
    thought = Block("reasoning", text="hm", sealed=True, signature="c2ln")
    picture = Block("media", sealed=True, media_type="video/mp4", fields={"url": "https://example.org/v"})
    failed = Block(
        "tool_result", sealed=True, tool_call_id="a", status="error", parts='[{"kind":"media","media_type":"image/png"}]'
    )
    asks = Block("tool_call", text="{}", sealed=True, name="f", tool_call_id="a", parse="ok")
    messages = [
        Message("1", None, "r", "user", "complete", (picture,), 0, 0),
        Message("2", "1", "r", "assistant", "complete", (thought, asks, cited), 0, 0),
        Message("3", "2", "r", "tool", "complete", (failed,), 0, 0),
    ]
    export = chat_writer.write(messages)
    assert validate_chat(export.payload) == []
    lost = " | ".join(loss.what for loss in export.losses)
    for what in ("reasoning", "citations", "no form for such media (video/mp4)", "a tool failed", "text only", "behind a call"):
        assert what in lost


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ("7", "the document"), ("{}", "messages"), ('{"messages": 7}', "list"), ("[7]", "message 0"), ("[{}]", "role"),
        ('[{"role":"bard"}]', "bard"), ('[{"role":"user","content":7}]', "content"), ("[", "list"),
        ('[{"role":"user","content":[7]}]', "at 0"),
        ('[{"role":"assistant","tool_calls":[{}]}]', "function"),
    ],
)  # fmt: skip
def test_what_is_no_history_is_refused_with_its_place(document: str, place: str) -> None:
    with pytest.raises(FormatError, match=place):
        list(chat.read(document))


def test_a_client_of_the_api_accepts_what_is_streamed_out() -> None:
    completions: Any = pytest.importorskip("openai.lib.streaming.chat")
    chunk_type: Any = pytest.importorskip("openai.types.chat").ChatCompletionChunk
    thought = Block("reasoning", text="hm", sealed=True)
    messages = [*read(HELLO, HISTORIES["calls"][3], ANSWERS | {"tool_call_id": "call_2"})]
    messages[1:2] = [Message("m", None, "r", "assistant", "complete", (thought, *messages[1].blocks), 0, 0)]
    client = completions.ChatCompletionStreamState()
    for chunk in write_stream(messages):
        client.handle_chunk(chunk_type.model_validate(chunk))
    said = client.get_final_completion().choices[0]
    assert (said.message.content, said.finish_reason) == ("done", "tool_calls")
    assert [(c.id, c.function.name, c.function.arguments) for c in said.message.tool_calls] == [("call_2", "f", "{}")]
