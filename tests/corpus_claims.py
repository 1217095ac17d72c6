"""Which format an exchange is of, told by its address and its keys alone: one that the project claims, or one it does not.

The names of what is claimed are looked up in the registry: a format that is added there is claimed from then on.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from projector.formats.registry import NAMED, READERS, STREAMS

if TYPE_CHECKING:
    from tests.corpus_exchanges import Sent

_ADDRESSES: Final = (
    (r"/count[-_]tokens$|/input_tokens$", "a count of tokens"),
    (r"/threads(/|$)|/assistants(/|$)", "OpenAI's Assistants"),
    (r"/conversations(/|$)", "OpenAI's Conversations"),
    (r"/realtime/", "OpenAI's Realtime"),
    (r"/chat/completions$", "chat"),
    (r"/embeddings$|/embed$", "embeddings"),
    (r"/completions$", "completions of old"),
    (r"/messages$|:(streamR|r)awPredict$", "anthropic"),
    (r"/responses$", "responses"),
    (r":(stream)?[gG]enerateContent$", "gemini"),
    (r"/converse(-stream)?$", "bedrock"),
    (r"/interactions$", "interactions"),
    (r"/api/chat$", "ollama"),
)
_INVOKE: Final = re.compile(r"/model/(.*)/invoke(-with-response-stream)?$")
_CLAIMED: Final = {*READERS, *STREAMS}


def claim(sent: Sent) -> str:
    """The format, or in words what an exchange is of that no format takes in."""
    url = urlsplit(sent.address)
    path = unquote(url.path)
    if (invoked := _INVOKE.search(path)) is not None:
        is_messages = isinstance(sent.request, dict) and "messages" in sent.request
        if not is_messages and sent.request is None and "anthropic" not in invoked[1]:
            return f"{invoked[1]} without a request that can be read"
        family = "anthropic" if "anthropic" in invoked[1] else "bedrock" if "nova" in invoked[1] else ""
        is_taken = family and is_messages and is_claimed(_claimed_at(family, path))
        return family if is_taken else f"{invoked[1]} on Bedrock's invoke"
    if re.search(r"/v[12]/chat$", path):
        return _claimed_at("cohere", path) if "cohere" in (url.hostname or "") else f"the chat of {url.hostname}"
    found = next((name for pattern, name in _ADDRESSES if re.search(pattern, path)), None)
    return f"an address that is no model's ({path})" if found is None else _claimed_at(found, path)


def _claimed_at(name: str, path: str) -> str:
    """The format by its full name, if it takes what is sent to this address."""
    found = name if name in _CLAIMED else next((known for known in _CLAIMED if known.endswith(f"-{name}")), name)
    endpoint = NAMED[found].endpoint if found in NAMED else None
    return found if endpoint is None or endpoint.search(path) else f"{name} at {path}"


def is_claimed(name: str) -> bool:
    """Whether a reader or a stream of the project goes by that name."""
    return name in _CLAIMED


def is_talk(sent: Sent) -> bool:
    """Whether an exchange is of a claimed format, with a request that can be read."""
    return is_claimed(claim(sent)) and isinstance(sent.request, dict)


def names_of(sent: Sent) -> list[str]:
    """What an exchange may be called by where it is passed over: its place, its host, its path, the model it went to."""
    url = urlsplit(sent.address)
    path = unquote(url.path)
    invoked = _INVOKE.search(path)
    return [name for name in (sent.place, url.hostname, url.path, path, invoked and invoked[1]) if name and name != "/"]


def claim_of_event(value: Any) -> str:
    """The format of a stream or a response in a file of its own, by its first event."""
    if not isinstance(value, dict):
        return "no object"
    kind, what = str(value.get("type", "")), str(value.get("object", ""))
    if "event_type" in value or what == "interaction":
        return _claimed_at("interactions", "/interactions")
    if what == "response" or kind.startswith("response."):
        return "responses"
    if "choices" in value:
        return "chat"
    if value.keys() & {"candidates", "promptFeedback"}:
        return "gemini"
    if value.keys() & {"messageStart", "contentBlockStart", "contentBlockDelta", "output"}:
        return "bedrock"
    if kind in ("message_start", "content_block_start", "ping", "message"):
        return "anthropic"
    return f"an object with {sorted(value)[:4]}"
