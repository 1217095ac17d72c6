"""Which format a file has, told by the keys of what stands first in it (`--format auto`)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from projector.formats.format import FormatError
from projector.formats.shared.aws_frames import exception_of
from projector.formats.shared.fields import Fields, items_of, shown
from projector.json_text import split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from projector.json_text import JsonText

TAILFOLD: Final = "tailfold"
_ANTHROPIC_EVENTS: Final = re.compile(r"message_(start|delta|stop)|content_block_(start|delta|stop)|ping")
_ANTHROPIC_BLOCKS: Final = re.compile(
    r"tool_use|server_tool_use|thinking|redacted_thinking|document|search_result|container_upload|mcp_tool_use|(\w+_)?tool_result"
)
_COHERE_EVENTS: Final = re.compile(r"message-(start|end)|(content|tool-call|citation)-(start|delta|end)|tool-plan-delta")
_COHERE_ROLES: Final = re.compile(r'"(USER|CHATBOT|SYSTEM|TOOL)"', re.IGNORECASE)
_COHERE_LINES: Final = re.compile(r"stream-(start|end)|(text|citation|search-queries|tool-calls)-generation|search-results")
_INTERACTIONS: Final = re.compile(r'"(interaction|step|content)\.')
_IMAGES: Final = re.compile(r'\[\s*"')
_STEPS: Final = re.compile(r"user_input|model_output")
_AI_SDK_EVENTS: Final = re.compile(
    r"(start|finish)(-step)?|abort|error|(text|reasoning)-(start|delta|end)|tool-(input|output|approval)-.*|(source|data)-.*"
    r"|file|message-metadata"
)
_RESPONSES_ITEMS: Final = re.compile(
    r"message|(function|custom_tool|computer|local_shell|shell|apply_patch|web_search|file_search|code_interpreter"
    r"|image_generation|mcp|tool_search)_call(_output)?|reasoning|compaction|item_reference|mcp_\w+|program(_output)?"
)
_RESPONSES_PARTS: Final = re.compile(r"(input|output)_(text|image|file|audio)")
_CHAT_PARTS: Final = re.compile(r"image_url|input_audio|file|refusal")
_LANGCHAIN_TYPES: Final = re.compile(
    r"human|ai|system|tool|function|developer|chat|remove|(Human|AI|System|Tool)Message(Chunk)?"
)
_CLAUDE_RECORDS: Final = re.compile(r"user|assistant|system|summary|progress")
_CODEX_RECORDS: Final = re.compile(r"session_meta|response_item|event_msg|turn_context|compacted")
_ERRING: Final = "anthropic, chat, gemini, responses"
_CLAUDE_NOTES: Final = re.compile(r"file-history-snapshot|queue-operation")


class Detected(NamedTuple):
    """A format, and whether the file is what a provider streamed or a history."""

    kind: Literal["stream", "history"]
    name: str


def detect(first: JsonText, others: Iterable[JsonText] = (), *, place: str = "the first value") -> Detected:
    """The format of a file by its first JSON value, and those beside it where it is a list. Raises `FormatError`.

    Messages that two formats would write alike are taken as Chat Completions.
    """
    fields = Fields(first, place)
    found = next((Detected(kind, name) for kind, name, is_so in _RECORDS if is_so(fields, _type(fields))), None)
    found = found or _by_messages(fields, others)
    if found is None and fields.names() == {"error"}:
        raise FormatError(f"{place}: an error alone is what several providers answer ({_ERRING}): name it with --format")
    if found is None:
        raise FormatError(f"{place}: no format is known that begins with {shown(first)}: name it with --format")
    return found


def _by_messages(fields: Fields, others: Iterable[JsonText]) -> Detected | None:
    """A list of messages, or an object that has one: by the first of them that only one format writes so."""
    values = [fields, *(Fields(text, f"value {at}") for at, text in enumerate(others, 2) if _is_object(text))]
    said = [message for value in values for message in _messages(value)]
    left: list[str] = []
    for message in said:
        names = [name for name, is_so in _MESSAGES if is_so(message, _type(message))]
        if names and left and not set(names) & set(left):
            told = f"{message.place} is of the format {names[0]}, and one before it of {left[0]}"
            raise FormatError(f"{told}: name the one that counts with --format")
        left = left or names
    if left:
        return Detected("history", left[0])
    is_list = any(message.has("role") and (message.has("content") or message.has("tool_calls")) for message in said)
    return Detected("history", "anthropic" if "system" in fields else "chat") if is_list else None


def _messages(value: Fields) -> list[Fields]:
    """Those that it holds, or itself."""
    if "messages" not in value:
        return [value]
    return [Fields(text, place) for text, place in value.items("messages") if _is_object(text)]


def _has(*names: str) -> Callable[[Fields, str], bool]:
    """Any of these fields, not null."""
    return lambda fields, _: any(name in fields for name in names)


def _both(*names: str) -> Callable[[Fields, str], bool]:
    """All of these fields, not null."""
    return lambda fields, _: all(name in fields for name in names)


def _is(kinds: re.Pattern[str], *names: str) -> Callable[[Fields, str], bool]:
    """A type among these, and all of these fields."""
    return lambda fields, kind: kinds.fullmatch(kind) is not None and all(name in fields for name in names)


def _contains(kinds: re.Pattern[str]) -> Callable[[Fields, str], bool]:
    """A block of content of one of these types."""
    return lambda fields, _: any(kinds.fullmatch(_type(block)) for block in _blocks(fields))


def _type(fields: Fields) -> str:
    return (fields.raw("type") or "").strip('"')


def _blocks(fields: Fields) -> list[Fields]:
    return _objects(fields, "content")


def _objects(fields: Fields, name: str) -> list[Fields]:
    """The objects in a list; none where the field is something else."""
    given = fields.raw(name) or ""
    return [Fields(item, "a block") for item in items_of(given, name) if _is_object(item)] if given[:1] == "[" else []


def _is_object(text: JsonText) -> bool:
    return text.lstrip().startswith("{")


def _is_anthropic_answer(fields: Fields, kind: str) -> bool:
    return kind == "message" and fields.raw("role") == '"assistant"' and any(map(fields.has, ("stop_reason", "usage")))


def _is_qwen(record: Fields) -> bool:
    """A record that Claude Code could have written, but for its message or what it notes."""
    message = record.raw("message") or ""
    has_parts = message.startswith("{") and "parts" in Fields(message, "a message")
    return "uuid" in record and "sessionId" in record and (has_parts or "systemPayload" in record)


def _is_sharegpt(message: Fields) -> bool:
    return "from" in message and "value" in message


def _is_cohere_message(message: Fields) -> bool:
    """A message of its first version."""
    return _COHERE_ROLES.fullmatch(message.raw("role") or "") is not None and any(map(message.has, ("message", "tool_results")))


def _is_cohere_answer(fields: Fields, _: str) -> bool:
    """One that came whole; its reasons are in capitals, those of a choice of Chat Completions are not."""
    reason, message = fields.raw("finish_reason") or "", fields.raw("message") or ""
    return message.startswith("{") and reason.isupper()


def _is_interaction(fields: Fields) -> bool:
    return fields.raw("object") == '"interaction"'


_OF_INTERACTIONS: Final = _has("system_instruction", "previous_interaction_id", "generation_config", "response_modalities")


def _is_ai_sdk_event(fields: Fields, kind: str) -> bool:
    return _AI_SDK_EVENTS.fullmatch(kind) is not None and not any(map(fields.has, ("role", "content")))


_RECORDS: Final[tuple[tuple[Literal["stream", "history"], str, Callable[[Fields, str], bool]], ...]] = (
    ("history", TAILFOLD, _has("tailfold")),
    ("history", "codex", _is(_CODEX_RECORDS, "payload")),
    ("history", "chatgpt", lambda fields, _: (fields.raw("mapping") or "").startswith("{")),
    ("history", "sharegpt", _both("from", "value")),
    ("history", "sharegpt", lambda fields, _: any(map(_is_sharegpt, _objects(fields, "conversations")))),
    ("history", "pi", _is(re.compile("session"), "id")),
    ("history", "pi", _both("stopReason", "api")),
    ("history", "trees", _has("message_tree_id", "parent_message_id", "user_message_id")),
    ("history", "tau-bench", _has("traj", "messages_display")),
    ("history", "swe-agent", _has("history")),
    ("history", "qwen-code", lambda fields, _: _is_qwen(fields)),
    ("history", "claude-code", lambda fields, kind: fields.has("session_id") and bool(kind)),
    ("history", "claude-code", lambda fields, _: fields.has("parent_tool_use_id") or fields.has("parentUuid")),
    ("history", "claude-code", _is(_CLAUDE_RECORDS, "sessionId")),
    ("history", "claude-code", _is(re.compile("summary"), "leafUuid")),
    ("history", "claude-code", _is(_CLAUDE_NOTES)),
    ("history", "claude-code", lambda fields, _: (fields.raw("loglines") or "").startswith("[")),
    ("stream", "chat", _has("choices")),
    ("stream", "gemini", _has("candidates", "promptFeedback")),
    ("stream", "bedrock", _has("messageStart", "contentBlockStart", "contentBlockDelta")),
    ("stream", "bedrock", lambda fields, _: "stopReason" in fields and (fields.raw("output") or "").startswith("{")),
    ("history", "cohere", lambda fields, _: any(map(_is_cohere_message, _objects(fields, "chat_history")))),
    ("history", "cohere", lambda fields, _: (fields.raw("message") or "")[:1] == '"' and fields.raw("chat_history") == "[]"),
    ("stream", "cohere", _is(_COHERE_EVENTS)),
    ("stream", "cohere", lambda fields, _: _COHERE_LINES.fullmatch((fields.raw("event_type") or "").strip('"')) is not None),
    ("stream", "cohere", _is_cohere_answer),
    ("stream", "cohere", _both("generation_id", "text")),
    ("history", "gemini-interactions", lambda fields, _: "input" in fields and _is_interaction(fields)),
    ("stream", "gemini-interactions", lambda fields, _: _is_interaction(fields)),
    ("stream", "gemini-interactions", lambda fields, _: _INTERACTIONS.match(fields.raw("event_type") or "") is not None),
    ("history", "gemini-interactions", lambda fields, kind: not kind and "input" in fields and _OF_INTERACTIONS(fields, kind)),
    ("stream", "ollama", lambda fields, _: "done" in fields and (fields.raw("message") or "").startswith("{")),
    ("stream", "bedrock", lambda fields, _: exception_of(split(fields.source)) is not None),
    ("stream", "responses", lambda fields, kind: fields.raw("object") == '"response"' or kind.startswith("response.")),
    ("history", "gemini", _has("contents")),
    ("history", "responses", lambda fields, kind: "input" in fields and not kind),
    ("history", "langchain", _both("lc", "kwargs")),
    ("history", "agui", _both("threadId", "messages")),
    ("history", "anthropic", _both("anthropic_version", "messages")),
    ("history", "anthropic", _is_anthropic_answer),
    ("stream", "anthropic", _is(_ANTHROPIC_EVENTS)),
    ("stream", "anthropic", lambda fields, kind: kind == "error" and (fields.raw("error") or "").startswith("{")),
    ("stream", "agui", _is(re.compile(r"[A-Z][A-Z_]+"))),
    ("stream", "ai-sdk", _is_ai_sdk_event),
)
"""What a record or an event of a format has, and none that stands below it; with the type that it says it has."""

_MESSAGES: Final[tuple[tuple[str, Callable[[Fields, str], bool]], ...]] = (
    ("pydantic-ai", lambda fields, _: any("part_kind" in part for part in _objects(fields, "parts"))),
    ("pydantic-ai", lambda fields, _: fields.raw("kind") in ('"request"', '"response"') and "parts" in fields),
    ("gemini", lambda fields, _: bool(parts := _objects(fields, "parts")) and not any(map(_type, parts))),
    ("ai-sdk", _has("parts")),
    ("gemini-interactions", _is(_STEPS, "content")),
    ("cohere", _has("tool_plan")),
    (
        "ollama",
        lambda fields, _: (
            (fields.raw("role") == '"tool"' and "tool_name" in fields) or _IMAGES.match(fields.raw("images") or "") is not None
        ),
    ),
    ("cohere", lambda fields, _: _is_cohere_message(fields)),
    ("agui", _has("toolCalls", "toolCallId")),
    ("agui", lambda fields, _: fields.raw("role") in ('"activity"', '"reasoning"')),
    ("responses", _is(_RESPONSES_ITEMS)),
    ("langchain", _is(_LANGCHAIN_TYPES, "content")),
    ("langchain", _is(_LANGCHAIN_TYPES, "data")),
    ("chat", _has("tool_calls", "tool_call_id", "function_call")),
    ("anthropic", _contains(_ANTHROPIC_BLOCKS)),
    ("anthropic", lambda fields, _: any("source" in block for block in _blocks(fields))),
    ("responses", _contains(_RESPONSES_PARTS)),
    ("chat", _contains(_CHAT_PARTS)),
    ("bedrock", lambda fields, _: bool(_blocks(fields)) and not any(map(_type, _blocks(fields)))),
)
"""What a message of a format has, and none that stands below it."""
