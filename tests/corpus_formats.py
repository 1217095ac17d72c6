"""Which format a recording is of, told by its keys alone, and the readers there are for each.

The classification owes nothing to the code under test: what it calls a known format must be imported, what it calls
an unknown one must be refused.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from projector.formats import READERS, STREAMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from projector.formats.format import StreamFormat
    from projector.formats.shared.history import History

TOLD: Final = ("anthropic", "chat", "responses", "gemini", "bedrock")
"""Formats whose text deltas are joined by `told_text`."""


class Foreign(NamedTuple):
    """A format that nobody reads: what it is, and the reader that must refuse it."""

    what: str
    reader: str


_INTERACTIONS: Final = Foreign("Google's Interactions", "gemini")
_AI_SDK: Final = ("start", "start-step", "text-start", "reasoning-start", "tool-input-start", "finish", "error")
_ANTHROPIC: Final = ("message_start", "content_block_start", "ping", "message")


def kind_of(value: Any, hint: str = "") -> str | Foreign:
    """What a first event or a whole response is; `hint` is where it comes from, for errors, which all look alike."""
    if isinstance(value, list) and value and isinstance(value[0], dict) and "contents" in value[0]:
        return Foreign("updates of Microsoft's chat client", "agui")
    if not isinstance(value, dict):
        return Foreign("no event", "chat")
    kind, what = str(value.get("type", "")), str(value.get("object", ""))
    if "event_type" in value or what == "interaction":
        return next((name for name in STREAMS if "interactions" in name), _INTERACTIONS)
    if "parent_tool_use_id" in value:
        return "claude"
    if what == "response" or kind.startswith("response."):
        return "responses"
    if "choices" in value:
        return "chat"
    if value.keys() & {"candidates", "promptFeedback"}:
        return "gemini"
    if value.keys() & {"messageStart", "contentBlockStart", "contentBlockDelta", "output"}:
        return "bedrock"
    if kind in _ANTHROPIC:
        return "anthropic"
    if re.fullmatch(r"[A-Z][A-Z_]+", kind):
        return "agui"
    if "error" in value:
        return of_place(hint) or Foreign("an error of nobody known", "chat")
    return "ai_sdk" if kind in _AI_SDK else Foreign(f"an object with {sorted(value)[:4]}", "chat")


def of_place(place: str) -> str | None:
    """The format that an address or a folder stands for."""
    for pattern, name in (
        (r"/invoke$|anthropic", "anthropic"),
        (r"[gG]enerateContent|google", "gemini"),
        (r"/converse|amazon-bedrock", "bedrock"),
        (r"responses", "responses"),
        (r"chat|azure|mistral|deepseek|xai|alibaba|moonshot", "chat"),
    ):
        if re.search(pattern, place):
            return name
    return None


def told_text(name: str, values: list[Any]) -> str | None:
    """The text of an answer as its deltas tell it, joined in the order they came; None where they are not all there is."""
    found: list[Any] = []
    for value in values:
        if name == "anthropic":
            given = value.get("content_block", {}).get("text") or "", value.get("delta", {}).get("text") or ""
            found += [text for text in given if value.get("type", "").startswith("content_block")]
        elif name == "chat":
            first: Any = next((choice for choice in value.get("choices") or [] if choice.get("index", 0) == 0), {})
            said = first.get("delta", first.get("message", {})).get("content", first.get("text"))
            if isinstance(said, list):  # Mistral's content in parts
                return None
            found.append(said)
        elif name == "responses":
            pass  # below: a part that ends says all of its text once more
        elif name == "gemini":
            parts = [part for one in (value.get("candidates") or [])[:1] for part in one.get("content", {}).get("parts", [])]
            found += [part.get("text") for part in parts if not part.get("thought")]
        elif name == "bedrock":
            content = value.get("output", {}).get("message", {}).get("content", [])
            found += [block.get("text") for block in content]
            found.append(value.get("contentBlockDelta", {}).get("delta", {}).get("text"))
    return told_by_parts(values) if name == "responses" else "".join(text or "" for text in found)


def told_by_parts(values: list[Any]) -> str | None:
    """The text of a Responses stream: of each part its end, where that came, else its deltas."""
    parts: dict[tuple[Any, Any], str] = {}
    for value in values:
        place = value.get("output_index"), value.get("content_index")
        if value.get("type") == "response.output_text.delta":
            parts[place] = parts.get(place, "") + value["delta"]
        elif value.get("type") == "response.output_text.done":
            parts[place] = value["text"]
    return "".join(parts.values()) if parts else None


def is_rightly_refused(text: str) -> bool:
    """Whether an event is no JSON, or an AG-UI event without the id that the protocol asks for."""
    value = load(text)
    if not isinstance(value, dict):
        return True
    need = {"TEXT_MESSAGE_START": "messageId", "TOOL_CALL_START": "toolCallId"}.get(str(value.get("type")))
    return need is not None and need not in value


def stream_format(name: str) -> Callable[[str, Callable[[], str]], StreamFormat]:
    """The adapter of a stream."""
    return STREAMS[name.replace("_", "-")]


def history_format(name: str) -> Callable[[str], Iterator[History]]:
    """The reader of histories."""
    return READERS[{"claude": "claude-code"}.get(name, name)]


def load(text: str) -> Any:
    """JSON, or None for what is none."""
    try:
        return json.loads(text)
    except ValueError:
        return None
