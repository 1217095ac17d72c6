"""Every format, a line each; by its name what reads its streams and its histories, and what writes them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from projector.formats.agui import FORMAT as AGUI
from projector.formats.ai_sdk import FORMAT as AI_SDK
from projector.formats.anthropic import FORMAT as ANTHROPIC
from projector.formats.bedrock import FORMAT as BEDROCK
from projector.formats.chat import FORMAT as CHAT
from projector.formats.chatgpt import FORMAT as CHATGPT
from projector.formats.claude_code import FORMAT as CLAUDE_CODE
from projector.formats.codex import FORMAT as CODEX
from projector.formats.cohere import FORMAT as COHERE
from projector.formats.format import Export
from projector.formats.gemini import FORMAT as GEMINI
from projector.formats.gemini_interactions import FORMAT as GEMINI_INTERACTIONS
from projector.formats.langchain import FORMAT as LANGCHAIN
from projector.formats.ollama import FORMAT as OLLAMA
from projector.formats.outgoing.free_form import export_soundly, stream_soundly, written
from projector.formats.pi import FORMAT as PI
from projector.formats.pydantic_ai import FORMAT as PYDANTIC_AI
from projector.formats.qwen_code import FORMAT as QWEN_CODE
from projector.formats.responses import FORMAT as RESPONSES
from projector.formats.shared.history import Loss
from projector.formats.sharegpt import FORMAT as SHAREGPT
from projector.formats.swe_agent import FORMAT as SWE_AGENT
from projector.formats.tau_bench import FORMAT as TAU_BENCH
from projector.formats.trees import FORMAT as TREES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from projector.formats.format import Format, StreamFormat
    from projector.formats.shared.history import History
    from projector.message import Message

FORMATS: Final[tuple[Format, ...]] = (
    AGUI,
    AI_SDK,
    ANTHROPIC,
    BEDROCK,
    CHAT,
    CHATGPT,
    CLAUDE_CODE,
    CODEX,
    COHERE,
    GEMINI,
    GEMINI_INTERACTIONS,
    LANGCHAIN,
    OLLAMA,
    PI,
    PYDANTIC_AI,
    QWEN_CODE,
    RESPONSES,
    SHAREGPT,
    SWE_AGENT,
    TAU_BENCH,
    TREES,
)
"""A new format is a folder, a line here, and a row of `recordings.detection`, which decides between formats."""
NAMED: Final[dict[str, Format]] = {each.name: each for each in FORMATS}

STREAMS: Final[dict[str, Callable[[str, Callable[[], str]], StreamFormat]]] = {
    each.name: each.stream for each in FORMATS if each.stream is not None
}
"""Stream formats by the name that `Run.feed` and `tailfold play --format` take."""

READERS: Final[dict[str, Callable[[str], Iterator[History]]]] = {
    each.name: each.read for each in FORMATS if each.read is not None
}
"""What reads a document of a format, by the name that `tailfold import --format` takes."""

WRITERS: Final[dict[str, Callable[[Sequence[Message]], Export]]] = {
    each.name: partial(export_soundly, each.write) for each in FORMATS if each.write is not None
}
"""What writes a path of messages, by the name that `tailfold export --format` takes."""

STREAM_WRITERS: Final[dict[str, Callable[[Sequence[Message]], list[dict[str, Any]]]]] = {
    f"{each.name}-stream": partial(stream_soundly, each.write_stream) for each in FORMATS if each.write_stream is not None
}
"""What writes messages as they would have been streamed."""


def write_stream(messages: Sequence[Message], name: str) -> Export:
    """Messages as they would have been streamed, one event an item, with what a stream of this format can't say."""
    target = name.removesuffix("-stream")
    beside = WRITERS[target](messages)  # what has no form in a history has none in a stream
    others = sum(message.role != "assistant" for message in messages) if NAMED[target].streams_answers_only else 0
    told = (Loss(f"{others} messages that are not a model's: a stream is of answers"),) if others else ()
    write = NAMED[target].write_stream
    assert write is not None
    payload, odd = written(write, messages)
    return Export(payload, (*told, *(loss for loss in odd if loss not in beside.losses), *beside.losses))
