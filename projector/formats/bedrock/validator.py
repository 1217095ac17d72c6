"""Rules of Bedrock's Converse. Sources are sections of its public documentation; errors are quoted as it gives them."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any, Final

from projector.formats.bedrock.media import FORMATS
from projector.formats.shared.violations import apply, is_text, lone_surrogates

if TYPE_CHECKING:
    from collections.abc import Iterator

_ID: Final = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_DOCUMENT: Final = re.compile(r"(?!.*\s\s)[a-zA-Z0-9\s()\[\]-]{1,200}")
_BLOCKS: Final = (
    "text", "image", "document", "video", "audio", "toolUse", "toolResult", "guardContent", "cachePoint", "reasoningContent",
    "citationsContent", "searchResult", "toolAddition", "toolRemoval",
)  # fmt: skip
_RESULTS: Final = ("json", "text", "image", "document", "video", "searchResult")
_OF_ASSISTANTS: Final = ("toolUse", "reasoningContent", "citationsContent")
_SERVER: Final = "server_tool_use"


def validate_bedrock(payload: Any) -> list[str]:
    """What `{"system"?, "messages"}` violates; empty: Converse takes it."""
    return apply(has_shape, RULES, payload)


def has_shape(payload: Any) -> Iterator[str]:
    """*Converse, request body*: messages with a role and content, which is a list of blocks that are one thing each."""
    messages = payload.get("messages") if isinstance(payload, dict) else None
    if not isinstance(messages, list):
        yield "messages: a list of messages was expected"
        return
    for number, message in enumerate(messages):
        place = f"messages[{number}]"
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(content, list) or not isinstance(message.get("role"), str):
            yield f"{place}: an object with a role and a list of blocks was expected"
            continue
        for at, block in enumerate(content):
            yield from _shape_of(f"{place}.content[{at}]", block)


def _shape_of(place: str, block: Any) -> Iterator[str]:
    if not isinstance(block, dict) or len(block) != 1 or next(iter(block)) not in _BLOCKS:
        yield f"{place}: one of {', '.join(_BLOCKS)} was expected"
        return
    kind: str = next(iter(block))
    said: Any = block[kind]
    if kind == "text":
        if not isinstance(said, str):
            yield f"{place}.{kind}: text was expected"
    elif not isinstance(said, dict):
        yield f"{place}.{kind}: an object was expected"
    elif kind in ("toolUse", "toolResult") and not isinstance(said.get("toolUseId"), str):
        yield f"{place}.{kind}.toolUseId: text was expected"
    elif kind == "toolResult":
        content = said.get("content")
        if not isinstance(content, list) or not all(isinstance(part, dict) and len(part) == 1 for part in content):
            yield f"{place}.{kind}.content: a list of blocks was expected"


def has_messages(payload: Any) -> Iterator[str]:
    """*Errors*: "A conversation must start with a user message"."""
    messages = payload["messages"]
    if not messages:
        yield "messages: at least one message is required"
    for number, message in enumerate(messages):
        if message["role"] not in ("user", "assistant", "system"):
            yield f"messages[{number}].role: user or assistant was expected, not {message['role']!r}"
    if messages and messages[0]["role"] == "assistant":
        yield "messages[0]: a message of the user was expected"


def roles_alternate(payload: Any) -> Iterator[str]:
    """*Errors*: "A conversation must alternate between user and assistant roles"."""
    before = None
    for number, message in enumerate(payload["messages"]):
        if message["role"] == before:
            yield f"messages[{number}]: a second message of the {before} in succession"
        before = message["role"]


def has_content(payload: Any) -> Iterator[str]:
    """*Errors*: "The content field in the Message object is empty"."""
    for number, message in enumerate(payload["messages"]):
        if not message["content"]:
            yield f"messages[{number}].content: it is empty"


def text_is_not_blank(payload: Any) -> Iterator[str]:
    """*Errors*: "The text field in the ContentBlock object is blank"."""
    for place, _, kind, said in _blocks(payload):
        texts = [said] if kind == "text" else []
        texts += [part["text"] for part in said["content"] if "text" in part] if kind == "toolResult" else []
        for text in texts:
            if not is_text(text):
                yield f"{place}: text that is not blank was expected"
    system = payload.get("system")
    for at, block in enumerate(system if isinstance(system, list) else ()):
        if not isinstance(block, dict) or not is_text(block.get("text", "x")):
            yield f"system[{at}]: text that is not blank was expected"


def text_is_well_formed(payload: Any) -> Iterator[str]:
    """*Converse, request body*: a request is JSON in UTF-8."""
    yield from lone_surrogates(payload, "payload")


def blocks_fit_role(payload: Any) -> Iterator[str]:
    """*Message*: "You can only include images and documents if the role is user"; what a model says is the assistant's."""
    for place, role, kind, said in _blocks(payload):
        is_of_user = kind in ("document", "guardContent") or (kind == "toolResult" and "type" not in said)
        if (role == "assistant" and is_of_user) or (role == "user" and kind in _OF_ASSISTANTS):
            yield f"{place}: {kind} can't stand in a message of the {role}"


def calls_have_results(payload: Any) -> Iterator[str]:
    """*Errors*: "Expected toolResult blocks at messages.… for the following Ids"."""
    messages = payload["messages"]
    for number, message in enumerate(messages):
        given = _results(messages[number + 1]) if number + 1 < len(messages) else []
        for call in _calls(message):
            if call not in given:
                yield f"messages[{number}]: no result of {call!r} in the next message"


def results_have_calls(payload: Any) -> Iterator[str]:
    """*Errors*: "The number of toolResult blocks … exceeds the number of toolUse blocks of previous turn"."""
    before: list[str] = []
    for number, message in enumerate(payload["messages"]):
        results = _results(message)
        for result in dict.fromkeys(results):
            if results.count(result) > before.count(result):
                yield f"messages[{number}]: {results.count(result)} results of {result!r}, {before.count(result)} calls before"
        before = _calls(message)


def results_come_first(payload: Any) -> Iterator[str]:
    """*Tool use, Handling results* (Claude): "the tool_result blocks must come first in the content array"."""
    for number, message in enumerate(payload["messages"]):
        kinds = ["toolResult" in block for block in message["content"]]
        if message["role"] == "user" and kinds != sorted(kinds, reverse=True):
            yield f"messages[{number}]: something stands before a toolResult"


def ids_are_unique(payload: Any) -> Iterator[str]:
    """*Errors*: "… contains duplicate Ids"."""
    for number, message in enumerate(payload["messages"]):
        calls = _calls(message)
        for call in dict.fromkeys(calls):
            if calls.count(call) > 1:
                yield f"messages[{number}]: {calls.count(call)} calls with the id {call!r}"


def calls_are_named(payload: Any) -> Iterator[str]:
    """*ToolUseBlock*: `toolUseId` matches `[a-zA-Z0-9_.:-]+`, `name` `[a-zA-Z0-9_-]+`, both of up to 64 characters."""
    for place, _, kind, said in _blocks(payload):
        if kind in ("toolUse", "toolResult") and not _ID.fullmatch(said["toolUseId"]):
            yield f"{place}.toolUseId: letters, digits, _, ., : and - were expected, not {said['toolUseId']!r}"
        if kind == "toolUse" and not (isinstance(said.get("name"), str) and _NAME.fullmatch(said["name"])):
            yield f"{place}.name: up to 64 letters, digits, _ and - were expected, not {said.get('name')!r}"


def values_are_objects(payload: Any) -> Iterator[str]:
    """*Errors*: "The format of the value at toolUse.input is invalid. Provide a json object"; so it is with a result's."""
    for place, _, kind, said in _blocks(payload):
        if kind == "toolUse" and not isinstance(said.get("input"), dict):
            yield f"{place}.input: an object was expected"
        for part in said["content"] if kind == "toolResult" else ():
            if next(iter(part)) not in _RESULTS or not isinstance(part.get("json", {}), dict):
                yield f"{place}.content: one of {', '.join(_RESULTS)} was expected, and json is an object"


def reasoning_is_whole(payload: Any) -> Iterator[str]:
    """*ReasoningContentBlock*: `reasoningText` with its text, or `redactedContent` in bytes."""
    for place, _, kind, said in _blocks(payload):
        if kind != "reasoningContent":
            continue
        text, hidden = said.get("reasoningText"), said.get("redactedContent")
        is_whole = isinstance(text, dict) and isinstance(text.get("text"), str) and isinstance(text.get("signature", ""), str)
        if not is_whole and not _is_base64(hidden):
            yield f"{place}: the text of the reasoning, or bytes in base64, were expected"


def media_have_sources(payload: Any) -> Iterator[str]:
    """*ImageBlock; DocumentBlock; VideoBlock; AudioBlock*: a format that is known, and bytes, a place in S3, or text."""
    for place, kind, said in _media(payload):
        source = said.get("source")
        wanted = ("bytes", "s3Location", *(("text", "content") if kind == "document" else ()))
        given = {name: source[name] for name in wanted if source.get(name)} if isinstance(source, dict) else {}
        if len(given) != 1 or not _is_base64(given.get("bytes", "AA==")):
            yield f"{place}.source: one of {', '.join(wanted)} was expected"
        if said.get("format") not in FORMATS[kind] and not (kind == "document" and "format" not in said):
            yield f"{place}.format: one of {', '.join(FORMATS[kind])} was expected, not {said.get('format')!r}"


def documents_are_named(payload: Any) -> Iterator[str]:
    """*DocumentBlock, name*: letters, digits, single spaces, hyphens, parentheses, brackets; "duplicate document names"."""
    seen: set[str] = set()
    for place, kind, said in _media(payload):
        if kind != "document":
            continue
        name = said.get("name")
        if not isinstance(name, str) or not _DOCUMENT.fullmatch(name):
            yield f"{place}.name: letters, digits, single spaces, -, (, ), [ and ] were expected, not {name!r}"
        elif name in seen:
            yield f"{place}.name: {name!r} is there twice"
        else:
            seen.add(name)


def documents_have_text(payload: Any) -> Iterator[str]:
    """*Message, content*: "If you include a ContentBlock with a document field … you must also include … a text field"."""
    for number, message in enumerate(payload["messages"]):
        kinds = {kind for block in message["content"] for kind in block}
        if "document" in kinds and "text" not in kinds:
            yield f"messages[{number}]: text was expected beside the document"


def end_is_trimmed(payload: Any) -> Iterator[str]:
    """*Prefill Claude's response*: "final assistant content cannot end with trailing whitespace"."""
    content = [block for message in payload["messages"][-1:] if message["role"] == "assistant" for block in message["content"]]
    text = content[-1].get("text", "") if content else ""
    if text != text.rstrip():
        yield "messages: the last message of the assistant ends with white space"


RULES: Final = (
    has_messages, roles_alternate, has_content, text_is_not_blank, text_is_well_formed, blocks_fit_role, calls_have_results,
    results_have_calls, results_come_first, ids_are_unique, calls_are_named, values_are_objects, reasoning_is_whole,
    media_have_sources, documents_are_named, documents_have_text, end_is_trimmed,
)  # fmt: skip


def _blocks(payload: Any) -> Iterator[tuple[str, str, str, Any]]:
    """Each block: its place, the role of its message, what it is, and what it says."""
    for number, message in enumerate(payload["messages"]):
        for at, block in enumerate(message["content"]):
            [(kind, said)] = block.items()
            yield f"messages[{number}].content[{at}]", message["role"], kind, said


def _media(payload: Any) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Media of messages and of results, each with its place and its kind."""
    for place, _, kind, said in _blocks(payload):
        if kind in FORMATS:
            yield place, kind, said
        for at, part in enumerate(said["content"] if kind == "toolResult" else ()):
            for inner, media in part.items():
                if inner in FORMATS and isinstance(media, dict):
                    yield f"{place}.content[{at}]", inner, media


def _calls(message: dict[str, Any]) -> list[str]:
    """The ids of the calls that the client answers."""
    calls = [block["toolUse"] for block in message["content"] if "toolUse" in block]
    return [call["toolUseId"] for call in calls if call.get("type") != _SERVER]


def _results(message: dict[str, Any]) -> list[str]:
    if message["role"] != "user":
        return []
    return [block["toolResult"]["toolUseId"] for block in message["content"] if "toolResult" in block]


def _is_base64(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(base64.b64decode(value, validate=True))
    except ValueError:
        return False
