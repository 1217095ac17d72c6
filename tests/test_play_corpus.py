"""Recorded streams through the real commands, and what a run tells of its recording, against an independent reading."""

from __future__ import annotations

import itertools
import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from projector.events import RunUsage
from projector.formats.anthropic.stream_reader import AnthropicStream
from tests.recordings import STREAMS, WHY_NONE, Part, chunks_of, is_prefix, read_parts
from tests.test_commands import Shell

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(not STREAMS, reason=WHY_NONE)
each = pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.name.partition(".chunks")[0])
THROUGH_THE_SHELL = (
    "code-execution-20250825.2.chunks.txt.gz",  # gzipped, server tools
    "combined-context-editing.1",  # thinking with a signature
    "web-search-tool.1",  # citations
    "programmatic-tool-calling.1",  # many responses in one stream
)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def shown_parts(messages: list[dict[str, Any]]) -> list[list[Part]]:
    """The blocks in the output of `show --json`; a program that reads it has nothing else."""
    return [[_shown_part(block) for block in message["blocks"]] for message in messages]


def _shown_part(block: dict[str, Any]) -> Part:
    is_whole_call = block["kind"] in ("tool_call", "server_tool_call") and block["sealed"]
    given = block.get("input", json.loads(block["text"]) if block["text"] and is_whole_call else None)
    payload = block["opaque"]["payload"] if "opaque" in block else None
    citations = [citation["source"] for citation in block.get("citations", [])]
    return Part(block["kind"], block["text"], block.get("signature", ""), given if is_whole_call else None, payload, citations)


def read_reasons(chunks: list[str]) -> list[str]:
    """Why each response stopped, where it says so."""
    said = [event["delta"]["stop_reason"] for event in map(json.loads, chunks) if event["type"] == "message_delta"]
    return [reason for reason in said if reason is not None]


def read_cumulative(chunks: list[str]) -> dict[str, dict[str, Any]]:
    """Each response's usage: a later word replaces an earlier one, what it leaves out stays."""
    usage: dict[str, dict[str, Any]] = {}
    current = ""
    for event in map(json.loads, chunks):
        if event["type"] == "message_start":
            current = event["message"]["id"]
        said = event["message"].get("usage") if event["type"] == "message_start" else event.get("usage")
        if said:
            usage[current] = usage.get(current, {}) | said
    return usage


@pytest.mark.heavy
def test_recordings_that_are_played_by_the_command_are_shown_as_they_were_recorded(shell: Shell) -> None:
    paths = [path for path in STREAMS if any(name in path.name for name in THROUGH_THE_SHELL)]
    assert len(paths) == len(THROUGH_THE_SHELL)
    for path in paths:
        assert "completed" in shell.play(path.name, path)
    runs = {run["conversation"]: run for run in shell.read("runs")["runs"]}
    for path in paths:
        chunks = chunks_of(path)
        shown = shell.read("show", path.name)
        assert shown_parts(shown["messages"]) == read_parts(chunks)
        assert {message["status"] for message in shown["messages"]} == {"complete"}
        assert shown["open_runs"] == shown["anomalies"] == []
        run = runs[path.name]
        assert (run["status"], run["messages"]) == ("committed", len(shown["messages"]))
        assert run["finish_reason"] == read_reasons(chunks)[-1]
        assert {name: json.loads(usage["raw"]) for name, usage in run["usage"].items()} == read_cumulative(chunks)
    assert shell.run("verify") == "everything is as it should be\n"


@pytest.mark.heavy
def test_a_recording_that_breaks_off_is_shown_as_far_as_it_came(shell: Shell, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    choose = random.Random(seed)
    for number, path in enumerate(choose.sample([path for path in STREAMS if len(chunks_of(path)) > 20], 3)):
        chunks = chunks_of(path)
        starts = [place for place, chunk in enumerate(chunks) if json.loads(chunk)["type"] == "message_start"]
        stops = [place for place, chunk in enumerate(chunks) if json.loads(chunk)["type"] == "message_stop"]
        cut = choose.randrange(max(place for place in starts if place < stops[-1]) + 1, stops[-1])
        torn = tmp_path / f"{number}.jsonl"
        torn.write_text("\n".join([*chunks[:cut], chunks[cut][: len(chunks[cut]) // 2]]), encoding="utf-8")
        assert "incomplete" in shell.play(path.name, torn, code=1)
        parts = shown_parts(shell.read("show", path.name)["messages"])
        said = [part.text for response in parts for part in response]
        assert is_prefix(parts, read_parts(chunks))
        assert "".join(said) == "".join(part.text for response in read_parts(chunks[:cut]) for part in response)
    assert {(run["status"], run["outcome"]) for run in shell.read("runs")["runs"]} == {("committed", "incomplete")}
    assert shell.run("verify") == "everything is as it should be\n"


@each
def test_usage_is_the_last_word_of_each_response_and_what_was_cached_lies_inside(path: Path) -> None:
    chunks = chunks_of(path)
    stream = make_stream()
    bodies = [body for chunk in chunks for body in stream.feed(chunk)]
    usage = {body.request_id: body for body in bodies if isinstance(body, RunUsage)}
    wanted = read_cumulative(chunks)
    assert usage.keys() == wanted.keys()
    for name, said in wanted.items():
        cached, written = said.get("cache_read_input_tokens"), said.get("cache_creation_input_tokens")
        counted = usage[name]
        assert json.loads(bytes(counted.raw)) == said
        assert (counted.output, counted.cached, counted.cache_write) == (said["output_tokens"], cached, written)
        assert counted.input == said["input_tokens"] + (cached or 0) + (written or 0)
    assert stream.end().finish_reason == read_reasons(chunks)[-1]


@each
def test_a_stream_is_incomplete_in_the_middle_of_each_response_and_nowhere_else(path: Path) -> None:
    stream = make_stream()
    is_inside = has_stopped = False
    assert stream.end().outcome == "incomplete"
    for chunk in chunks_of(path):
        kind = json.loads(chunk)["type"]
        is_inside = kind == "message_start" or (is_inside and kind != "message_stop")
        has_stopped = has_stopped or kind == "message_stop"
        stream.feed(chunk)
        assert stream.end().outcome == ("completed" if has_stopped and not is_inside else "incomplete")


def make_stream() -> AnthropicStream:
    numbers = itertools.count(1)
    return AnthropicStream("r", lambda: f"r.{next(numbers)}")
