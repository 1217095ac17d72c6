"""What of a message is of free form, such as writers can read it: nobody has promised what stands there.

Payloads, citations, parts of results and input of calls are JSON that somebody else made. A writer knows the forms that it
reads; what has another one is left out or said as text, and told, so that one odd value never bars an export.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from msgspec.structs import replace

from projector.formats.shared.history import Loss
from projector.json_text import InvalidJson, JsonText, decode, dump, is_json, split, split_array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from projector.formats.format import Export
    from projector.message import Block, Message

T = TypeVar("T")
_CALLS: Final = ("tool_call", "server_tool_call")
_FIELDS: Final = ("opaque", "citations", "parts", "input_text", "approval", "fields")
_BLOCK: Final = "block"


def export_soundly(write: Callable[[Sequence[Message]], Export], messages: Sequence[Message]) -> Export:
    """What a writer makes of a path, whatever stands in it of free form; what it can't read is a loss."""
    export, losses = written(write, messages)
    return replace(export, losses=(*losses, *export.losses)) if losses else export


def stream_soundly(write: Callable[[Sequence[Message]], T], messages: Sequence[Message]) -> T:
    """The same for a stream, without a word of what it loses."""
    return written(write, messages)[0]


def written(write: Callable[[Sequence[Message]], T], messages: Sequence[Message]) -> tuple[T, tuple[Loss, ...]]:
    """What is written, and what could not be read."""
    sound, losses = readable(messages)
    made, more = _write(write, sound)
    return made, (*losses, *more)


def readable(messages: Sequence[Message]) -> tuple[Sequence[Message], list[Loss]]:
    """The messages with parts, citations, payloads and input of the forms that are ours, and what was not."""
    losses: list[Loss] = []
    sound = []
    for message in messages:
        blocks = tuple(_readable(block, message.id, losses) for block in message.blocks)
        same = all(new is old for new, old in zip(blocks, message.blocks, strict=True))
        sound.append(message if same else replace(message, blocks=blocks))
    return sound, losses


def _readable(block: Block, message_id: str, losses: list[Loss]) -> Block:
    changes: dict[str, Any] = {}

    def lose(what: str) -> None:
        losses.append(Loss(what, message_id, block.number))

    if block.parts is not None and (parts := _sound_parts(block.parts)) != block.parts:
        lose("what is no part of a result is sent as the text of its JSON")
        changes["parts"] = parts
    if block.opaque is not None and not _is_payload(block.opaque):
        lose(f"what is kept of the block is no object that names its provider, it is not sent ({block.kind})")
        changes["opaque"] = None
    if block.citations and not all(map(_is_object, block.citations)):
        lose("a citation that is no object is not sent")
        changes["citations"] = tuple(filter(_is_object, block.citations))
    if block.kind in _CALLS and block.sealed and block.parse != "bad":
        text = block.input_text or block.text
        if text and not is_json(text):
            changes["parse"] = "bad"
    return replace(block, **changes) if changes else block


def _sound_parts(text: JsonText) -> JsonText:
    try:
        parts = decode(text)
        if not isinstance(parts, list):
            return _as_text(text)
        if all(map(_is_part, parts)):
            return text
        texts = split_array(text)
    except InvalidJson:
        return _as_text(text)
    return f"[{','.join(one if _is_part(part) else _as_text(one)[1:-1] for part, one in zip(parts, texts, strict=True))}]"


def _is_part(part: Any) -> bool:
    if not isinstance(part, dict) or not isinstance(part.get("kind", "text"), str):
        return False
    return isinstance(part.get("text", ""), str) and ("text" in part or part.get("kind", "text") != "text")


def _as_text(text: JsonText) -> JsonText:
    return dump([{"kind": "text", "text": text}])


def _is_object(text: JsonText) -> bool:
    return text.lstrip().startswith("{")


def _is_payload(text: JsonText) -> bool:
    try:
        fields = split(text)
    except InvalidJson:
        return False
    return fields.get("provider", "")[:1] == '"'


class _Spot(NamedTuple):
    """A place of free form: a field of a block, or metadata of a message by its name."""

    message: int
    block: int | None
    name: str


def _write(write: Callable[[Sequence[Message]], T], messages: Sequence[Message]) -> tuple[T, list[Loss]]:
    """What is written, without what bars it. Which that is, the writer knows: it is found by halves."""
    try:
        return write(messages), []
    except Exception:  # whatever it is that a form of somebody else has set off
        for spots in (list(_fields(messages)), list(_blocks(messages))):
            if _writes(write, messages, set(spots)):
                break
        else:
            raise
    odd = set(spots)
    left = [spots]
    while left:
        some = left.pop()
        if _writes(write, messages, odd - set(some)):
            odd -= set(some)
        elif len(some) > 1:
            left += [some[: len(some) // 2], some[len(some) // 2 :]]
    return write(_without(messages, odd)), [_loss(messages, spot) for spot in spots if spot in odd]


def _writes(write: Callable[[Sequence[Message]], object], messages: Sequence[Message], odd: set[_Spot]) -> bool:
    try:
        write(_without(messages, odd))
    except Exception:  # noqa: BLE001 - see above
        return False
    return True


def _fields(messages: Sequence[Message]) -> Iterator[_Spot]:
    for at, message in enumerate(messages):
        yield from (_Spot(at, None, name) for name in message.metadata_text)
        for place, block in enumerate(message.blocks):
            yield from (_Spot(at, place, name) for name in _FIELDS if getattr(block, name))


def _blocks(messages: Sequence[Message]) -> Iterator[_Spot]:
    for at, message in enumerate(messages):
        yield from (_Spot(at, place, _BLOCK) for place in range(len(message.blocks)))


def _without(messages: Sequence[Message], odd: set[_Spot]) -> list[Message]:
    sound = list(messages)
    for at in {spot.message for spot in odd}:
        message = messages[at]
        names = {(spot.block, spot.name) for spot in odd if spot.message == at}
        blocks = (
            _strip(block, {name for place, name in names if place == number})
            for number, block in enumerate(message.blocks)
            if (number, _BLOCK) not in names
        )
        metadata = {name: text for name, text in message.metadata_text.items() if (None, name) not in names}
        sound[at] = replace(message, blocks=tuple(blocks), metadata_text=metadata)
    return sound


def _strip(block: Block, names: set[str]) -> Block:
    empty: dict[str, Any] = {"citations": (), "fields": {}}
    changes: dict[str, Any] = {name: empty.get(name) for name in names}
    if "parts" in names:
        changes["parts"] = _as_text(block.parts or "")
    if "input_text" in names:
        changes |= {"text": block.input_text, "parse": "bad"}
    return replace(block, **changes) if changes else block


def _loss(messages: Sequence[Message], spot: _Spot) -> Loss:
    message = messages[spot.message]
    if spot.block is None:
        return Loss(f"metadata {spot.name!r} has another form than this format writes, it is not sent", message.id)
    block = message.blocks[spot.block]
    of = f"{block.kind}: {spot.name.removesuffix('_text')}" if spot.name != _BLOCK else block.kind
    return Loss(f"it has another form than this format reads, it is not sent ({of})", message.id, block.number)
