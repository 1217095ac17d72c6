"""Every format by its name: what reads its streams and its histories, and what writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from projector.formats.agui import reader as agui
from projector.formats.agui.stream_reader import AguiStream
from projector.formats.agui.stream_writer import write_stream as write_agui
from projector.formats.ai_sdk import reader as ai_sdk
from projector.formats.ai_sdk.stream_reader import AiSdkStream
from projector.formats.ai_sdk.stream_writer import write_stream as write_ai_sdk
from projector.formats.anthropic import reader as anthropic_messages
from projector.formats.anthropic.stream_reader import AnthropicStream
from projector.formats.anthropic.stream_writer import write_stream as write_anthropic
from projector.formats.bedrock import reader as bedrock_messages
from projector.formats.bedrock.stream_reader import BedrockStream
from projector.formats.chat import reader as chat
from projector.formats.chat.stream_reader import ChatStream
from projector.formats.chat.stream_writer import write_stream as write_chat
from projector.formats.claude_code import reader as claude_code
from projector.formats.format import Export
from projector.formats.gemini import reader as gemini_messages
from projector.formats.gemini.stream_reader import GeminiStream
from projector.formats.langchain import reader as langchain
from projector.formats.pi import reader as pi
from projector.formats.responses import reader as responses
from projector.formats.responses.stream_reader import ResponsesStream
from projector.formats.responses.stream_writer import write_stream as write_responses
from projector.formats.shared.history import Loss
from projector.formats.swe_agent import reader as swe_agent
from projector.formats.tau_bench import reader as tau_bench
from projector.formats.trees import reader as trees  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from projector.formats.format import StreamFormat
    from projector.formats.shared.history import History
    from projector.message import Message

STREAMS: Final[dict[str, Callable[[str, Callable[[], str]], StreamFormat]]] = {
    "agui": AguiStream,
    "ai-sdk": AiSdkStream,
    "anthropic": AnthropicStream,
    "bedrock": BedrockStream,
    "chat": ChatStream,
    "gemini": GeminiStream,
    "responses": ResponsesStream,
}
"""Stream formats by the name that `Run.feed` and `tailfold play --format` take."""

READERS: Final[dict[str, Callable[[str], Iterator[History]]]] = {
    "agui": agui.read,
    "ai-sdk": ai_sdk.read,
    "anthropic": anthropic_messages.read,
    "bedrock": bedrock_messages.read,
    "chat": chat.read,
    "claude-code": claude_code.read,
    "gemini": gemini_messages.read,
    "langchain": langchain.read,
    "pi": pi.read,
    "responses": responses.read,
    "swe-agent": swe_agent.read,
    "tau-bench": tau_bench.read,
    "trees": trees.read,
}
"""What reads a document of a format, by the name that `tailfold import --format` takes."""

OF_LINES: Final = frozenset({"claude-code", "pi", "tau-bench", "trees"})
"""Those whose documents are lines; of the others each line is a document of its own, or a message."""

WRITERS: Final[dict[str, Callable[[Sequence[Message]], Export]]] = {
    "agui": agui.write,
    "ai-sdk": ai_sdk.write,
    "anthropic": anthropic_messages.write,
    "chat": chat.write,
    "langchain": langchain.write,
    "responses": responses.write,
}
"""What writes a path of messages, by the name that `tailfold export --format` takes."""

STREAM_WRITERS: Final[dict[str, Callable[[Sequence[Message]], list[dict[str, Any]]]]] = {
    "agui-stream": write_agui,
    "ai-sdk-stream": write_ai_sdk,
    "anthropic-stream": write_anthropic,
    "chat-stream": write_chat,
    "responses-stream": write_responses,
}
"""What writes messages as they would have been streamed."""
_ANSWERS_ONLY: Final = frozenset({"ai-sdk-stream", "anthropic-stream", "chat-stream", "responses-stream"})


def write_stream(messages: Sequence[Message], name: str) -> Export:
    """Messages as they would have been streamed, one event an item, with what a stream of this format can't say."""
    beside = WRITERS[name.removesuffix("-stream")](messages)  # what has no form in a history has none in a stream
    others = sum(message.role != "assistant" for message in messages) if name in _ANSWERS_ONLY else 0
    told = (Loss(f"{others} messages that are not a model's: a stream is of answers"),) if others else ()
    return Export(STREAM_WRITERS[name](messages), (*told, *beside.losses))
