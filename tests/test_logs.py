"""Logs of agents and trees of messages: every file of the shared data, and what is broken, torn or malicious in one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from projector.formats.claude_code import reader as claude_code
from projector.formats.pi import reader as pi
from projector.formats.swe_agent import reader as swe_agent
from projector.formats.tau_bench import reader as tau_bench
from projector.formats.trees import reader as trees
from projector.tree import Node, resolve
from tests.shared_data import files, imported, needs_data, read_lines, read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from projector import Message
    from projector.formats.shared.history import History

    Read = Callable[[str], Iterator[History]]

READERS: Final[dict[str, Read]] = {
    "claude": claude_code.read,
    "pi": pi.read,
    "trees": trees.read,
    "swe-agent": swe_agent.read,
    "tau-bench": tau_bench.read,
}
CLAUDE: Final = files("claude-code-log", "**/*.jsonl")
STREAMS: Final = files("claude-code-stream-json", "*.jsonl")
TRAJECTORIES: Final = files("swe-agent", "*.traj", "*.traj.gz")
ABORTED: Final = ("aborted", "error")


def read(reader: Read, path: Path) -> list[tuple[History, list[Message]]]:
    return [(history, imported(history, f"{path.name} {number}")) for number, history in enumerate(reader(read_text(path)))]


def texts(messages: list[Message]) -> list[str]:
    return [message.text for message in messages if message.role != "tool"]


def inputs(messages: list[Message]) -> list[tuple[str | None, str | None, Any]]:
    blocks = [block for message in messages for block in message.blocks if block.kind == "tool_call"]
    return [(block.tool_call_id, block.name, block.input) for block in blocks]


def results(messages: list[Message]) -> list[tuple[str | None, str | None, str]]:
    blocks = [block for message in messages for block in message.blocks if block.kind == "tool_result"]
    return [(block.tool_call_id, block.status, said(json.loads(block.parts or "[]"))) for block in blocks]


def said(parts: list[dict[str, Any]]) -> str:
    return "".join(part.get("text", "") for part in parts)


def content_text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


def is_line(messages: list[Message]) -> bool:
    return [message.parent_id for message in messages] == [None, *(message.id for message in messages[:-1])]


def path_of(messages: list[Message]) -> list[str]:
    """The ids of the active path, by the tree of the ledger."""
    begun = {message.run_id: message.seq for message in reversed(messages)}
    return resolve([Node(message.id, message.parent_id, begun[message.run_id]) for message in messages])


@needs_data
@pytest.mark.parametrize("path", CLAUDE, ids=lambda path: path.name)
def test_a_session_of_claude_code_says_what_its_records_say(path: Path) -> None:
    records = [record for record in read_lines(path) if "message" in record]
    found = read(claude_code.read, path)
    messages = [message for _, own in found for message in own]
    blocks = [
        block
        for record in records
        for block in (record["message"]["content"] if isinstance(record["message"]["content"], list) else [])
    ]
    assert len(messages) == len(records)
    assert texts(messages) == [
        content_text(record["message"]["content"]) for record in records if not is_result(record["message"]["content"])
    ]
    assert inputs(messages) == [(block["id"], block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"]
    assert [(call, text) for call, _, text in results(messages)] == [
        (block["tool_use_id"], content_text(block["content"])) for block in blocks if block["type"] == "tool_result"
    ]
    wrong = [block.get("is_error", False) for block in blocks if block["type"] == "tool_result"]
    assert [status != "ok" for _, status, _ in results(messages)] == wrong
    thoughts = [block for message in messages for block in message.blocks if block.kind == "reasoning"]
    assert [(block.text, block.signature) for block in thoughts] == [
        (block["thinking"], block["signature"]) for block in blocks if block["type"] == "thinking"
    ]
    for message, record in zip(messages, records, strict=True):
        assert json.loads(message.metadata_text["uuid"]) == record["uuid"]
        told = [json.loads(form) for name, form in message.metadata_text.items() if name == "toolUseResult"]
        assert told in ([], [record.get("toolUseResult")])
        assert told or isinstance(record.get("toolUseResult", ""), str)
    if path.parent.name == "sessions":
        [(history, own)] = found
        assert is_line(own)
        assert history.name == records[0]["sessionId"]
        summaries = [record["summary"] for record in read_lines(path) if record["type"] == "summary"]
        assert history.title == (summaries[-1] if summaries else None)


def is_result(content: Any) -> bool:
    return isinstance(content, list) and any(block["type"] == "tool_result" for block in content)


@needs_data
def test_the_messages_of_claude_code_are_counted_as_published() -> None:
    counts = [(path.parent.name, len(history.drafts)) for path in CLAUDE for history in claude_code.read(read_text(path))]
    assert sum(count for _, count in counts) == 56
    assert sum(name == "sessions" for name, _ in counts) == 3


@needs_data
@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.name)
def test_the_output_of_the_cli_counts_each_response_once(path: Path) -> None:
    records = read_lines(path)
    [(history, messages)] = read(claude_code.read, path)
    assert is_line(messages)
    answers = [record["message"] for record in records if record["type"] == "assistant"]
    by_id: dict[str, list[Any]] = {}
    for answer in answers:
        by_id.setdefault(answer["id"], []).extend(answer["content"])
    own = [message for message in messages if message.role == "assistant"]
    assert [message.provider_ref for message in own] == list(by_id)
    for message, content in zip(own, by_id.values(), strict=True):
        assert message.text == "".join(block.get("text", "") for block in content)
        assert [(block.text, block.signature) for block in message.blocks if block.kind == "reasoning"] == [
            (block["thinking"], block["signature"]) for block in content if block["type"] == "thinking"
        ]
        calls = [(block["id"], block["name"], block["input"]) for block in content if block["type"] == "tool_use"]
        assert inputs([message]) == calls
    asked = [block for record in records if record["type"] == "user" for block in record["message"]["content"]]
    assert [(call, text) for call, _, text in results(messages)] == [
        (block["tool_use_id"], block["content"]) for block in asked
    ]
    [result] = [record for record in records if record["type"] == "result"]
    assert json.loads(history.metadata["result"]) == result
    last = history.drafts[-1]
    assert last.ends_run == {"success": "completed", "error_max_turns": "incomplete"}[result["subtype"]]
    assert last.finish_reason == (result["stop_reason"] if result["subtype"] == "success" else result["subtype"])
    used = [draft.usage for draft in history.drafts if draft.usage is not None]
    totals = result["usage"]
    wanted = totals["input_tokens"] + totals["cache_read_input_tokens"] + totals["cache_creation_input_tokens"]
    assert sum(usage.input or 0 for usage in used) == wanted
    if any(record["type"] == "stream_event" for record in records):  # only the deltas tell what was given in the end
        assert sum(usage.output or 0 for usage in used) == totals["output_tokens"]


@needs_data
def test_deltas_stand_in_where_the_output_of_the_cli_breaks_off() -> None:
    [path] = [path for path in STREAMS if "partial" in path.name]
    records = read_lines(path)
    lines = read_text(path).split("\n")
    for cut in range(1, len(records)):
        [history] = claude_code.read("\n".join(lines[:cut]))
        messages = imported(history)
        wanted = read_cut(records[:cut])
        assert [(block.kind, block.text) for message in messages for block in message.blocks if block.text] == wanted
        events = [record["event"]["type"] for record in records[:cut] if record["type"] == "stream_event"]
        is_inside = events.count("message_start") > events.count("message_stop")
        answers = [draft.status for draft in history.drafts if draft.role == "assistant"]
        assert answers[-1:] in ([], ["partial" if is_inside else "complete"])
        assert "partial" not in answers[:-1]


def read_cut(records: list[Any]) -> list[tuple[str, str]]:
    """What stands in the output so far: finished blocks, and the deltas of those that are not finished."""
    found: list[tuple[str, str]] = []
    finished = 0
    growing: dict[int, tuple[str, str]] = {}
    for record in records:
        event = record.get("event", {})
        if record["type"] == "assistant":
            found += [finished_block(block) for block in record["message"]["content"]]
            finished += 1
        elif event.get("type") == "message_start":
            finished, growing = 0, {}
        elif event.get("type") == "content_block_delta" and event["delta"]["type"] != "signature_delta":
            kind = {"thinking_delta": "reasoning", "text_delta": "text", "input_json_delta": "tool_call"}[
                event["delta"]["type"]
            ]
            [piece] = [value for name, value in event["delta"].items() if name in ("thinking", "text", "partial_json")]
            growing[event["index"]] = kind, growing.get(event["index"], ("", ""))[1] + piece
    found += [growing[index] for index in sorted(growing) if index >= finished]
    return [(kind, said) for kind, said in found if said]


def finished_block(block: dict[str, Any]) -> tuple[str, str]:
    kinds = {"thinking": "reasoning", "text": "text", "tool_use": "tool_call"}
    return kinds[block["type"]], block.get("thinking") or block.get("text") or ""


@needs_data
def test_a_session_of_pi_says_what_its_entries_say() -> None:
    [path] = files("pi-mono", "*.jsonl.gz")
    entries = read_lines(path)
    [(history, messages)] = read(pi.read, path)
    told = [entry["message"] for entry in entries if entry["type"] == "message"]
    assert len(history.drafts) == len(told) == 990
    kept = [message for message in told if message["role"] == "bashExecution" or message["content"]]
    assert len(messages) == len(kept)
    assert is_line(messages)
    for message, given in zip(messages, kept, strict=True):
        assert message.created_at == given["timestamp"]
        if given["role"] == "bashExecution":
            assert message.role == "user"
            assert given["output"] in message.text
            assert given["command"] in message.text
            continue
        assert message.role == {"toolResult": "tool"}.get(given["role"], given["role"])
        assert message.text == ("" if message.role == "tool" else content_text(given["content"]))
        assert message.status == ("partial" if given.get("stopReason") in ABORTED else "complete")
    calls = [
        block for given in kept if given["role"] == "assistant" for block in given["content"] if block["type"] == "toolCall"
    ]
    torn = [block for message in messages for block in message.blocks if block.kind == "tool_call" and not block.sealed]
    assert [block.text for block in torn] == [block["partialJson"] for block in calls if "partialJson" in block]
    assert inputs(messages) == [
        (call["id"], call["name"], None if "partialJson" in call else call["arguments"]) for call in calls
    ]
    assert [(call, status == "error", text) for call, status, text in results(messages)] == [
        (given["toolCallId"], given["isError"], content_text(given["content"]))
        for given in kept
        if given["role"] == "toolResult"
    ]
    ended = [draft for draft in history.drafts if draft.ends_run is not None]
    assert [draft.ends_run for draft in ended].count("cancelled") == 18
    assert [draft.error for draft in ended if draft.ends_run == "failed"] == [
        json.dumps({"message": given["errorMessage"]}, ensure_ascii=False, separators=(",", ":"))
        for given in told
        if given.get("stopReason") == "error"
    ]
    noted = [json.loads(message.metadata_text["compaction"]) for message in messages if "compaction" in message.metadata_text]
    assert [note for notes in noted for note in notes] == [entry for entry in entries if entry["type"] == "compaction"]
    used = [draft.usage.output for draft in history.drafts if draft.usage is not None]
    assert sum(count or 0 for count in used) == sum(given["usage"]["output"] for given in told if "usage" in given)


@needs_data
def test_one_message_of_pi_is_read_with_its_thinking() -> None:
    [path] = files("pi-mono", "*.json")
    given = json.loads(read_text(path))
    [(_, [message])] = read(pi.read, path)
    thoughts = [block for block in message.blocks if block.kind == "reasoning"]
    wanted = [
        (block["thinking"], block.get("thinkingSignature") or None) for block in given["content"] if block["type"] == "thinking"
    ]
    assert [(block.text, block.signature) for block in thoughts] == wanted


@needs_data
def test_nested_trees_keep_every_reply_and_follow_the_best() -> None:
    [path] = files("open-assistant", "*tree*.gz")
    lines = read_lines(path)
    found = read(trees.read, path)
    assert [history.name for history, _ in found] == [line["message_tree_id"] for line in lines]
    forks = leaves = count = 0
    for (_, messages), line in zip(found, lines, strict=True):
        wanted, best = flat(line["prompt"])
        by_ref = {message.provider_ref: message for message in messages}
        parents = {message.id: message.provider_ref for message in messages}
        assert {ref: (message.text, parents.get(message.parent_id or "")) for ref, message in by_ref.items()} == wanted
        children = [message.parent_id for message in messages if message.parent_id]
        forks += sum(children.count(parent) > 1 for parent in set(children))
        leaves += sum(message.id not in children for message in messages)
        count += len(messages)
        assert [parents[message_id] for message_id in path_of(messages)] == best
    assert (len(found), count, forks, leaves) == (67, 739, 162, 387)


def flat(prompt: dict[str, Any]) -> tuple[dict[str, tuple[str, str | None]], list[str]]:
    """Text and parent of each message of a tree, and the path of the best replies."""
    found: dict[str, tuple[str, str | None]] = {}
    waiting = [(prompt, None)]
    while waiting:
        message, parent = waiting.pop()
        found[message["message_id"]] = message["text"], parent
        waiting += [(reply, message["message_id"]) for reply in message["replies"]]
    best = []
    message = prompt
    while True:
        best.append(message["message_id"])
        replies = message["replies"]
        if not replies:
            return found, best
        ranked = [reply for reply in replies if reply.get("rank") is not None]
        message = min(ranked, key=lambda reply: reply["rank"]) if ranked else replies[-1]


@needs_data
def test_lists_with_parent_pointers_are_rebuilt_as_trees() -> None:
    [path] = files("open-assistant", "*seed*.gz")
    rows = json.loads(read_text(path))
    found = read(trees.read, path)
    roots = [row["user_message_id"] for row in rows if not row["parent_message_id"]]
    assert [history.name for history, _ in found] == roots
    told: dict[Any, Any] = {}
    for _, messages in found:
        refs = {message.id: message.provider_ref for message in messages}
        told |= {message.provider_ref: (message.text, refs.get(message.parent_id or "")) for message in messages}
    assert told == {row["user_message_id"]: (row["text"], row["parent_message_id"]) for row in rows}
    parents = [row["parent_message_id"] for row in rows if row["parent_message_id"]]
    assert (len(roots), len(rows), sum(parents.count(parent) > 1 for parent in set(parents))) == (74, 444, 77)


@needs_data
@pytest.mark.parametrize("path", TRAJECTORIES, ids=lambda path: path.name[:50])
def test_a_trajectory_of_swe_agent_says_what_its_history_says(path: Path) -> None:
    document = json.loads(read_text(path))
    [(history, messages)] = read(swe_agent.read, path)
    assert is_line(messages)
    assert [message.role for message in messages] == [given["role"] for given in document["history"]]
    assert texts(messages) == [given["content"] for given in document["history"] if given["role"] != "tool"]
    calls = [call for given in document["history"] for call in given.get("tool_calls") or []]
    assert inputs(messages) == [
        (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls
    ]
    assert [(call, text) for call, _, text in results(messages)] == [
        (given["tool_call_ids"][0], given["content"]) for given in document["history"] if given["role"] == "tool"
    ]
    steps = document.get("trajectory", [])
    states = [json.loads(message.metadata_text["state"]) for message in messages if "state" in message.metadata_text]
    outside = json.loads(history.metadata.get("steps", "[]"))
    assert len(states) + len(outside) == len(steps)
    assert states == [step["state"] for step in steps if step not in outside]
    info = document.get("info", {})
    assert {name: json.loads(text) for name, text in history.metadata.items() if name == "info"} == (
        {"info": info} if info else {}
    )
    assert history.drafts[-1].finish_reason == info.get("exit_status")


@needs_data
def test_trajectories_of_swe_agent_are_counted_as_published() -> None:
    documents = [json.loads(read_text(path)) for path in TRAJECTORIES]
    counts = [len(history.drafts) for path in TRAJECTORIES for history in swe_agent.read(read_text(path))]
    assert (len(counts), sum(counts), sum(len(document.get("trajectory", [])) for document in documents)) == (13, 293, 135)


@needs_data
def test_trajectories_of_tau_bench_say_what_their_messages_say() -> None:
    calls = count = conversations = 0
    for path in files("tau-bench", "*.jsonl", "*.jsonl.gz"):
        found = read(tau_bench.read, path)
        for (history, messages), record in zip(found, read_lines(path), strict=True):
            assert is_line(messages)
            conversations += 1
            count += len(messages)
            if "traj" not in record:
                shows = "\n".join(f"{message.role}: {shown(message)}" for message in messages)
                assert shows == record["messages_display"]
                continue
            given = record["traj"]
            assert history.name == f"{record['task_id']}.{record['trial']}"
            assert json.loads(history.metadata["info"]) == record["info"]
            assert [message.role for message in messages] == [message["role"] for message in given]
            assert texts(messages) == [message["content"] or "" for message in given if message["role"] != "tool"]
            made = [call for message in given for call in message.get("tool_calls") or []]
            assert inputs(messages) == [
                (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])) for call in made
            ]
            assert [(call, text) for call, _, text in results(messages)] == [
                (message["tool_call_id"], message["content"]) for message in given if message["role"] == "tool"
            ]
            calls += len(made)
    assert (conversations, count, calls) == (186, 5012, 745)


def shown(message: Message) -> str:
    if message.role == "tool":
        return results([message])[0][2]
    return "None" if message.blocks[0].kind == "provider" else message.text
