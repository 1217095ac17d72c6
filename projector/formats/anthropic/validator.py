"""Rules of Anthropic's Messages API. Sources are sections of its public documentation; errors are quoted as it gives them."""

from __future__ import annotations

import re
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from projector.formats.shared.violations import apply, is_text, lone_surrogates

if TYPE_CHECKING:
    from collections.abc import Iterator

_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_OF_ASSISTANTS: Final = ("thinking", "redacted_thinking", "tool_use", "compaction")
_OF_USERS: Final = ("image", "document", "tool_result", "search_result")
_SERVER_CALLS: Final = ("server_tool_use", "mcp_tool_use")
_IMAGES: Final = ("image/jpeg", "image/png", "image/gif", "image/webp")
_REASONING: Final = ("thinking", "redacted_thinking")


def validate_anthropic(payload: Any) -> list[str]:
    """What `{"system"?, "messages"}` violates; empty: the Messages API takes it."""
    return apply(has_shape, RULES, payload)


def has_shape(payload: Any) -> Iterator[str]:
    """*Messages API, body parameters*: messages with a role and content, which is text or a list of typed blocks."""
    messages = payload.get("messages") if isinstance(payload, dict) else None
    if not isinstance(messages, list):
        yield "messages: a list of messages was expected"
        return
    for number, message in enumerate(messages):
        place = f"messages[{number}]"
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            yield f"{place}: an object with a role was expected"
        elif isinstance(message.get("content"), list):
            for at, block in enumerate(message["content"]):
                if not isinstance(block, dict) or not isinstance(block.get("type"), str):
                    yield f"{place}.content[{at}]: a block with a type was expected"
                elif not all(isinstance(block.get(name), str | None) for name in ("id", "tool_use_id")):
                    yield f"{place}.content[{at}]: text was expected as id"
        elif not isinstance(message.get("content"), str):
            yield f"{place}.content: text or a list of blocks was expected"


def has_messages(payload: Any) -> Iterator[str]:
    """*Messages API, messages*: there is at least one, of the role `user` or `assistant`; `system` is a field of its own.

    Two of one role in succession are legal: "Consecutive `user` or `assistant` turns in your request will be combined".
    """
    if not payload["messages"]:
        yield "messages: at least one message is required"
    for number, message in enumerate(payload["messages"]):
        if message["role"] not in ("user", "assistant", "system"):
            yield f"messages[{number}].role: user or assistant was expected, not {message['role']!r}"


def instructions_have_their_place(payload: Any) -> Iterator[str]:
    """*Mid-conversation system messages*: behind the user, or an assistant that ends with a server tool.

    It is the last message, or the assistant follows it.
    """
    messages = payload["messages"]
    for number, message in enumerate(messages):
        if message["role"] != "system":
            continue
        before = messages[number - 1] if number else {"role": None, "content": []}
        last = (_content(before) or [{"type": ""}])[-1]
        if before["role"] != "user" and not (before["role"] == "assistant" and _is_of_server(last)):
            yield f"messages[{number}]: an instruction stands behind a message of the user"
        if number + 1 < len(messages) and messages[number + 1]["role"] != "assistant":
            yield f"messages[{number}]: behind an instruction the assistant was expected"


def has_content(payload: Any) -> Iterator[str]:
    """*Errors*: "all messages must have non-empty content except for the optional final assistant message"."""
    for number, message in enumerate(payload["messages"]):
        if not message["content"]:
            yield f"messages[{number}].content: it is empty"


def text_is_not_blank(payload: Any) -> Iterator[str]:
    """*Errors*: "text content blocks must contain non-whitespace text"."""
    for place, text in _texts(payload):
        if not is_text(text):
            yield f"{place}: text that is not blank was expected"


def text_is_well_formed(payload: Any) -> Iterator[str]:
    """*Client SDKs, content type*: a request is JSON in UTF-8; "The request body is not valid JSON: no low surrogate"."""
    yield from lone_surrogates(payload, "payload")


def blocks_fit_role(payload: Any) -> Iterator[str]:
    """*Messages API, content*: what a model says stands in its own messages, what it is given in the user's."""
    for place, message, block in _blocks(payload):
        wrong = _OF_USERS if message["role"] == "assistant" else _OF_ASSISTANTS + _SERVER_CALLS
        if block["type"] in wrong or (message["role"] == "user" and _is_server_result(block)):
            yield f"{place}: {block['type']} can't stand in a message of the {message['role']}"


def calls_have_results(payload: Any) -> Iterator[str]:
    """*Tool use, Handling results*: "Tool result blocks must immediately follow their corresponding tool use blocks"."""
    turns = _turns(payload)
    for at, (place, _, content) in enumerate(turns):
        given = _results(turns[at + 1][2]) if at + 1 < len(turns) else []
        for block in content:
            if block["type"] == "tool_use" and block.get("id") not in given:
                yield f"{place}: no result of {block.get('id')!r} in the next message"


def results_have_calls(payload: Any) -> Iterator[str]:
    """*Errors*: "Each `tool_result` block must have a corresponding `tool_use` block in the previous message"."""
    before: list[Any] = []
    for place, _, content in _turns(payload):
        for result in _results(content):
            if result not in before:
                yield f"{place}: a result of {result!r}, which the message before does not call"
        before = [block.get("id") for block in content if block["type"] == "tool_use"]


def calls_have_one_result(payload: Any) -> Iterator[str]:
    """*Errors*: "each tool_use must have a single result"."""
    for place, _, content in _turns(payload):
        results = _results(content)
        for result in dict.fromkeys(results):
            if results.count(result) > 1:
                yield f"{place}: {results.count(result)} results of {result!r}"


def results_come_first(payload: Any) -> Iterator[str]:
    """*Tool use, Handling results*: "the tool_result blocks must come first in the content array"."""
    for place, _, content in _turns(payload):
        kinds = [block["type"] == "tool_result" for block in content]
        if kinds != sorted(kinds, reverse=True):
            yield f"{place}: something stands before a tool_result"


def errors_say_something(payload: Any) -> Iterator[str]:
    """*Errors*: "tool_result: content cannot be empty if `is_error` is true"."""
    for place, _, block in _blocks(payload):
        if block["type"] == "tool_result" and block.get("is_error") is True and not block.get("content"):
            yield f"{place}.content: it is empty, and the result is an error"


def programs_get_results_only(payload: Any) -> Iterator[str]:
    """*Programmatic tool calling, Message formatting*: such calls are answered by tool_result blocks and nothing else."""
    waiting: set[Any] = set()
    finished: set[Any] = set()
    for place, role, content in _turns(payload):
        if role == "user" and waiting and any(block["type"] != "tool_result" for block in content):
            yield f"{place}: a program waits for results, and something else is said"
        finished |= {block["tool_use_id"] for block in content if _is_server_result(block)}
        waiting = {_caller(block) for block in content if block["type"] == "tool_use"} - finished - {None}


def ids_are_unique(payload: Any) -> Iterator[str]:
    """*Errors*: "`tool_use` ids must be unique"; *Tool use*: `id` is "a unique identifier for this tool use block"."""
    seen: set[Any] = set()
    for place, _, block in _blocks(payload):
        if block["type"] in ("tool_use", *_SERVER_CALLS):
            if block.get("id") in seen:
                yield f"{place}: the id {block.get('id')!r} is there twice"
            seen.add(block.get("id"))


def calls_are_named(payload: Any) -> Iterator[str]:
    """*Tool use, Tool definitions*: names match `^[a-zA-Z0-9_-]{1,64}$`; *Errors*: ids match `^[a-zA-Z0-9_-]+$`."""
    for place, _, block in _blocks(payload):
        if block["type"] != "tool_use":
            continue
        if not isinstance(block.get("id"), str) or not _ID.fullmatch(block["id"]):
            yield f"{place}.id: letters, digits, _ and - were expected, not {block.get('id')!r}"
        if not isinstance(block.get("name"), str) or not _NAME.fullmatch(block["name"]):
            yield f"{place}.name: up to 64 letters, digits, _ and - were expected, not {block.get('name')!r}"


def input_is_object(payload: Any) -> Iterator[str]:
    """*Messages API, tool_use*: `input` is an object ("Input should be a valid dictionary")."""
    for place, _, block in _blocks(payload):
        if block["type"] in ("tool_use", *_SERVER_CALLS) and not isinstance(block.get("input"), dict):
            yield f"{place}.input: an object was expected"


def thinking_is_signed(payload: Any) -> Iterator[str]:
    """*Extended thinking, Preserving thinking blocks*: they are given back whole, with `signature` or `data`."""
    for place, _, block in _blocks(payload):
        if block["type"] == "thinking" and not (isinstance(block.get("thinking"), str) and is_text(block.get("signature"))):
            yield f"{place}: thinking without its signature"
        if block["type"] == "redacted_thinking" and not is_text(block.get("data")):
            yield f"{place}: redacted thinking without its data"


def thinking_is_not_last(payload: Any) -> Iterator[str]:
    """*Errors*: "The final block in an assistant message cannot be `thinking`"."""
    for place, role, content in _turns(payload):
        if role == "assistant" and content and content[-1]["type"] in _REASONING:
            yield f"{place}: nothing follows the thinking at its end"


def server_calls_have_results(payload: Any) -> Iterator[str]:
    """*Errors*: "`web_search` tool use with id … was found without a corresponding `web_search_tool_result` block".

    *Handling stop reasons, pause_turn*: a response that paused is sent back as it is, its last call without a result.
    *Programmatic tool calling*: so is one whose program waits for tools of the client.
    """
    messages = payload["messages"]
    results = {block["tool_use_id"] for _, _, block in _blocks(payload) if _is_server_result(block)}
    last = max((number for number, message in enumerate(messages) if message["role"] == "assistant"), default=-1)
    waiting: set[Any] = set()
    if not any(block["type"] != "tool_result" for message in messages[last + 1 :] for block in _content(message, text=True)):
        waiting = {_caller(block) for block in _content(messages[last])} if messages else set()
    if last == len(messages) - 1:
        paused = takewhile(lambda block: block["type"] in _SERVER_CALLS, reversed(_content(messages[last]) if messages else []))
        waiting |= {block.get("id") for block in paused}
    for place, _, block in _blocks(payload):
        if block["type"] in _SERVER_CALLS and block.get("id") not in results | waiting:
            yield f"{place}: no result of {block.get('id')!r}"


def server_results_have_calls(payload: Any) -> Iterator[str]:
    """*Errors*: "Each `advisor_tool_result` block must have a corresponding `server_tool_use` block before it"."""
    calls: list[Any] = []
    for place, _, block in _blocks(payload):
        if block["type"] in _SERVER_CALLS:
            calls.append(block.get("id"))
        elif _is_server_result(block):
            if block["tool_use_id"] not in calls:
                yield f"{place}: a result of {block['tool_use_id']!r}, which nothing before it calls"
            else:
                calls.remove(block["tool_use_id"])


def media_have_sources(payload: Any) -> Iterator[str]:
    """*Vision, Base64-encoded image; PDF support; Files*: a source of base64, a URL, a file, or (documents) text."""
    for place, _, block in _blocks(payload, inside_results=True):
        if block["type"] not in ("image", "document"):
            continue
        source = block.get("source")
        kind = source.get("type") if isinstance(source, dict) else None
        wanted = {"base64": "data", "url": "url", "file": "file_id"} | ({} if block["type"] == "image" else _TEXTS)
        if not isinstance(source, dict) or kind not in wanted or not source.get(wanted[kind]):
            yield f"{place}.source: {' or '.join(wanted)} was expected"
        elif kind == "base64" and block["type"] == "image" and source.get("media_type") not in _IMAGES:
            yield f"{place}.source.media_type: an image of {', '.join(_IMAGES)} was expected"


def end_is_trimmed(payload: Any) -> Iterator[str]:
    """*Prefill Claude's response*: "final assistant content cannot end with trailing whitespace"."""
    if not payload["messages"] or payload["messages"][-1]["role"] != "assistant":
        return
    content = payload["messages"][-1]["content"]
    block = content[-1] if content and not isinstance(content, str) else {"type": "text", "text": content}
    if block["type"] == "text" and isinstance(block.get("text"), str) and block["text"] != block["text"].rstrip():
        yield "messages: the last message of the assistant ends with white space"


RULES: Final = (
    has_messages, instructions_have_their_place, has_content, text_is_not_blank, text_is_well_formed,
    blocks_fit_role, calls_have_results, results_have_calls, calls_have_one_result, results_come_first,
    errors_say_something, programs_get_results_only, ids_are_unique, calls_are_named, input_is_object,
    thinking_is_signed, thinking_is_not_last, server_calls_have_results, server_results_have_calls,
    media_have_sources, end_is_trimmed,
)  # fmt: skip
_TEXTS: Final = {"text": "data", "content": "content"}


def _content(message: Any, *, text: bool = False) -> list[dict[str, Any]]:
    """The blocks of a message; those of plain text only where they are asked for."""
    if isinstance(message["content"], list):
        return message["content"]
    return [{"type": "text", "text": message["content"]}] if text else []


def _caller(block: dict[str, Any]) -> str | None:
    """The server tool whose program makes a call."""
    found = block["caller"].get("tool_id") if isinstance(block.get("caller"), dict) else None
    return found if isinstance(found, str) else None


def _blocks(payload: Any, *, inside_results: bool = False) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Each block with its place and its message."""
    for number, message in enumerate(payload["messages"]):
        for at, block in enumerate(_content(message)):
            place = f"messages[{number}].content[{at}]"
            yield place, message, block
            inner = block.get("content") if inside_results and block["type"] == "tool_result" else None
            for within, part in enumerate(inner if isinstance(inner, list) else ()):
                if isinstance(part, dict) and "type" in part:
                    yield f"{place}.content[{within}]", message, part


def _texts(payload: Any) -> Iterator[tuple[str, Any]]:
    system = payload.get("system")
    for at, block in enumerate(system if isinstance(system, list) else ()):
        yield f"system[{at}]", block.get("text") if isinstance(block, dict) else None
    for number, message in enumerate(payload["messages"]):
        if isinstance(message["content"], str) and message["content"]:
            yield f"messages[{number}].content", message["content"]
    for place, _, block in _blocks(payload, inside_results=True):
        if block["type"] == "text":
            yield place, block.get("text")


def _turns(payload: Any) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """Consecutive messages of one role, as they are combined: the place of the first, the role, all blocks."""
    turns: list[tuple[str, str, list[dict[str, Any]]]] = []
    for number, message in enumerate(payload["messages"]):
        if turns and turns[-1][1] == message["role"]:
            turns[-1][2].extend(_content(message, text=True))
        else:
            turns.append((f"messages[{number}]", message["role"], list(_content(message, text=True))))
    return turns


def _results(content: list[dict[str, Any]]) -> list[Any]:
    return [block.get("tool_use_id") for block in content if block["type"] == "tool_result"]


def _is_of_server(block: dict[str, Any]) -> bool:
    return block["type"] in _SERVER_CALLS or _is_server_result(block)


def _is_server_result(block: dict[str, Any]) -> bool:
    return block["type"] != "tool_result" and block["type"].endswith("tool_result") and "tool_use_id" in block
