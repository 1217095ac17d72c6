"""The formats of providers, one file each, as pure functions of what they stream and keep.

Reading a file and talking to a server must not live here.
"""

from collections.abc import Callable
from typing import Final

from projector.formats.anthropic import AnthropicStream
from projector.formats.chat_stream import ChatStream
from projector.formats.format import FormatError, StreamEnd, StreamFormat
from projector.formats.gemini_stream import GeminiStream
from projector.formats.responses_stream import ResponsesStream

STREAMS: Final[dict[str, Callable[[str, Callable[[], str]], StreamFormat]]] = {
    "anthropic": AnthropicStream,
    "chat": ChatStream,
    "gemini": GeminiStream,
    "responses": ResponsesStream,
}
"""Stream formats by the name that `Run.feed` and `tailfold play --format` take."""

__all__ = [
    "STREAMS",
    "AnthropicStream",
    "ChatStream",
    "FormatError",
    "GeminiStream",
    "ResponsesStream",
    "StreamEnd",
    "StreamFormat",
]
