"""AG-UI: recorded runs against an independent reading, cut anywhere, out and in again, and what no recording has."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from projector.events import RawEvent, RunStep
from projector.formats.agui.reader import read
from projector.formats.agui.stream_reader import AguiStream, write_stream
from projector.formats.agui.writer import write
from projector.formats.format import FormatError
from projector.json_text import text_of
from tests.shared_data import files, imported, needs_data, read_text
from tests.ui_readings import (
    BENCHMARK,
    agui_events,
    blocks_said,
    folded,
    grows_into,
    meta_of,
    play,
    read_agui,
    said_by,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from projector.events import Body
    from projector.message import Message


def name_of(path: Path) -> str:
    return f"{path.parent.name}-{path.name.partition('.events')[0]}"


each = pytest.mark.parametrize("path", BENCHMARK, ids=name_of)
with_snapshots = pytest.mark.parametrize(
    "path", [path for path in BENCHMARK if path.parent.name.startswith(("langgraph", "llamaindex"))], ids=name_of
)


def feed(*events: dict[str, Any] | str) -> tuple[list[Message], list[Body], AguiStream]:
    stream, bodies = play(AguiStream, events)
    assert isinstance(stream, AguiStream)
    return folded(bodies).all_messages(), bodies, stream


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind} | fields


def text(ref: str, *pieces: str, **fields: Any) -> list[dict[str, Any]]:
    """A whole text message."""
    said = [event("TEXT_MESSAGE_CONTENT", messageId=ref, delta=piece) for piece in pieces]
    return [event("TEXT_MESSAGE_START", messageId=ref, **fields), *said, event("TEXT_MESSAGE_END", messageId=ref)]


def call(ref: str, *pieces: str, **fields: Any) -> list[dict[str, Any]]:
    """A whole tool call."""
    given = [event("TOOL_CALL_ARGS", toolCallId=ref, delta=piece) for piece in pieces]
    start = event("TOOL_CALL_START", toolCallId=ref, toolCallName="f", **fields)
    return [start, *given, event("TOOL_CALL_END", toolCallId=ref)]


def result(ref: str, content: Any = "1", **fields: Any) -> dict[str, Any]:
    return event("TOOL_CALL_RESULT", messageId=f"t-{ref}", toolCallId=ref, content=content, role="tool", **fields)


def thought(ref: str, *pieces: str) -> list[dict[str, Any]]:
    said = [event("REASONING_MESSAGE_CONTENT", messageId=ref, delta=piece) for piece in pieces]
    start = event("REASONING_MESSAGE_START", messageId=ref, role="reasoning")
    return [start, *said, event("REASONING_MESSAGE_END", messageId=ref)]


RUN = event("RUN_STARTED", threadId="t", runId="a")
DONE = event("RUN_FINISHED", threadId="t", runId="a")


def shape(messages: Iterable[Message]) -> list[list[str]]:
    return [[message.role, *(f"{block.kind}:{block.text}" for block in message.blocks)] for message in messages]


# recordings


@needs_data
@each
def test_a_recorded_run_says_what_an_independent_reading_says(path: Path) -> None:
    events = agui_events(path)
    stream, bodies = play(AguiStream, events)
    messages = folded(bodies).all_messages()
    assert said_by(messages, stream.end().outcome) == read_agui(events)
    assert {message.status for message in messages} <= {"complete"}
    steps = [body for body in bodies if isinstance(body, RunStep)]
    assert len(steps) == 2 * sum(message.role == "assistant" for message in messages) or any(
        "TEXT_MESSAGE_START" in line for line in events
    )


@needs_data
@each
def test_a_recorded_run_agrees_with_the_answers_that_came_with_it(path: Path) -> None:
    events, meta = agui_events(path), meta_of(path)
    stream, bodies = play(AguiStream, events)
    messages = folded(bodies).all_messages()
    said = "".join(message.text for message in messages if message.role == "assistant")
    wanted = meta["response"]["final_text"]
    if path.parent.name.startswith("langgraph"):  # that client joined the text of its last snapshot to the deltas
        assert wanted in (said, said + last_snapshot_text(events))
    else:
        assert wanted == said
    if not path.parent.name.startswith(("langgraph", "llamaindex")):  # of whose calls that client saw none
        names = [block.name for message in messages for block in message.blocks if block.kind == "tool_call"]
        assert [tool["name"] for tool in meta["tools"].get("tool_calls_detail", ())] == names
    assert meta["events"]["total_events"] == len(events)
    if stream.end().outcome == "completed":  # that client took errors and empty streams for a success, now and then
        assert meta["success"]


def last_snapshot_text(events: list[str]) -> str:
    snapshots = [json.loads(line)["messages"] for line in events if '"MESSAGES_SNAPSHOT"' in line]
    said = [message.get("content") or "" for message in snapshots[-1] if message["role"] == "assistant"] if snapshots else []
    return str(said[-1]) if said else ""


@needs_data
@each
def test_a_recorded_run_cut_after_any_event_is_a_prefix_and_exports(path: Path) -> None:
    events = agui_events(path)
    whole = folded(play(AguiStream, events)[1]).all_messages()
    stream, bodies = play(AguiStream, [])
    state = folded(bodies)
    at = {0, len(events)} | set(range(0, len(events), max(1, len(events) // 60)))
    for number, line in enumerate(events, 1):
        grown = stream.feed(line)
        bodies += grown
        if number in at or len(events) < 60:
            state = folded(bodies)
            messages = state.all_messages()
            assert grows_into(messages, whole)
            check_order(write_stream(messages))
            write(messages)


@needs_data
@with_snapshots
def test_a_recorded_run_goes_out_as_the_messages_of_its_last_snapshot(path: Path) -> None:
    events = agui_events(path)
    snapshots = [json.loads(line)["messages"] for line in events if '"MESSAGES_SNAPSHOT"' in line]
    if not snapshots or name_of(path).startswith("langgraph-anthropic-multi_tool"):
        pytest.skip("it is empty, or its snapshot has another answer than it has streamed")
    written = write(folded(play(AguiStream, events)[1]).all_messages())
    assert (written.losses, written.repairs) == ((), ())
    wanted = [message for message in snapshots[-1] if message["role"] in ("assistant", "tool")]
    assert [without_ids(message) for message in written.payload] == [without_ids(message) for message in wanted]
    has_same_ids = path.parent.name.startswith("langgraph")
    if has_same_ids:
        ids = [message["id"] for message in wanted if message["role"] == "assistant"]
        assert [message["id"] for message in written.payload if message["role"] == "assistant"] == ids


def without_ids(message: dict[str, Any]) -> dict[str, Any]:
    """No id of a message; an absent content is as good as an empty one."""
    return {name: value for name, value in message.items() if name != "id" and value not in (None, "")}


@needs_data
@each
def test_a_recorded_run_written_as_a_stream_is_read_as_the_same_messages(path: Path) -> None:
    messages = folded(play(AguiStream, agui_events(path))[1]).all_messages()
    events = write_stream(messages)
    check_order(events)
    assert blocks_said(feed(*events)[0]) == blocks_said(messages)
    assert write_stream(messages) == events


@needs_data
@with_snapshots
def test_snapshots_of_a_recorded_run_go_in_and_out_unchanged(path: Path) -> None:
    for line in agui_events(path):
        if '"MESSAGES_SNAPSHOT"' in line:
            [history] = read(line)
            written = write(imported(history))
            assert written.payload == json.loads(line)["messages"]
            assert (written.losses, written.repairs, history.losses) == ((), (), ())


def conformance() -> dict[str, list[dict[str, Any]]]:
    found = files("ag-ui", "conformance/dart-events.json")
    cases: dict[str, list[dict[str, Any]]] = json.loads(read_text(found[0])) if found else {}
    return cases


@pytest.mark.parametrize("name", conformance())
def test_a_case_of_the_project_is_read_and_written(name: str) -> None:
    events = conformance()[name]
    messages, bodies, stream = feed(*events)
    assert stream.end().outcome == ("failed" if name == "error_handling" else "completed")
    sure = ("messages_snapshot", "thinking_events", "thinking_text_message_legacy", "messages_snapshot_activity_reasoning")
    if name not in sure:
        said = read_agui(map(json.dumps, events))
        assert said_by(messages, stream.end().outcome) == said
    unsaid = {"STATE_SNAPSHOT", "STATE_DELTA", "RAW", "CUSTOM", "ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA", "STEP_STARTED"}
    kept = [json.loads(text_of(body.event) or "") for body in bodies if isinstance(body, RawEvent)]
    assert [event for event in kept if event["type"] in unsaid] == [event for event in events if event["type"] in unsaid]
    whole = messages
    for cut in range(len(events)):
        messages, _, stream = feed(*events[:cut])
        assert grows_into(messages, whole)
        check_order(write_stream(messages))


@needs_data
def test_the_cases_of_the_project_say_what_they_are_named_after() -> None:
    cases = conformance()
    assert shape(feed(*cases["reasoning_events"])[0]) == [
        ["assistant", "reasoning:Analyzing the request... considering options."]
    ]
    [thinking] = feed(*cases["reasoning_events"])[0]
    assert thinking.blocks[0].signature == "ZW5jcnlwdGVkLXBheWxvYWQ="
    assert shape(feed(*cases["thinking_events"])[0]) == [
        ["assistant", "reasoning:Let me think about this... The user is asking about...", "text:Based on my analysis..."]
    ]
    assert shape(feed(*cases["thinking_text_message_legacy"])[0]) == [["assistant", "reasoning:Let me think..."]]
    assert shape(feed(*cases["concurrent_messages"])[0]) == [
        ["assistant", "text:First message"], ["system", "text:System message continues..."]
    ]  # fmt: skip
    assert shape(feed(*cases["messages_snapshot"])[0]) == [["assistant", "text:The weather in New York is 72°F and sunny."]]
    told = feed(*cases["messages_snapshot_activity_reasoning"])[0]
    assert shape(told) == [
        ["assistant", "provider:"],
        ["assistant", "reasoning:Considering the file types to skip.", "text:Indexing started."],
    ]
    wanted = cases["messages_snapshot_activity_reasoning"][1]["messages"][1:]
    assert write(told).payload == wanted
    assert [message.text for message in feed(*cases["multiple_runs"])[0]] == ["First run message.", "Second run message."]


@needs_data
def test_the_frames_of_the_project_are_read_and_its_malformed_ones_refused() -> None:
    [path] = files("ag-ui", "conformance/dart-sse_streams.txt")
    refused = 0
    for section in read_text(path).split("## ")[1:]:
        title, _, frames = section.partition("\n")
        data = [
            "\n".join(line[6:] for line in frame.split("\n") if line.startswith("data: ")) for frame in frames.split("\n\n")
        ]
        _, _, stream = feed()
        for frame in filter(None, data):
            try:
                stream.feed(frame)
            except FormatError:
                assert title == "Malformed Examples"
                refused += 1
    assert refused == 4


@needs_data
def test_updates_of_another_client_are_refused() -> None:
    for path in files("ag-ui", "dotnet-recordings/*.json*"):
        for update in [update for turn in json.loads(read_text(path)) for update in turn]:
            with pytest.raises(FormatError, match="type"):
                feed(update)


def check_order(events: list[dict[str, Any]]) -> None:
    """The rules of the client (facts/clients.md, section 3), written down once more."""
    running, opened, seen = False, set[tuple[str, str]](), set[str]()
    for given in events:
        kind = given["type"]
        assert None not in given.values()
        if kind in ("RUN_STARTED", "RUN_FINISHED"):
            assert running == (kind == "RUN_FINISHED")
            assert not opened
            running = not running
            continue
        assert running
        sort, _, phase = kind.rpartition("_")
        ref = given.get("toolCallId") or given.get("messageId") or given.get("entityId") or ""
        if phase == "START":
            assert (sort, ref) not in opened
            assert sort != "TEXT_MESSAGE" or ref not in seen
            opened.add((sort, ref))
            seen.add(ref)
        elif phase in ("CONTENT", "ARGS"):
            assert (sort, ref) in opened
        elif phase == "END":
            opened.remove((sort, ref))
        elif kind == "TOOL_CALL_RESULT":
            assert given["toolCallId"] in seen
    assert not running
