"""Messages as the events in which the Responses API would have streamed them.

Only what an assistant says is streamed. What only another provider can read has no form here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from projector.formats.responses.parts import REASONING, SAID, groups, item_of
from projector.formats.shared.openai_items import EXTRA, PROVIDER
from projector.formats.shared.payloads import maker_of
from projector.json_text import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from projector.message import Block, Message

_PREFIXES: Final = {"message": "msg", "reasoning": "rs", "function_call": "fc"}
_STREAMED: Final = {
    "function_call": ("arguments", "function_call_arguments"),
    "custom_tool_call": ("input", "custom_tool_call_input"),
    "mcp_call": ("arguments", "mcp_call_arguments"),
    "code_interpreter_call": ("code", "code_interpreter_call_code"),
}
"""Where a call has the text that is streamed, and the name of the events."""


def write_stream(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The events of each message of an assistant, one response a message, numbered from 0.

    A message that is not complete breaks off, as it did.
    """
    streamed: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "assistant":
            events = (kind | {"sequence_number": number} for number, kind in enumerate(_events(message)))
            streamed += events
    return streamed


def _events(message: Message) -> Iterator[dict[str, Any]]:
    noted = {name: plain(text) for name, text in message.metadata_text.items() if name != EXTRA}
    status = noted.pop("status", "completed")
    response = {
        "id": message.provider_ref or f"resp_{message.id}",
        "object": "response",
        "created_at": message.created_at // 1000,
        "model": "",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    begun = response | noted | {"status": "in_progress", "output": []}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    output: list[dict[str, Any]] = []
    for group in groups([block for block in message.blocks if _has_form(block)]):
        index = len(output)
        item = item_of(group)
        if not item.get("id"):
            item["id"] = f"{_PREFIXES.get(item['type'], 'item')}_{message.id}_{index}"
        output.append(item)
        for event in _item_events(item, is_whole=all(block.sealed for block in group)):
            yield event | {"output_index": index} | ({} if "item" in event else {"item_id": item["id"]})
    if message.status == "complete":
        kind = status if status in ("completed", "incomplete", "failed") else "completed"
        yield {"type": f"response.{kind}", "response": response | noted | {"status": status, "output": output}}


def _has_form(block: Block) -> bool:
    if block.kind in (*SAID, "tool_call"):
        return True
    return maker_of(block) == PROVIDER or (block.kind in REASONING and not block.sealed)


def _item_events(item: dict[str, Any], *, is_whole: bool) -> Iterator[dict[str, Any]]:
    kind = item["type"]
    begun = dict(item) if kind not in ("message", "reasoning") else _without_parts(item)
    if kind in _STREAMED:
        begun[_STREAMED[kind][0]] = ""
    yield {"type": "response.output_item.added", "item": begun | {"status": "in_progress"}}
    if kind == "message":
        for index, part in enumerate(item["content"]):
            yield from (event | {"content_index": index} for event in _part_events(part, is_whole=is_whole))
    elif kind == "reasoning":
        yield from _reasoning_events(item, is_whole=is_whole)
    elif kind in _STREAMED:
        name, event = _STREAMED[kind]
        yield from _text_events(f"response.{event}", name, item.get(name) or "", is_whole=is_whole)
    if is_whole:
        yield {"type": "response.output_item.done", "item": item}


def _part_events(part: dict[str, Any], *, is_whole: bool) -> Iterator[dict[str, Any]]:
    name, event = ("refusal", "refusal") if part["type"] == "refusal" else ("text", "output_text")
    notes = part.get("annotations", [])
    yield {"type": "response.content_part.added", "part": part | {name: ""} | ({"annotations": []} if notes else {})}
    if part[name]:
        yield {"type": f"response.{event}.delta", "delta": part[name]} | ({"logprobs": []} if event == "output_text" else {})
    for number, note in enumerate(notes):
        yield {"type": "response.output_text.annotation.added", "annotation": note, "annotation_index": number}
    if is_whole:
        yield {"type": f"response.{event}.done", name: part[name]} | ({"logprobs": []} if event == "output_text" else {})
        yield {"type": "response.content_part.done", "part": part}


def _reasoning_events(item: dict[str, Any], *, is_whole: bool) -> Iterator[dict[str, Any]]:
    for index, part in enumerate(item["summary"]):
        at = {"summary_index": index}
        yield {"type": "response.reasoning_summary_part.added", "part": part | {"text": ""}} | at
        for event in _text_events("response.reasoning_summary_text", "text", part.get("text") or "", is_whole=is_whole):
            yield event | at
        if is_whole:
            yield {"type": "response.reasoning_summary_part.done", "part": part} | at
    for index, part in enumerate(item.get("content") or ()):
        for event in _text_events("response.reasoning_text", "text", part.get("text") or "", is_whole=is_whole):
            yield event | {"content_index": index}


def _text_events(event: str, name: str, text: str, *, is_whole: bool) -> Iterator[dict[str, Any]]:
    if text:
        yield {"type": f"{event}.delta", "delta": text}
    if is_whole:
        yield {"type": f"{event}.done", name: text}


def _without_parts(item: dict[str, Any]) -> dict[str, Any]:
    return (
        item | {"content": []}
        if item["type"] == "message"
        else item | {"summary": []} | ({"content": []} if "content" in item else {})
    )
