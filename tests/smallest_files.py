"""The smallest files of each format, in each shape they come in, and what they are."""

from __future__ import annotations

import json
import struct
import zlib
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from ledger.transfer.files import open_lines
from ledger.transfer.sources import read_file
from projector.formats.recordings.detection import Detected
from projector.formats.registry import NAMED

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.transfer.recorded import Recorded

USER: Final[dict[str, Any]] = {"role": "user", "content": "hi"}
ANSWER: Final[dict[str, Any]] = {"role": "assistant", "content": "hello"}
CALL: Final[dict[str, Any]] = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TEXT: Final[dict[str, Any]] = {"type": "text", "text": "hi"}
SAID: Final[dict[str, Any]] = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]}
SESSION: Final[dict[str, Any]] = {"type": "session", "version": 3, "id": "s", "timestamp": "2025-01-31T12:00:00Z", "cwd": "/"}
ENTRY: Final[dict[str, Any]] = {
    "type": "message", "id": "e1", "parentId": None, "timestamp": "2025-01-31T12:00:00Z",
    "message": {"role": "user", "content": "hi", "timestamp": 0},
}  # fmt: skip
RECORD: Final[dict[str, Any]] = {
    "parentUuid": None, "sessionId": "s", "type": "user", "uuid": "u", "timestamp": "2025-01-31T12:00:00Z", "message": USER,
}  # fmt: skip
NODE: Final[dict[str, Any]] = {
    "message_id": "m", "parent_id": None, "text": "hi", "role": "prompter", "created_date": "2023-02-06T00:00:00+00:00",
}  # fmt: skip

ASKED: Final[dict[str, Any]] = {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "hi"}]}
SPOKEN: Final[dict[str, Any]] = RECORD | {"message": {"role": "user", "parts": [{"text": "hi"}]}}
TREE: Final = {
    "id": "c",
    "mapping": {
        "n": {"id": "n", "message": {"author": {"role": "user"}, "content": {"content_type": "text", "parts": ["hi"]}}}
    },
}
ITEM: Final = {
    "timestamp": "2026-02-01T00:00:00Z",
    "type": "response_item",
    "payload": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
}
TALK: Final = {"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "hello"}]}
HISTORIES: Final[dict[str, list[Any]]] = {
    "chatgpt": [[TREE], TREE, TREE | {"current_node": None, "title": "t"}],
    "codex": [ITEM],
    "sharegpt": [[TALK], TALK, TALK["conversations"], {"system": "s", "tools": "[]", **TALK}],
    "agui": [
        {"threadId": "t", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "hi"}]},
        [{"id": "1", "role": "user", "content": "hi"}, {"id": "2", "role": "reasoning", "content": "hm"}],
        {"id": "2", "role": "reasoning", "content": "hm"},
        [{"id": "1", "role": "assistant", "content": "", "toolCalls": [CALL]}],
        [{"id": "1", "role": "tool", "content": "1", "toolCallId": "c"}],
        [{"id": "1", "role": "activity", "activityType": "PLAN", "content": {}}],
    ],
    "ai-sdk": [
        [{"id": "1", "role": "user", "parts": [TEXT]}],
        {"id": "c", "messages": [{"id": "1", "role": "user", "parts": [TEXT]}]},
        {"id": "1", "role": "user", "parts": [TEXT]},
    ],
    "anthropic": [
        {"system": "be brief", "messages": [USER]},
        {"model": "m", "max_tokens": 1, "system": [TEXT], "messages": [USER, ANSWER]},
        {"anthropic_version": "bedrock-2023-05-31", "messages": [USER]},
        {"messages": [USER, SAID]},
        [USER, SAID],
        [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}]}],
        {"id": "m", "type": "message", "role": "assistant", "content": [TEXT], "stop_reason": "end_turn", "usage": {}},
        [{"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}]}],
    ],
    "bedrock": [
        {"messages": [{"role": "user", "content": [{"text": "hi"}]}]},
        [{"role": "user", "content": [{"text": "hi"}]}],
        {"role": "user", "content": [{"text": "hi"}]},
        {"system": [{"text": "be brief"}], "messages": [{"role": "user", "content": [{"text": "hi"}]}]},
    ],
    "chat": [
        [USER],
        USER,
        [{"role": "system", "content": "be brief"}, USER, ANSWER],
        {"model": "m", "messages": [USER]},
        {"messages": [USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}]},
        [{"role": "tool", "tool_call_id": "c", "content": "1"}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://e.org/a.png"}}]}],
        [{"role": "user", "content": [TEXT]}],
    ],
    "claude-code": [
        RECORD,
        RECORD | {"parentUuid": "p", "type": "assistant", "message": ANSWER | {"content": [TEXT], "id": "m", "model": "m"}},
        {"type": "user", "message": USER, "session_id": "s", "parent_tool_use_id": None, "uuid": "u"},
    ],
    "cohere": [
        {"message": "hi", "chat_history": [{"role": "USER", "message": "a"}, {"role": "CHATBOT", "message": "b"}]},
        {"message": "hi", "chat_history": []},
        [{"role": "USER", "message": "a"}, {"role": "CHATBOT", "message": "b"}],
        {"messages": [USER, {"role": "assistant", "tool_plan": "I look it up.", "tool_calls": [CALL]}]},
        {"response_id": "r", "generation_id": "g", "text": "b", "finish_reason": "COMPLETE",
         "chat_history": [{"role": "USER", "message": "a"}, {"role": "CHATBOT", "message": "b"}]},
    ],
    "gemini-interactions": [
        {"model": "m", "input": "hi", "system_instruction": "be brief"},
        {"model": "m", "input": "hi", "previous_interaction_id": "v1_x"},
        [{"type": "user_input", "content": [TEXT]}, {"type": "model_output", "content": [TEXT]}],
        {"id": "v1_x", "object": "interaction", "status": "completed", "input": "hi",
         "steps": [{"type": "model_output", "content": [TEXT]}]},
    ],
    "ollama": [
        {"model": "m", "messages": [{"role": "user", "content": "hi", "images": ["iVBORw0KGgo="]}]},
        [{"role": "assistant", "content": ""}, {"role": "tool", "content": "1", "tool_name": "f"}],
    ],
    "gemini": [
        {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
        [{"role": "user", "parts": [{"text": "hi"}]}],
        {"role": "user", "parts": [{"text": "hi"}]},
        {"systemInstruction": {"parts": [{"text": "be"}]}, "contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
    ],
    "langchain": [
        [{"type": "human", "content": "hi"}],
        [{"type": "ai", "content": "hi", "tool_calls": []}],
        [{"type": "human", "data": {"content": "hi", "type": "human"}}],
        [{"lc": 1, "type": "constructor", "id": ["schema", "messages", "HumanMessage"], "kwargs": {"content": "hi"}}],
        {"messages": [{"type": "human", "content": "hi"}]},
    ],
    "pi": [ENTRY["message"] | {"role": "assistant", "content": [TEXT], "stopReason": "stop", "api": "a", "provider": "p",
                               "model": "m"}],
    "pydantic-ai": [
        [ASKED],
        ASKED,
        {"messages": [ASKED], "user": "u"},
        [{"parts": [], "instructions": "be brief", "kind": "request"}, {"parts": [], "kind": "response"}],
        [{"kind": "response", "parts": [{"part_kind": "text", "content": "hi"}], "model_name": "m"}],
    ],
    "qwen-code": [
        SPOKEN,
        SPOKEN | {"type": "assistant", "message": {"role": "model", "parts": [{"text": "hi"}]}, "parentUuid": "p"},
        SPOKEN | {"type": "tool_result", "message": {"role": "user", "parts": [{"functionResponse": {"name": "f"}}]}},
    ],
    "responses": [
        {"model": "m", "input": "hi"},
        {"model": "m", "input": [{"role": "user", "content": "hi"}]},
        [{"type": "message", "role": "user", "content": "hi"}],
        {"type": "message", "role": "user", "content": "hi"},
        [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
        [USER, {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}],
        [USER, {"type": "reasoning", "id": "rs", "summary": []}],
    ],
    "swe-agent": [{"environment": "e", "trajectory": [], "history": [{"role": "user", "content": "hi", "agent": "primary"}],
                   "info": {}}],
    "tau-bench": [{"task_id": 1, "reward": 1.0, "info": {}, "traj": [USER, ANSWER], "trial": 0}],
    "trees": [
        {"message_tree_id": "m", "tree_state": "ready", "prompt": NODE | {"replies": []}},
        NODE | {"message_tree_id": "m", "user_id": "u"},
    ],
}  # fmt: skip
"""Whole documents of one JSON value."""

LINES: Final[dict[str, list[list[Any]]]] = {
    "cohere": [[{"role": "USER", "message": "hi"}, {"role": "CHATBOT", "message": "b"}]],
    "gemini-interactions": [[{"model": "m", "input": "hi", "system_instruction": "be brief"}] * 2],
    "ollama": [[{"messages": [{"role": "user", "content": "hi", "images": ["iVBORw0KGgo="]}]}] * 2],
    "agui": [[{"id": "1", "role": "user", "content": "hi"}, {"id": "2", "role": "reasoning", "content": "hm"}]],
    "ai-sdk": [[{"id": "1", "role": "user", "parts": [TEXT]}, {"id": "2", "role": "assistant", "parts": [TEXT]}]],
    "anthropic": [[USER, SAID], [{"system": "s", "messages": [USER]}] * 2],
    "bedrock": [[{"role": "user", "content": [{"text": "hi"}]}] * 2],
    "chat": [[USER, ANSWER], [{"messages": [USER, ANSWER]}] * 2],
    "chatgpt": [[TREE] * 2],
    "codex": [[{"timestamp": "2026-02-01T00:00:00Z", "type": "session_meta", "payload": {"id": "s", "cwd": "/"}}, ITEM]],
    "sharegpt": [[TALK] * 2, TALK["conversations"]],
    "claude-code": [
        [{"type": "summary", "summary": "s", "leafUuid": "u"}, RECORD],
        [{"type": "file-history-snapshot", "messageId": "m", "snapshot": {}}, RECORD],
        [{"type": "system", "subtype": "init", "session_id": "s", "uuid": "i", "cwd": "/", "model": "m", "tools": []},
         {"type": "user", "message": USER, "session_id": "s", "parent_tool_use_id": None, "uuid": "u"}],
    ],
    "gemini": [[value] * 2 for value in (HISTORIES["gemini"][0], *HISTORIES["gemini"][1])],
    "langchain": [[{"type": "human", "content": "hi"}, {"type": "ai", "content": "hello"}]],
    "pi": [[SESSION, ENTRY]],
    "pydantic-ai": [[ASKED, {"kind": "response", "parts": [{"part_kind": "text", "content": "hello"}]}]],
    "qwen-code": [
        [RECORD | {"type": "system", "subtype": "session_source", "uuid": "n", "systemPayload": {}, "message": None},
         SPOKEN | {"parentUuid": "n"}],
    ],
    "responses": [[{"type": "message", "role": "user", "content": "hi"}] * 2, [{"input": "hi"}] * 2],
    "tau-bench": [[{"task_id": 1, "traj": [USER, ANSWER], "trial": 0}] * 2],
    "trees": [[{"message_tree_id": "m", "prompt": NODE | {"replies": []}}] * 2],
}  # fmt: skip
"""Documents of one JSON value a line."""

CHAT_END: Final = {"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
EVENTS: Final[dict[str, list[dict[str, Any]]]] = {
    "agui": [
        {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}, {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "hi"},
        {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"},
    ],
    "ai-sdk": [
        {"type": "start", "messageId": "m"}, {"type": "start-step"}, {"type": "text-start", "id": "1"},
        {"type": "text-delta", "id": "1", "delta": "hi"}, {"type": "text-end", "id": "1"}, {"type": "finish-step"},
        {"type": "finish"},
    ],
    "anthropic": [
        {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "content": [], "usage": {}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ],
    "bedrock": [
        {"messageStart": {"role": "assistant"}}, {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "hi"}}},
        {"contentBlockStop": {"contentBlockIndex": 0}}, {"messageStop": {"stopReason": "end_turn"}},
    ],
    "chat": [{"id": "x", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "hi"}}]}, CHAT_END],
    "cohere": [
        {"type": "message-start", "id": "x", "delta": {"message": {"role": "assistant"}}},
        {"type": "content-start", "index": 0, "delta": {"message": {"content": {"type": "text", "text": ""}}}},
        {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": "hi"}}}},
        {"type": "content-end", "index": 0},
        {"type": "message-end", "delta": {"finish_reason": "COMPLETE", "usage": {"tokens": {"input_tokens": 1}}}},
    ],
    "gemini-interactions": [
        {"event_type": "interaction.created", "interaction": {"id": "v1_x", "status": "in_progress", "object": "interaction"}},
        {"event_type": "step.start", "index": 0, "step": {"type": "model_output"}},
        {"event_type": "step.delta", "index": 0, "delta": {"type": "text", "text": "hi"}},
        {"event_type": "step.stop", "index": 0},
        {"event_type": "interaction.completed", "interaction": {"id": "v1_x", "status": "completed"}},
    ],
    "ollama": [
        {"model": "m", "created_at": "x", "message": {"role": "assistant", "content": "hi"}, "done": False},
        {"model": "m", "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop", "eval_count": 1},
    ],
    "gemini": [
        {"candidates": [{"content": {"role": "model", "parts": [{"text": "hi"}]}, "index": 0}]},
        {"candidates": [{"content": {"role": "model", "parts": [{"text": "."}]}, "finishReason": "STOP"}]},
    ],
    "responses": [
        {"type": "response.created", "response": {"id": "r", "object": "response", "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0,
         "item": {"id": "i", "type": "message", "role": "assistant", "status": "in_progress", "content": []}},
        {"type": "response.content_part.added", "item_id": "i", "output_index": 0, "content_index": 0,
         "part": {"type": "output_text", "text": "", "annotations": []}},
        {"type": "response.output_text.delta", "item_id": "i", "output_index": 0, "content_index": 0, "delta": "hi"},
        {"type": "response.output_text.done", "item_id": "i", "output_index": 0, "content_index": 0, "text": "hi"},
        {"type": "response.output_item.done", "output_index": 0,
         "item": {"id": "i", "type": "message", "role": "assistant", "status": "completed",
                  "content": [{"type": "output_text", "text": "hi", "annotations": []}]}},
        {"type": "response.completed", "response": {"id": "r", "object": "response", "status": "completed", "output": []}},
    ],
}  # fmt: skip
"""What is streamed, event by event."""

WHOLE: Final[dict[str, list[dict[str, Any]]]] = {
    "bedrock": [{"output": {"message": {"role": "assistant", "content": [{"text": "hi"}]}}, "stopReason": "end_turn"}],
    "chat": [{"id": "x", "object": "chat.completion",
              "choices": [{"index": 0, "message": ANSWER, "finish_reason": "stop"}]}],
    "cohere": [{"id": "x", "message": {"role": "assistant", "content": [TEXT]}, "finish_reason": "COMPLETE", "usage": {}},
               {"response_id": "r", "generation_id": "g", "text": "hi", "finish_reason": "COMPLETE"}],
    "gemini-interactions": [{"id": "v1_x", "object": "interaction", "status": "completed",
                             "steps": [{"type": "model_output", "content": [TEXT]}]},
                            {"id": "v1_x", "object": "interaction", "status": "completed", "outputs": [TEXT]}],
    "ollama": [{"model": "m", "message": {"role": "assistant", "content": "hi"}, "done": True, "done_reason": "stop"}],
    "gemini": [{"candidates": [{"content": {"role": "model", "parts": [{"text": "hi"}]}, "finishReason": "STOP"}]},
               {"promptFeedback": {"blockReason": "SAFETY"}}],
    "responses": [{"id": "r", "object": "response", "status": "completed",
                   "output": [{"id": "i", "type": "message", "role": "assistant", "status": "completed",
                               "content": [{"type": "output_text", "text": "hi", "annotations": []}]}]}],
}  # fmt: skip
"""Answers that came whole, which the adapters of the streams take."""

REQUESTS: Final[dict[str, tuple[str, Any]]] = {
    "anthropic": ("https://api.anthropic.com/v1/messages", {"model": "m", "max_tokens": 1, "messages": [USER]}),
    "bedrock": ("https://h/model/m/converse-stream", {"messages": [{"role": "user", "content": [{"text": "hi"}]}]}),
    "chat": ("https://api.openai.com/v1/chat/completions", {"model": "m", "messages": [USER]}),
    "cohere": ("https://api.cohere.com/v2/chat", {"model": "m", "messages": [USER]}),
    "gemini-interactions": ("https://g/v1beta/interactions?alt=sse", {"model": "m", "input": "hi"}),
    "ollama": ("http://localhost:11434/api/chat", {"model": "m", "messages": [USER]}),
    "gemini": ("https://g/v1beta/models/m:streamGenerateContent?alt=sse", HISTORIES["gemini"][0]),
    "responses": ("https://api.openai.com/v1/responses", {"model": "m", "input": "hi"}),
}
"""Where a request is sent, and what it says."""


def of_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def of_lines(values: list[Any]) -> bytes:
    return b"".join(of_json(value) + b"\n" for value in values)


def of_sse(values: list[dict[str, Any]], end: str = "\n") -> bytes:
    told = ": a comment\n\n" + "".join(f"event: {value.get('type', 'x')}\ndata: {json.dumps(value)}\n\n" for value in values)
    return told.replace("\n", end).encode()


def frame(value: dict[str, Any]) -> bytes:
    """One message of an AWS event stream."""
    [[name, body]] = value.items()
    headers = b"".join(
        bytes([len(key)]) + key + b"\7" + struct.pack(">H", len(text)) + text
        for key, text in ((b":event-type", name.encode()), (b":message-type", b"event"))
    )
    payload = of_json(body)
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload
    return message + struct.pack(">I", zlib.crc32(message))


def of_cassette(name: str) -> bytes:
    uri, request = REQUESTS[name]
    body = {"string": of_sse(EVENTS[name]).decode()}
    if name == "bedrock":
        body = {"string": json.dumps(WHOLE[name][0])}
    interaction = {
        "request": {"body": json.dumps(request), "headers": {}, "method": "POST", "uri": uri},
        "response": {"body": body, "headers": {"content-type": ["text/event-stream"]}, "status": {"code": 200}},
    }
    return b"interactions:\n- " + of_json(interaction) + b"\nversion: 1\n"


def smallest() -> list[tuple[str, str, bytes, Detected]]:
    """Name, ending, content and what it is, of the smallest files of every format in every shape."""
    found: list[tuple[str, str, bytes, Detected]] = []
    for name, documents in HISTORIES.items():
        is_it = Detected("history", name)
        found += [(f"{name}-{number}", "json", of_json(value), is_it) for number, value in enumerate(documents)]
        found += [(f"{name}-{number}-wide", "json", json.dumps(value, indent=2).encode(), is_it)
                  for number, value in enumerate(documents) if not NAMED[name].is_of_lines]  # fmt: skip
        found.append((f"{name}-behind-a-mark", "json", b"\xef\xbb\xbf\r\n " + of_json(documents[0]), is_it))
    for name, files in LINES.items():
        found += [(f"{name}-lines-{n}", "jsonl", of_lines(values), Detected("history", name)) for n, values in enumerate(files)]
        found.append((f"{name}-crlf", "jsonl", of_lines(files[0]).replace(b"\n", b"\r\n\r\n"), Detected("history", name)))
    for name, events in EVENTS.items():
        is_it = Detected("stream", name)
        found += [
            (f"{name}-events", "jsonl", of_lines(events), is_it), (f"{name}-list", "json", of_json(events), is_it),
            (f"{name}-sse", "txt", of_sse(events), is_it), (f"{name}-sse-crlf", "txt", of_sse(events, "\r\n"), is_it),
            (f"{name}-cut", "jsonl", of_lines(events[:2])[:-9], is_it),
        ]  # fmt: skip
    for name, answers in WHOLE.items():
        found += [(f"{name}-whole-{n}", "json", of_json(answer), Detected("stream", name)) for n, answer in enumerate(answers)]
    found.append(("bedrock-frames", "bin", b"".join(map(frame, EVENTS["bedrock"])), Detected("stream", "bedrock")))
    found += [(f"{name}-cassette", "yaml", of_cassette(name), Detected("history", name)) for name in REQUESTS]
    return found


SMALLEST: Final = smallest()


def read(path: Path, format_name: str = "auto") -> list[Recorded]:
    with ExitStack() as stack:
        return read_file(stack, stack.enter_context(open_lines(path)), path, format_name)
