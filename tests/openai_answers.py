"""A small reading of recorded OpenAI formats, by their documentation, that owes nothing to the code under test."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from projector import Message


class Answer(NamedTuple):
    """What one response says: its text, its reasoning, and its calls as (name, id, input)."""

    text: str
    reasoning: str
    calls: list[tuple[str, str, Any]]


def read_chat(chunks: Iterable[str]) -> list[Answer]:
    """Fragments of calls join by index; a whole response has a message instead of deltas."""
    text, reasoning = "", ""
    part: Any
    calls: dict[Any, list[str]] = {}
    for chunk in map(json.loads, chunks):
        for choice in chunk.get("choices", ()):
            delta = choice.get("delta") or choice.get("message") or {"content": choice.get("text")}
            content = delta.get("content") or ""
            for part in content if isinstance(content, list) else [{"type": "text", "text": content}]:
                text += part.get("text", "")
                reasoning += "".join(thought["text"] for thought in part.get("thinking", ()))
            said = [detail.get("text", detail.get("summary", "")) for detail in delta.get("reasoning_details") or ()]
            reasoning += "".join(said) or delta.get("reasoning_content") or delta.get("reasoning") or ""
            for at, call in enumerate(delta.get("tool_calls") or ()):
                known = calls.setdefault(call.get("index", at), ["", "", ""])
                function = call["function"]
                known[0] = known[0] or function.get("name") or ""
                known[1] = known[1] or call.get("id") or ""
                known[2] += function.get("arguments") or ""
    made = [(name, call, parsed(given)) for name, call, given in calls.values()]
    return [Answer(text, reasoning, made)] if text or reasoning or made else []


def chat_usage(chunks: Iterable[str]) -> tuple[int, int] | None:
    """Input and output tokens: the last word counts."""
    found = None
    for chunk in map(json.loads, chunks):
        used = chunk.get("usage") or (chunk.get("x_groq") or {}).get("usage")
        if used:
            thought = (used.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0
            beside = used["total_tokens"] - used["prompt_tokens"] - used["completion_tokens"]
            found = (used["prompt_tokens"], used["completion_tokens"] + (thought if beside == thought else 0))
    return found


def read_responses(chunks: Iterable[str]) -> list[Answer]:
    """What the provider itself says at the end: the output of its terminal event, or else the ends of its items."""
    answers = []
    items: list[Any] = []
    for event in map(json.loads, chunks):
        if event.get("type") == "response.output_item.done":
            items.append(event["item"])
        response = event if event.get("object") == "response" else event.get("response", {})
        if event.get("type") in ("response.completed", "response.failed") or event.get("object") == "response":
            found = _answer(response.get("output") or items)
            answers += [found] if found != Answer("", "", []) else []
            items = []
    return answers + ([_answer(items)] if items else [])


def responses_usage(chunks: Iterable[str]) -> tuple[int, int] | None:
    """Input and output tokens of the last response that says."""
    found = None
    for event in map(json.loads, chunks):
        used = (event if event.get("object") == "response" else event.get("response", {})).get("usage")
        found = (used["input_tokens"], used["output_tokens"]) if used else found
    return found


def answer_of(message: Message) -> Answer:
    """The same of a message that Tailfold holds; tools of the server are no calls."""
    said = [block.text for block in message.blocks if block.kind in ("text", "refusal")]
    thought = [block.text for block in message.blocks if block.kind == "reasoning"]
    calls = [(block.name or "", block.tool_call_id or "", block.input) for block in message.blocks if block.kind == "tool_call"]
    return Answer("".join(said), "\n\n".join(thought), calls)


def parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _answer(items: Iterable[Any]) -> Answer:
    text, thoughts, calls = "", [], []
    for item in items:
        kind = item.get("type", "message")
        if kind == "message":
            text += "".join(part.get("text", part.get("refusal", "")) for part in item["content"])
        elif kind == "reasoning":
            thoughts += [part["text"] for part in (*item["summary"], *(item.get("content") or ()))]
        elif kind == "function_call":
            calls.append((item["name"], item["call_id"], parsed(item["arguments"])))
        elif kind == "custom_tool_call":
            calls.append((item["name"], item["call_id"], {"input": item["input"]}))
        elif kind in ("local_shell_call", "apply_patch_call") or (item.get("execution") == "client" and kind.endswith("_call")):
            given = {name: value for name, value in item.items() if name not in ("type", "id", "call_id", "status")}
            calls.append((kind.removesuffix("_call"), item["call_id"], given))
    return Answer(text, "\n\n".join(thoughts), calls)
