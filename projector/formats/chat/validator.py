"""Rules of OpenAI's Chat Completions messages. Sources are sections of its public documentation; errors are quoted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from projector.formats.shared.violations import apply, is_text, lone_surrogates, nuls

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_PARTICIPANT: Final = re.compile(r"[^\s<|\\/>]+")
_PARTS: Final = {
    "developer": ("text",),
    "system": ("text",),
    "user": ("text", "image_url", "input_audio", "file"),
    "assistant": ("text", "refusal"),
    "tool": ("text",),
}


def validate_chat(payload: Any) -> list[str]:
    """What messages, or an object with `messages`, violate; empty: Chat Completions takes them."""
    return apply(has_shape, RULES, payload["messages"] if isinstance(payload, dict) and "messages" in payload else payload)


def has_shape(messages: Any) -> Iterator[str]:
    """*Chat Completions, messages*: objects with a role; content is text, null or a list of typed parts."""
    if not isinstance(messages, list):
        yield "messages: a list of messages was expected"
        return
    for number, message in enumerate(messages):
        place = f"messages[{number}]"
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            yield f"{place}: an object with a role was expected"
            continue
        content = message.get("content")
        if isinstance(content, list):
            for at, part in enumerate(content):
                if not isinstance(part, dict) or not isinstance(part.get("type"), str):
                    yield f"{place}.content[{at}]: a part with a type was expected"
        elif content is not None and not isinstance(content, str):
            yield f"{place}.content: text or a list of parts was expected"
        calls = message.get("tool_calls")
        if calls is not None and not (isinstance(calls, list) and all(isinstance(call, dict) for call in calls)):
            yield f"{place}.tool_calls: a list of calls was expected"


def has_messages(messages: Any) -> Iterator[str]:
    """*Chat Completions, messages*: at least one; roles developer, system, user, assistant, tool."""
    if not messages:
        yield "messages: at least one message is required"
    for number, message in enumerate(messages):
        if message.get("role") not in _PARTS:
            yield f"messages[{number}].role: {', '.join(_PARTS)} was expected, not {message.get('role')!r}"


def has_content(messages: Any) -> Iterator[str]:
    """*Chat Completions, messages, content*: required; of the assistant "unless `tool_calls` … is specified"."""
    for number, message in enumerate(messages):
        says_else = [name for name in ("tool_calls", "refusal", "audio", "function_call") if message.get(name)]
        if not message.get("content") and not (message.get("role") == "assistant" and says_else):
            if message.get("role") == "tool" and message.get("content") == "":  # a tool may have nothing to say
                continue
            yield f"messages[{number}].content: it is missing"


def text_is_not_blank(messages: Any) -> Iterator[str]:
    """EVENTS, rule 5. Not demanded by OpenAI itself; servers that speak the format for other models refuse blank text."""
    for number, message in enumerate(messages):
        content = message.get("content")
        blank_text = isinstance(content, str) and content and not is_text(content) and message.get("role") != "tool"
        blank_part = isinstance(content, list) and any(
            part["type"] == "text" and not is_text(part.get("text")) for part in content
        )
        if blank_text or blank_part:
            yield f"messages[{number}].content: text that is not blank was expected"


def text_is_well_formed(messages: Any) -> Iterator[str]:
    """*Error codes*: a body is JSON in UTF-8 ("We could not parse the JSON body of your request"); EVENTS, rule 4: no NUL."""
    yield from lone_surrogates(messages, "messages")
    yield from nuls(messages, "messages")


def parts_fit_role(messages: Any) -> Iterator[str]:
    """*Chat Completions, messages, content*: which parts a message of each role may have."""
    for number, message in enumerate(messages):
        allowed = _PARTS.get(message.get("role"), ())
        for at, part in enumerate(message["content"] if isinstance(message.get("content"), list) else ()):
            if part["type"] not in allowed:
                yield f"messages[{number}].content[{at}]: {part['type']} can't stand in a message of the {message.get('role')}"


def calls_are_whole(messages: Any) -> Iterator[str]:
    """*Chat Completions, tool_calls*: not empty; `id`, `type`, `function` with a name and arguments, which are text.

    *Function calling*: a name has letters, digits, underscores and dashes, "with a maximum length of 64".
    """
    for number, message in enumerate(messages):
        if message.get("tool_calls") == []:
            yield f"messages[{number}].tool_calls: it is too short, at least one was expected"
        for at, call in enumerate(message.get("tool_calls") or ()):
            place = f"messages[{number}].tool_calls[{at}]"
            kind = call.get("type")
            named = call.get(kind) if kind in ("function", "custom") else None
            said = named.get("arguments" if kind == "function" else "input") if isinstance(named, dict) else None
            if not isinstance(call.get("id"), str) or not call["id"]:
                yield f"{place}.id: the id of the call was expected"
            if not isinstance(named, dict) or not isinstance(said, str):
                yield f"{place}: a function with its arguments as text was expected"
            elif not isinstance(named.get("name"), str) or not _NAME.fullmatch(named["name"]):
                yield f"{place}: up to 64 letters, digits, _ and - were expected as name, not {named.get('name')!r}"


def calls_have_results(messages: Any) -> Iterator[str]:
    """*Errors*: "'tool_calls' must be followed by tool messages responding to each 'tool_call_id'"."""
    for number, message in enumerate(messages):
        given = []
        for following in messages[number + 1 :]:
            if following.get("role") != "tool":
                break
            given.append(following.get("tool_call_id"))
        for call in message.get("tool_calls") or ():
            if call.get("id") not in given:
                yield f"messages[{number}]: no tool message directly behind it answers {call.get('id')!r}"


def results_have_calls(messages: Any) -> Iterator[str]:
    """*Errors*: "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'"."""
    calls: list[Any] = []
    for number, message in enumerate(messages):
        if message.get("role") != "tool":
            calls = [call.get("id") for call in (message.get("tool_calls") or ())]
        elif message.get("tool_call_id") not in calls:
            yield f"messages[{number}]: {message.get('tool_call_id')!r} is no open call of the message before"
        else:
            calls.remove(message["tool_call_id"])  # a second answer has no call any more


def only_assistants_call(messages: Any) -> Iterator[str]:
    """*Chat Completions, messages*: `tool_calls` and `refusal` belong to the assistant, `tool_call_id` to a tool."""
    for number, message in enumerate(messages):
        names = ("tool_calls", "refusal", "audio", "function_call")
        for name in names if message.get("role") != "assistant" else ():
            if message.get(name) is not None:
                yield f"messages[{number}].{name}: only an assistant has it"
        if "tool_call_id" in message and message.get("role") != "tool":
            yield f"messages[{number}].tool_call_id: only a tool has it"


def ids_are_unique(messages: Any) -> Iterator[str]:
    """*Function calling*: each call "has an `id`, used later to submit the function result"; twice, it names two calls."""
    seen: set[str] = set()
    for number, message in enumerate(messages):
        for call in message.get("tool_calls") or ():
            if str(call.get("id")) in seen:
                yield f"messages[{number}]: the id {call.get('id')!r} is there twice"
            seen.add(str(call.get("id")))


def participants_are_named(messages: Any) -> Iterator[str]:
    r"""*Errors*: a message's `name` "does not match pattern. Expected a string that matches '^[^\s<|\\/>]+$'"."""
    for number, message in enumerate(messages):
        name = message.get("name")
        if name is not None and (not isinstance(name, str) or not _PARTICIPANT.fullmatch(name)):
            yield f"messages[{number}].name: {name!r} has a character that no name may have"


def media_have_sources(messages: Any) -> Iterator[str]:
    """*Images and vision; Audio; File inputs*: a URL or data URL, base64 with its format, file data or the id of a file."""
    wanted = {"image_url": ("url",), "input_audio": ("data",), "file": ("file_data", "file_id")}
    for number, message in enumerate(messages):
        for at, part in enumerate(message["content"] if isinstance(message.get("content"), list) else ()):
            names = wanted.get(part["type"])
            inner = part.get(part["type"])
            if names and not (isinstance(inner, dict) and any(is_text(inner.get(name)) for name in names)):
                yield f"messages[{number}].content[{at}]: {' or '.join(names)} was expected"


RULES: Final = (
    has_messages, has_content, text_is_not_blank, text_is_well_formed, parts_fit_role, calls_are_whole,
    calls_have_results, results_have_calls, only_assistants_call, ids_are_unique, participants_are_named,
    media_have_sources,
)  # fmt: skip
