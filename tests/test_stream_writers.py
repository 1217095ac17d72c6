"""AG-UI and AI SDK, event by event: what goes out is in order, and read back it says what the log says."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projector import events as ev
from projector import open_runs, transcript
from projector.events import to_event
from projector.formats.agui.stream_reader import AguiStream
from projector.formats.agui.stream_writer import AguiStreamWriter
from projector.formats.ai_sdk.stream_reader import AiSdkStream
from projector.formats.ai_sdk.stream_writer import AiSdkStreamWriter
from projector.formats.shared.history import HistoryMessage, message_bodies
from projector.json_text import is_json, raw
from stream import Event, NewEvent
from tests.corpus_parts import File
from tests.corpus_sources import take
from tests.recordings import STREAMS
from tests.shared_data import DATA, files, needs_data
from tests.test_agui import check_order
from tests.ui_readings import BENCHMARK, UI_STREAMS, folded, paths, read_agui

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from projector.message import Message

RECORDED: Final = [*BENCHMARK, *UI_STREAMS, *STREAMS, *files("vercel-ai", "openai/*.txt*", "google/*.txt*", "*bedrock*/*.txt*")]
Wire = list[dict[str, Any]]


def stamped(bodies: Iterable[ev.Body]) -> list[Event]:
    events = [to_event(body) for body in bodies]
    return [Event("s", seq, event.type, event.data, at=0) for seq, event in enumerate(events, 1)]


def agui(bodies: Iterable[ev.Body]) -> Wire:
    writer = AguiStreamWriter()
    return [event for body in stamped(bodies) for event in writer.feed(body)]


def ai_sdk(bodies: Iterable[ev.Body]) -> Wire:
    writer = AiSdkStreamWriter()
    return [chunk for body in stamped(bodies) for chunk in writer.feed(body)]


def read_back(make: Any, wire: Wire) -> list[Message]:
    numbers = itertools.count(1)
    stream = make("r", lambda: f"r.{next(numbers)}")
    return folded([body for event in wire for body in stream.feed(json.loads(json.dumps(event)))]).all_messages()


def kept(bodies: Iterable[ev.Body]) -> list[Message]:
    state = transcript.initial
    for event in stamped(bodies):
        state = transcript.fold(state, event)
    return state.all_messages()


def said(messages: Iterable[Message], *, only_answers: bool = False) -> dict[str, Any]:
    """Texts, reasoning with its signatures, calls and results, in their order."""
    found: dict[str, Any] = {"text": "", "reasoning": [], "calls": [], "results": []}
    for message in messages:
        for block in message.blocks:
            if only_answers and message.role not in ("assistant", "tool"):
                continue
            if block.kind in ("text", "refusal"):
                found["text"] += block.text
            elif block.kind == "reasoning" and (block.text or block.signature):
                found["reasoning"].append((block.text, block.signature))
            elif block.kind == "tool_call":
                text = block.input_text or block.text or "{}"
                found["calls"].append((block.tool_call_id, block.name, json.loads(text) if is_json(text) else text))
            elif block.kind == "tool_result":
                found["results"].append((block.tool_call_id, block.status == "ok"))
    found["results"].sort()
    return found


def conversation_of(path: Path) -> list[list[list[ev.Body]]]:
    file = File(DATA, path)
    take(file)
    return [conversation.runs for conversation in file.conversations]


@needs_data
@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_recorded_run_goes_out_event_by_event_and_says_the_same(path: Path) -> None:
    for runs in conversation_of(path):
        bodies = [body for run in runs for body in run]
        messages = kept(bodies)
        events = agui(bodies)
        check_order_of_runs(events)
        back, wanted = said(read_back(AguiStream, events)), said(messages)
        if "cerebras" in str(path):  # their arguments came behind the result, where our reader takes none
            calls = read_agui(map(json.dumps, events)).calls
            back["calls"] = [(ref, *call) for ref, call in calls.items()]
        assert back == wanted
        chunks = ai_sdk(bodies)
        check_chunks(chunks)
        assert said(read_back(AiSdkStream, chunks)) == said(messages, only_answers=True)


def check_order_of_runs(events: Wire) -> None:
    """The client's rules: an error may end a run in which something is open."""
    steps: set[str] = set()
    order: Wire = []
    for event in events:
        if event["type"] == "RUN_ERROR":
            open_texts = _open(order)
            order += open_texts
            order.append({"type": "RUN_FINISHED"})
            steps = set()
        elif event["type"] == "STEP_STARTED":
            assert event["stepName"] not in steps
            steps.add(event["stepName"])
        elif event["type"] == "STEP_FINISHED":
            steps.remove(event["stepName"])
        elif event["type"] not in ("CUSTOM", "RAW", "TOOL_CALL_RESULT"):
            assert event["type"] != "RUN_FINISHED" or not steps
            order.append({name: value for name, value in event.items() if value is not None})
    check_order(order)


def _open(order: Wire) -> Wire:
    opened: dict[tuple[str, str], None] = {}
    for event in order:
        sort, _, phase = event["type"].rpartition("_")
        ref = event.get("toolCallId") or event.get("messageId") or ""
        if phase == "START":
            opened[sort, ref] = None
        elif phase == "END":
            opened.pop((sort, ref), None)
    return [{"type": f"{sort}_END", "toolCallId" if sort == "TOOL_CALL" else "messageId": ref} for sort, ref in opened]


def check_chunks(chunks: Wire) -> None:
    """What the client of the AI SDK throws at: a part that nobody began, a call that it does not know."""
    started, calls, in_message = set[str](), set[str](), False
    for chunk in chunks:
        kind = chunk["type"]
        if kind == "start":
            assert not in_message
            in_message, started, calls = True, set(), set()
        elif kind in ("finish", "abort"):
            assert in_message
            in_message = False
        elif kind == "error":
            in_message = False
        elif kind in ("text-start", "reasoning-start"):
            assert in_message
            started.add(f"{kind.partition('-')[0]} {chunk['id']}")
        elif kind in ("text-delta", "text-end", "reasoning-delta", "reasoning-end"):
            assert f"{kind.partition('-')[0]} {chunk['id']}" in started
        elif kind == "finish-step":
            started = set()
        elif kind == "tool-input-start":
            calls.add(chunk["toolCallId"])
        elif "toolCallId" in chunk:
            assert chunk["toolCallId"] in calls


def bodies_of(path: list[Message]) -> list[list[ev.Body]]:
    """The runs of a path as they would have come, each message's text in pieces."""
    runs: list[list[ev.Body]] = []
    for run_id, group in itertools.groupby(path, key=lambda message: message.run_id):
        run: list[ev.Body] = [ev.RunStarted(run_id, None, "submit", run_id)]
        for message in group:
            draft = HistoryMessage(message.role, message.blocks)
            for body in message_bodies(run_id, message.id, draft):
                pieces = [*body.text] if isinstance(body, ev.BlockDelta) else []
                run += [ev.BlockDelta(body.message_id, body.block, piece) for piece in pieces] or [body]  # type: ignore[attr-defined]
        runs.append([*run, ev.RunFinished(run_id, "completed")])
    return runs


@settings(deadline=None)
@given(paths(), st.randoms(use_true_random=False))
@pytest.mark.heavy
def test_runs_that_interleave_say_all_that_each_says(path: list[Message], chance: Any) -> None:
    runs = bodies_of(path)
    waiting, order = [list(run) for run in runs], []
    while any(waiting):
        order.append(chance.choice([run for run in waiting if run]).pop(0))
    events, chunks = agui(order), ai_sdk(order)
    check_order_of_runs(events)
    check_chunks(chunks)
    wanted, back = said(kept(order)), said(read_back(AguiStream, events))
    assert sorted(back["text"]) == sorted(wanted["text"])
    thoughts = ["".join(text for text, _ in told["reasoning"]) for told in (back, wanted)]
    assert sorted(thoughts[0]) == sorted(thoughts[1])  # our reader begins anew where thoughts of two runs alternate
    for name in ("calls", "results"):
        assert sorted(back[name], key=repr) == sorted(wanted[name], key=repr)
    firsts = sorted(runs, key=lambda run: order.index(run[0]))
    answers = said(kept([body for run in firsts for body in run]), only_answers=True)
    known = {call for call, *_ in answers["calls"]}
    back = said(read_back(AiSdkStream, chunks))
    assert back["calls"] == answers["calls"]
    assert back["text"] == answers["text"]
    assert back["results"] == [result for result in answers["results"] if result[0] in known]


@settings(deadline=None)
@given(paths(), st.integers(0, 400))
def test_whoever_begins_in_the_middle_gets_what_there_was_and_what_comes(path: list[Message], cut: int) -> None:
    bodies = stamped(body for run in bodies_of(path) for body in run)
    cut %= len(bodies) + 1
    state = open_runs.initial
    for event in bodies[:cut]:
        state = open_runs.fold(state, event)
    writer, late = AiSdkStreamWriter(), AiSdkStreamWriter()
    whole = [chunk for event in bodies for chunk in writer.feed(event)]
    tail = late.resume(state.open.values()) + [chunk for event in bodies[cut:] for chunk in late.feed(event)]
    check_chunks(tail)
    ended = sum(event.type == "run.finished" for event in bodies[:cut])
    rest = bodies_of(path)[ended:]
    assert said(read_back(AiSdkStream, tail)) == said(read_back(AiSdkStream, ai_sdk(body for run in rest for body in run)))
    assert len(tail) <= len(whole) + 1
    follower = AguiStreamWriter()
    order = follower.resume(state.open.values()) + [event for body in bodies[cut:] for event in follower.feed(body)]
    check_order_of_runs(order)


def a_run(*said: ev.Body, outcome: ev.Outcome = "completed", error: str | None = None) -> list[ev.Body]:
    start = [ev.RunStarted("a", None, "submit", "a"), ev.RunStep("a", 1, "started"), ev.MessageStarted("a", "a.1", "assistant")]
    return [*start, *said, ev.RunFinished("a", outcome, error=raw(error))]


HALF: Final = (ev.BlockStarted("a.1", 0, "text"), ev.BlockDelta("a.1", 0, "hal"))


def kinds(wire: Wire) -> list[str]:
    return [event["type"] for event in wire]


def test_a_delta_goes_out_as_a_delta() -> None:
    for writer in (AguiStreamWriter(), AiSdkStreamWriter()):
        for body in a_run(*HALF)[:-1]:
            wire = writer.feed(body)
        assert [event["delta"] for event in wire] == ["hal"]


def test_what_the_end_of_a_call_says_counts_on_the_wire() -> None:
    said = a_run(
        ev.BlockStarted("a.1", 0, "tool_call", "get_", "c"),
        ev.BlockDelta("a.1", 0, '{"x"'),
        ev.BlockSealed("a.1", 0, parse="ok", text='{"x":1}', name="get_weather"),
        ev.MessageFinished("a.1", "complete"),
    )
    [whole] = [chunk for chunk in ai_sdk(said) if chunk["type"] == "tool-input-available"]
    assert (whole["toolName"], whole["input"]) == ("get_weather", {"x": 1})


def test_a_run_that_fails_ends_with_its_error_and_what_is_open_stays_open() -> None:
    failed = a_run(*HALF, outcome="failed", error='{"message":"no more"}')
    assert agui(failed)[-1] == {"type": "RUN_ERROR", "message": "no more"}
    assert "TEXT_MESSAGE_END" not in kinds(agui(failed))
    assert ai_sdk(failed)[-1] == {"type": "error", "errorText": "no more"}


def test_a_run_that_is_cancelled_or_recovered_is_over_on_the_wire() -> None:
    cancelled = a_run(*HALF, outcome="cancelled")
    assert agui(cancelled)[-1]["outcome"] == {"type": "cancelled"}
    assert ai_sdk(cancelled)[-1] == {"type": "abort"}
    recovered = [*a_run(*HALF)[:-1], ev.RunRecovered("a", "commit", 3)]
    assert kinds(agui(recovered))[-3:] == ["TEXT_MESSAGE_END", "STEP_FINISHED", "RUN_FINISHED"]
    assert ai_sdk(recovered)[-1] == {"type": "finish", "finishReason": "interrupted"}


def test_a_reset_takes_the_step_back() -> None:
    again = (
        ev.MessageStarted("a", "a.1", "assistant"),
        ev.BlockStarted("a.1", 0, "text"),
        ev.BlockDelta("a.1", 0, "whole"),
        ev.BlockSealed("a.1", 0),
    )
    run = a_run(*HALF, ev.RunStep("a", 1, "reset"), *again)
    assert said(read_back(AiSdkStream, ai_sdk(run))) == said(kept(run))
    events = agui(run)
    check_order_of_runs(events)
    [told] = [event for event in events if event["type"] == "CUSTOM"]
    assert told["value"] == {"messageIds": ["a.1"]}
    refs = [event["messageId"] for event in events if event["type"] == "TEXT_MESSAGE_START"]
    assert len(set(refs)) == 2


def test_a_person_who_is_asked_ends_the_run_of_agui_and_the_next_event_begins_another() -> None:
    run = a_run(ev.RunPaused("a", raw('[{"id":"i","reason":"r","tool_call_id":"c"}]')), *HALF)
    events = [event for event in agui(run) if event["type"].startswith("RUN_")]
    assert events[1]["outcome"] == {"type": "interrupt", "interrupts": [{"id": "i", "reason": "r", "toolCallId": "c"}]}
    ids = [event["type"] for event in events]
    assert ids == ["RUN_STARTED", "RUN_FINISHED"]


def test_what_nobody_knows_disturbs_nothing() -> None:
    odd = [
        NewEvent("nobody.knows", b"{}"), NewEvent("block.delta", b"[]"), NewEvent("custom", b'{"name":"n","value":1}'),
        to_event(ev.RawEvent("openai", raw('{"x":1}'))), to_event(ev.BlockDelta("none", 0, "x")),
        to_event(ev.MessageFinished("none", "complete")), to_event(ev.RunFinished("none", "completed")),
    ]  # fmt: skip
    run = [to_event(body) for body in a_run(*HALF)]
    mixed = [event for one in run for event in (one, *odd)]
    one, other = AguiStreamWriter(), AiSdkStreamWriter()
    events = [event for body in mixed for event in one.feed(body)]
    chunks = [chunk for body in mixed for chunk in other.feed(body)]
    check_order_of_runs(events)
    check_chunks(chunks)
    assert {"type": "CUSTOM", "name": "n", "value": 1} in events
    assert {"type": "RAW", "event": {"x": 1}, "source": "openai"} in events
    assert {"type": "data-n", "data": 1, "transient": True} in chunks


def test_half_a_character_waits_for_the_other_half() -> None:
    halves = (ev.BlockStarted("a.1", 0, "text"), ev.BlockDelta("a.1", 0, "\ud83d"), ev.BlockDelta("a.1", 0, "\ude00"))
    lone = (ev.BlockDelta("a.1", 0, "\ud83d"), ev.BlockSealed("a.1", 0))
    for wire in (agui(a_run(*halves, *lone)), ai_sdk(a_run(*halves, *lone))):
        assert [event["delta"] for event in wire if "delta" in event] == ["\U0001f600", "\ufffd"]


def test_nothing_of_a_run_is_left_when_it_has_ended() -> None:
    for writer in (AguiStreamWriter(), AiSdkStreamWriter()):
        fresh = repr({name: value for name, value in vars(type(writer)()).items() if name != "_thread"})
        for number in range(3):
            for body in stamped(a_run(*HALF)):
                writer.feed(Event("s", body.seq, body.type, body.data.replace(b'"a', f'"{number}a'.encode()), at=0))
        assert repr({name: value for name, value in vars(writer).items() if name != "_thread"}) == fresh
