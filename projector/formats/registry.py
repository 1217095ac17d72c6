"""Every format, a line each; by its name what reads its streams and its histories, and what writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from projector.formats.format import Export
from projector.formats.shared.history import History, Loss

if TYPE_CHECKING:
    from projector.formats.format import Format, StreamFormat
    from projector.message import Message

T = TypeVar("T")
_BOTH_WAYS: Final = ("stream", "read", "write", "write_stream")
_ROLES: Final[dict[str, tuple[str, ...]]] = {
    "agui": _BOTH_WAYS,
    "ai-sdk": _BOTH_WAYS,
    "anthropic": _BOTH_WAYS,
    "bedrock": _BOTH_WAYS,
    "chat": _BOTH_WAYS,
    "chatgpt": ("read",),
    "claude-code": ("read",),
    "codex": ("read",),
    "cohere": ("stream", "read"),
    "gemini": _BOTH_WAYS,
    "gemini-interactions": ("stream", "read"),
    "langchain": ("read", "write"),
    "ollama": ("stream", "read"),
    "pi": ("read",),
    "pydantic-ai": ("read", "write"),
    "qwen-code": ("read",),
    "responses": _BOTH_WAYS,
    "sharegpt": ("read",),
    "swe-agent": ("read",),
    "tau-bench": ("read",),
    "trees": ("read",),
}
"""A new format is a folder, a line here, and a row of `recordings.detection`, which decides between formats."""


class ByName(MutableMapping[str, T], Generic[T]):
    """Values by the names of their formats. The names are known; a format is imported when its value is asked for."""

    def __init__(self, names: Iterator[str], make: Callable[[str], T]) -> None:
        self._make = make
        self._made: dict[str, T | None] = dict.fromkeys(names)

    def __getitem__(self, name: str) -> T:
        made = self._made[name]
        if made is None:
            made = self._made[name] = self._make(name)
        return made

    def __setitem__(self, name: str, value: T) -> None:
        self._made[name] = value

    def __delitem__(self, name: str) -> None:
        del self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._made

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


def _format(name: str) -> Format:
    found: Format = import_module(f"projector.formats.{name.replace('-', '_')}").FORMAT
    return found


def _role(name: str, role: str) -> Any:
    return getattr(NAMED[name], role)


def _soundly(kind: str, name: str) -> Any:
    """What writes `kind` of a format, whatever it is given."""
    from projector.formats.outgoing import free_form  # noqa: PLC0415 - only who writes loads it

    soundly: dict[str, Any] = {"write": free_form.export_soundly, "write_stream": free_form.stream_soundly}
    return partial(soundly[kind], _role(name, kind))


def _with(role: str) -> Iterator[str]:
    return (name for name, roles in _ROLES.items() if role in roles)


NAMED: Final[ByName[Format]] = ByName(iter(_ROLES), _format)

STREAMS: Final[ByName[Callable[[str, Callable[[], str]], StreamFormat]]] = ByName(
    _with("stream"), lambda name: _role(name, "stream")
)
"""Stream formats by the name that `Run.feed` and `tailfold play --format` take."""

READERS: Final[ByName[Callable[[str], Iterator[History]]]] = ByName(_with("read"), lambda name: _role(name, "read"))
"""What reads a document of a format, by the name that `tailfold import --format` takes."""

WRITERS: Final[ByName[Callable[[Sequence[Message]], Export]]] = ByName(_with("write"), partial(_soundly, "write"))
"""What writes a path of messages, by the name that `tailfold export --format` takes."""

STREAM_WRITERS: Final[ByName[Callable[[Sequence[Message]], list[dict[str, Any]]]]] = ByName(
    (f"{name}-stream" for name in _with("write_stream")), lambda name: _soundly("write_stream", name.removesuffix("-stream"))
)
"""What writes messages as they would have been streamed."""


def write_stream(messages: Sequence[Message], name: str) -> Export:
    """Messages as they would have been streamed, one event an item, with what a stream of this format can't say."""
    from projector.formats.outgoing import free_form  # noqa: PLC0415 - as above

    target = name.removesuffix("-stream")
    beside = WRITERS[target](messages)  # what has no form in a history has none in a stream
    others = sum(message.role != "assistant" for message in messages) if NAMED[target].streams_answers_only else 0
    told = (Loss(f"{others} messages that are not a model's: a stream is of answers"),) if others else ()
    write = NAMED[target].write_stream
    assert write is not None
    payload, odd = free_form.written(write, messages)
    return Export(payload, (*told, *(loss for loss in odd if loss not in beside.losses), *beside.losses))
