"""One response while it is streamed: which blocks are open, and what the end of an item adds to its deltas."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

from projector import events as ev
from projector.formats.shared.fields import count_of, is_whole, says_nothing, text_of_field
from projector.formats.shared.openai_items import PROVIDER, citation_of, item_blocks, item_type, keep_id
from projector.json_text import JsonText, decode, join_fields, raw, split
from projector.message import Block

if TYPE_CHECKING:
    from collections.abc import Mapping

_TEXT_DELTAS: Final = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.reasoning_text.delta": "reasoning",
}
_CALL_DELTAS: Final = {
    "response.function_call_arguments.delta": "tool_call",
    "response.custom_tool_call_input.delta": "tool_call",
    "response.apply_patch_call_operation_diff.delta": "tool_call",
    "response.mcp_call_arguments.delta": "server_tool_call",
    "response.code_interpreter_call_code.delta": "server_tool_call",
}
_TEXT_DONE: Final = {
    "response.output_text.done": ("text", "text"),
    "response.refusal.done": ("refusal", "refusal"),
    "response.function_call_arguments.done": ("tool_call", "arguments"),
    "response.custom_tool_call_input.done": ("tool_call", "input"),
    "response.apply_patch_call_operation_diff.done": ("tool_call", "diff"),
    "response.mcp_call_arguments.done": ("server_tool_call", "arguments"),
    "response.code_interpreter_call_code.done": ("server_tool_call", "code"),
}
_SAID_AGAIN: Final = {
    "response.content_part.added", "response.content_part.done", "response.reasoning_summary_part.added",
    "response.reasoning_summary_part.done", "response.reasoning_summary_text.done", "response.reasoning_text.done",
    "response.shell_call_command.done",
}  # fmt: skip
"""Events that say nothing which deltas before them or the end of the item do not say."""
_BEGIN_LATE: Final = ("message", "reasoning", "tool_search_call")
"""Blocks of messages and reasoning begin with their text; a search for tools ends with another call id than it begins with."""
_CALLS: Final = ("tool_call", "server_tool_call")
_BETWEEN: Final = "\n\n"


class _Open:
    """A block that still grows: how much of its text there is, and what it is, so that its whole text can be compared."""

    def __init__(self, number: int, kind: str, ref: str | None) -> None:
        self.number, self.kind, self.ref = number, kind, ref
        self.citations = 0
        self.part: object = None  # of reasoning, the part that came last
        self.pieces: list[str] = []  # of calls only: whether they are JSON is seen at the end
        self._length_bytes = 0
        self._digest = hashlib.blake2b(digest_size=16)

    def grow(self, text: str) -> None:
        units = text.encode("utf-16-le", "surrogatepass")  # where a pair of surrogates is cut in two, too
        self._length_bytes += len(units)
        self._digest.update(units)
        if self.kind in _CALLS:
            self.pieces.append(text)

    def rest(self, whole: str) -> str | None:
        """What the whole text has beyond what is there; None if it is another text."""
        units = whole.encode("utf-16-le", "surrogatepass")
        begun = hashlib.blake2b(units[: self._length_bytes], digest_size=16)
        if begun.digest() != self._digest.digest():
            return None
        return units[self._length_bytes :].decode("utf-16-le", "surrogatepass")


class _Item:
    """An item of the output: its open blocks by part; 0 for all that is no message."""

    def __init__(self, kind: str, ref: str | None) -> None:
        self.kind, self.ref = kind, ref
        self.open: dict[int, _Open] = {}


class Response:
    """One response that is being streamed."""

    def __init__(self, run_id: str, message_id: str, ref: str | None, step: int) -> None:
        self.run_id, self.message_id, self.ref, self.step = run_id, message_id, ref, step
        self.request_id = ref or message_id
        self._blocks = 0
        self._items: dict[object, _Item] = {}  # those that are not done, by their place
        self._done: set[object] = set()  # places and ids
        self._noted: dict[str, JsonText] = {}

    def annotate(self, fields: Mapping[str, JsonText]) -> list[ev.Body]:
        """What is new about the response as a whole."""
        said = {name: text for name, text in fields.items() if not says_nothing(text) and self._noted.get(name) != text}
        self._noted |= said
        return [ev.MessageAnnotated(self.message_id, raw(join_fields(said)))] if said else []

    def use(self, text: JsonText) -> list[ev.Body]:
        """Usage; cached and reasoning tokens lie inside the totals."""
        if says_nothing(text):
            return []
        usage: dict[str, Any] = decode(text)
        given, made = (_object(usage.get(name)) for name in ("input_tokens_details", "output_tokens_details"))
        body = ev.RunUsage(
            run_id=self.run_id,
            request_id=self.request_id,
            input=count_of(usage.get("input_tokens")),
            output=count_of(usage.get("output_tokens")),
            cached=count_of(given.get("cached_tokens")),
            cache_write=count_of(given.get("cache_write_tokens")),
            reasoning=count_of(made.get("reasoning_tokens")),
            raw=raw(text),
        )
        return [body]

    def take(self, kind: str, fields: Mapping[str, JsonText]) -> list[ev.Body] | None:
        """What an event inside the response becomes; None if nobody knows it."""
        if kind in ("response.output_item.added", "response.output_item.done"):
            step = self._add if kind.endswith(".added") else self._finish
            return step(self._place(fields), fields["item"])
        if kind in _TEXT_DELTAS or kind in _CALL_DELTAS:
            return self._grow(kind, fields)
        if kind in _TEXT_DONE:
            return self._complete(*_TEXT_DONE[kind], fields)
        if kind == "response.output_text.annotation.added":
            return self._cite(fields)
        if kind in ("response.shell_call_command.added", "response.shell_call_command.delta"):
            return self._command(kind, fields)
        return [] if kind in _SAID_AGAIN else None

    def take_missing(self, number: int, item: JsonText, *, is_whole: bool) -> list[ev.Body]:
        """An item of the output that the stream has not brought to its end; of a failed response it stays partial."""
        fields = split(item)
        ref = text_of_field(fields, "id")
        place = next((place for place, known in self._items.items() if ref is not None and known.ref == ref), number)
        if place in self._done or (ref is not None and ref in self._done):
            return []
        return self._finish(place, item) or [] if is_whole or fields.get("status") == '"completed"' else []

    def seal_rest(self) -> list[ev.Body]:
        """The response is whole: what its events left open is as it stands."""
        bodies: list[ev.Body] = []
        for item in self._items.values():
            for block in item.open.values():
                parse: Any = ("ok" if is_whole("".join(block.pieces)) else "bad") if block.kind in _CALLS else None
                bodies.append(ev.BlockSealed(self.message_id, block.number, parse=parse))
        self._items = {}
        return bodies

    def _place(self, fields: Mapping[str, JsonText]) -> object:
        """The place in the output; without one, the id of the item, else the newest item."""
        place: object = count_of(decode(fields.get("output_index", "null")))
        if place is None:
            place = text_of_field(fields, "item_id") or (
                text_of_field(split(fields["item"]), "id") if "item" in fields else next(reversed(self._items), None)
            )
        return place

    def _part(self, kind: str, fields: Mapping[str, JsonText]) -> int:
        return count_of(decode(fields.get("content_index", "null"))) or 0 if kind in ("text", "refusal") else 0

    def _add(self, place: object, text: JsonText) -> list[ev.Body] | None:
        fields, blocks = split(text), item_blocks(text)
        kind = item_type(fields)
        item = self._items[place] = _Item(kind, text_of_field(fields, "id"))
        if kind in _BEGIN_LATE:
            return []
        [block] = blocks
        return self._begin(item, 0, block) if block.kind in _CALLS else []

    def _begin(self, item: _Item, part: int, block: Block) -> list[ev.Body]:
        kind: Any = block.kind
        opened = item.open[part] = _Open(self._blocks, block.kind, block.provider_ref)
        self._blocks += 1
        started = ev.BlockStarted(
            self.message_id, opened.number, kind, block.name, block.tool_call_id, block.media_type, block.provider_ref
        )
        return [started, *self._say(opened, block.text)]

    def _say(self, block: _Open, text: str) -> list[ev.Body]:
        block.grow(text)
        return [ev.BlockDelta(self.message_id, block.number, text)] if text else []

    def _find(self, kind: str, fields: Mapping[str, JsonText]) -> tuple[list[ev.Body], _Open] | None:
        """The block that an event is about; one whose beginning was missed begins here. None if it is done."""
        place, part = self._place(fields), self._part(kind, fields)
        if place in self._done:
            return None
        ref = text_of_field(fields, "item_id")
        item = self._items.setdefault(place, _Item(kind, ref))
        if part in item.open:
            return [], item.open[part]
        if kind in _CALLS:
            return None  # nobody knows which tool it calls
        begun = self._begin(item, part, Block(kind, provider_ref=item.ref))
        return begun, item.open[part]

    def _grow(self, kind: str, fields: Mapping[str, JsonText]) -> list[ev.Body] | None:
        text = _text(fields, "delta")
        our_kind = _TEXT_DELTAS.get(kind) or _CALL_DELTAS[kind]
        found = self._find(our_kind, fields) if text else ([], None)
        if found is None or found[1] is None:
            return None if found is None else []
        bodies, block = found
        if our_kind == "reasoning":
            part = (kind, fields.get("summary_index", fields.get("content_index")))
            if block.part not in (None, part):
                text = _BETWEEN + text
            block.part = part
        return bodies + self._say(block, text)

    def _complete(self, kind: str, name: str, fields: Mapping[str, JsonText]) -> list[ev.Body] | None:
        """The whole text of a block: what its deltas left out is added; another text is kept as it came."""
        text = _text(fields, name)
        found = self._find(kind, fields) if text else ([], None)
        if found is None or found[1] is None:
            return None if found is None else []
        bodies, block = found
        rest = block.rest(text)
        return None if rest is None else bodies + self._say(block, rest)

    def _command(self, kind: str, fields: Mapping[str, JsonText]) -> list[ev.Body] | None:
        """Commands for a shell come one by one; they stand in lines."""
        if kind.endswith(".delta"):
            text = _text(fields, "delta")
        else:
            text = ("\n" if decode(fields.get("command_index", "0")) else "") + _text(fields, "command")
        found = self._find("tool_call", fields)
        return None if found is None else found[0] + self._say(found[1], text)

    def _cite(self, fields: Mapping[str, JsonText]) -> list[ev.Body] | None:
        citation = raw(citation_of(fields["annotation"]))
        found = self._find("text", fields)
        if found is None:
            return None
        bodies, block = found
        block.citations += 1
        return [*bodies, ev.BlockAnnotated(self.message_id, block.number, citation)]

    def _finish(self, place: object, text: JsonText) -> list[ev.Body] | None:
        """An item is whole: its blocks get what they lack, and are sealed."""
        fields, blocks = split(text), item_blocks(text)
        ref = text_of_field(fields, "id")
        if place in self._done:
            return []
        item = self._items.pop(place, None) or _Item(item_type(fields), ref)
        self._done |= {place} | ({ref} if ref is not None else set())
        bodies: list[ev.Body] = []
        is_same = True
        for part, block in enumerate(blocks):
            opened = item.open.pop(part, None)
            if opened is None:
                bodies += self._begin(item, part, block)
                opened = item.open.pop(part)
            else:
                rest = opened.rest(block.text)
                is_same = is_same and (rest is not None or block.kind == "reasoning")  # its payload has all of it
                bodies += self._say(opened, rest or "")
            bodies += self._seal(opened, block)
        left = [ev.BlockSealed(self.message_id, opened.number) for opened in item.open.values() if opened.kind not in _CALLS]
        return [*bodies, *left] if is_same else [*bodies, *left, ev.RawEvent(PROVIDER, raw(text))]

    def _seal(self, opened: _Open, block: Block) -> list[ev.Body]:
        parse: Any = block.parse
        if opened.ref != block.provider_ref:
            block = keep_id(block)  # the id that the item has in the end is the one to name it by
        cited = block.citations[opened.citations :]
        bodies: list[ev.Body] = [ev.BlockAnnotated(self.message_id, opened.number, raw(citation)) for citation in cited]
        bodies.append(
            ev.BlockSealed(
                self.message_id,
                opened.number,
                signature=block.signature,
                opaque=raw(block.opaque),
                input=raw(block.input),
                parse=parse,
            )
        )
        if block.provider_ref == "mcp_approval_request" and block.tool_call_id is not None:
            bodies.append(ev.ToolApproval(block.tool_call_id, block.tool_call_id))
        return bodies


def _text(fields: Mapping[str, JsonText], name: str) -> str:
    text = decode(fields[name])
    if not isinstance(text, str):
        raise TypeError(f"its {name} is no text")
    return text


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
