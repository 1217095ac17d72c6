"""The state of a conversation's folds, and its form in a snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args, get_origin

import msgspec

from projector.json_text import InvalidJson, decode, dump, learn
from projector.message import Block, Message, Unknown
from projector.persistent import GrowingList, GrowingTable, GrowingText
from projector.run_draft import Anomaly, BlockDraft, MessageDraft, RunDraft, Usage
from projector.settle import End, settle

if TYPE_CHECKING:
    from collections.abc import Callable


class EndedRun(msgspec.Struct, frozen=True, gc=False):
    """A run that has an end, without its messages."""

    run_id: str
    parent_message_id: str | None
    trigger: str
    seq: int
    started_at: int
    end: End
    model: str | None = None
    provider: str | None = None
    steps: int = 0
    usage: dict[str, Usage] = {}

    @classmethod
    def of(cls, run: RunDraft, end: End) -> EndedRun:
        """What is kept of `run`."""
        kept = {name: getattr(run, name) for name in cls.__struct_fields__ if name != "end"}
        return cls(end=end, **kept)


class State(msgspec.Struct, frozen=True, gc=False):
    """What both folds hold. `ended` and `messages` stay empty in `open_runs`."""

    last_seq: int = 0
    open: dict[str, RunDraft] = {}
    ended: GrowingTable[str, EndedRun] = GrowingTable()
    messages: GrowingTable[str, Message] = GrowingTable()
    anomalies: GrowingList[Anomaly] = GrowingList()

    def all_messages(self) -> list[Message]:
        """The messages of ended and of open runs, in order of their start."""
        found = list(self.messages.values())
        for run in self.open.values():
            found += settle(run, None).messages
        return sorted(found, key=lambda message: message.seq)


def encode_state(state: State) -> bytes:
    """JSON; equal states give equal bytes."""
    try:
        return msgspec.json.encode(state, enc_hook=_to_builtins)
    except UnicodeEncodeError:  # a lone surrogate somewhere in a text
        return dump(msgspec.to_builtins(state, enc_hook=_to_builtins, str_keys=True)).encode()


def decode_state(data: bytes) -> State:
    """The state that was encoded. Raises `InvalidJson`."""
    try:
        return msgspec.json.decode(data, type=State, dec_hook=_from_builtins)
    except msgspec.MsgspecError:
        pass
    try:
        return msgspec.convert(decode(data), State, dec_hook=_from_builtins, str_keys=True)
    except msgspec.MsgspecError as error:
        raise InvalidJson(f"this is no state of a conversation: {error}") from error


def _to_builtins(value: Any) -> Any:
    if isinstance(value, GrowingText):
        return str(value)
    if isinstance(value, GrowingList):
        return list(value)
    if isinstance(value, GrowingTable):
        return list(value.items())
    raise TypeError(f"{type(value).__name__} is no part of a state")


def _from_builtins(kind: Any, value: Any) -> Any:
    made = _MAKERS[get_origin(kind) or kind]
    return made(kind, value)


def _make_items(kind: Any, value: Any) -> list[Any]:
    items = list[get_args(kind)[0]] if get_origin(kind) is GrowingList else list[tuple[get_args(kind)]]  # type: ignore[misc]
    made: list[Any] = msgspec.convert(value, items, dec_hook=_from_builtins, str_keys=True)
    return made


_MAKERS: dict[Any, Callable[[Any, Any], Any]] = {
    GrowingText: lambda _, value: GrowingText(value),
    GrowingList: lambda kind, value: GrowingList(_make_items(kind, value)),
    GrowingTable: lambda kind, value: GrowingTable(_make_items(kind, value)),
}

learn(State, EndedRun, End, RunDraft, MessageDraft, BlockDraft, Message, Block, Unknown, Usage, Anomaly)
