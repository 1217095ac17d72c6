"""One response while it is streamed: which blocks are open, and what the end of an item adds to its deltas."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

from projector import events as ev
from projector.formats.shared.fields import count_of, says_nothing, text_of_field
from projector.formats.shared.openai_items import PROVIDER, citation_of, item_blocks, item_type, keep_id
from projector.formats.shared.response import CALLS, OpenBlock, ResponseDraft
from projector.formats.shared.stream import need, need_object, need_text
from projector.json_text import JsonText, decode, raw, split
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
_BETWEEN: Final = "\n\n"


class _Open(OpenBlock):
    """A block that still grows: how much of its text there is, and what it is, so that its whole text can be compared."""

    def __init__(self, kind: str, ref: str | None) -> None:
        super().__init__(kind, ref)
        self.citations = 0
        self.part: object = None  # of reasoning, the part that came last
        self._length_bytes = 0
        self._digest = hashlib.blake2b(digest_size=16)

    def measure(self, text: str) -> None:
        """More of its text is there."""
        units = text.encode("utf-16-le", "surrogatepass")  # where a pair of surrogates is cut in two, too
        self._length_bytes += len(units)
        self._digest.update(units)

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


class Output(ResponseDraft[_Open]):
    """One response that is being streamed: items at their places, each of one block or more."""

    def __init__(self, run_id: str, message_id: str, step: int, ref: str | None) -> None:
        super().__init__(run_id, message_id, step, ref)
        self._items: dict[object, _Item] = {}  # those that are not done, by their place
        self._done: set[object] = set()  # places and ids

    def learn(self, fields: Mapping[str, JsonText]) -> list[ev.Body]:
        """What is new about the response as a whole."""
        return self.note_news({name: text for name, text in fields.items() if not says_nothing(text)})

    def count(self, text: JsonText) -> list[ev.Body]:
        """Usage; cached and reasoning tokens lie inside the totals."""
        if says_nothing(text):
            return []
        usage: dict[str, Any] = decode(text)
        given, made = (_object(usage.get(name)) for name in ("input_tokens_details", "output_tokens_details"))
        body = ev.RunUsage(
            run_id="",
            request_id="",
            input=count_of(usage.get("input_tokens")),
            output=count_of(usage.get("output_tokens")),
            cached=count_of(given.get("cached_tokens")),
            cache_write=count_of(given.get("cache_write_tokens")),
            reasoning=count_of(made.get("reasoning_tokens")),
            raw=raw(text),
        )
        return self.use(body)

    def take(self, kind: str, fields: Mapping[str, JsonText]) -> list[ev.Body] | None:
        """What an event inside the response becomes; None if nobody knows it."""
        if kind in ("response.output_item.added", "response.output_item.done"):
            step = self._add if kind.endswith(".added") else self._finish
            return step(self._place(fields), need(fields, "item"))
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

    def seal_all(self) -> list[ev.Body]:
        """The response is whole: what its events left open is as it stands."""
        items, self._items = self._items, {}
        return [self.sealed(block) for item in items.values() for block in item.open.values()]

    def _place(self, fields: Mapping[str, JsonText]) -> object:
        """The place in the output; without one, the id of the item, else the newest item."""
        place: object = count_of(decode(fields.get("output_index", "null")))
        if place is None:
            place = text_of_field(fields, "item_id") or (
                text_of_field(need_object(fields, "item"), "id") if "item" in fields else next(reversed(self._items), None)
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
        return self._begin(item, 0, block) if block.kind in CALLS else []

    def _begin(self, item: _Item, part: int, block: Block) -> list[ev.Body]:
        opened = item.open[part] = _Open(block.kind, block.provider_ref)
        return [self.started(opened, block.name, block.tool_call_id, block.media_type), *self._say(opened, block.text)]

    def _say(self, block: _Open, text: str) -> list[ev.Body]:
        block.measure(text)
        return self.grow(block, text)

    def _find(self, kind: str, fields: Mapping[str, JsonText]) -> tuple[list[ev.Body], _Open] | None:
        """The block that an event is about; one whose beginning was missed begins here. None if it is done."""
        place, part = self._place(fields), self._part(kind, fields)
        if place in self._done:
            return None
        ref = text_of_field(fields, "item_id")
        item = self._items.setdefault(place, _Item(kind, ref))
        if part in item.open:
            return [], item.open[part]
        if kind in CALLS:
            return None  # nobody knows which tool it calls
        begun = self._begin(item, part, Block(kind, provider_ref=item.ref))
        return begun, item.open[part]

    def _grow(self, kind: str, fields: Mapping[str, JsonText]) -> list[ev.Body] | None:
        text = need_text(fields, "delta")
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
        text = need_text(fields, name)
        found = self._find(kind, fields) if text else ([], None)
        if found is None or found[1] is None:
            return None if found is None else []
        bodies, block = found
        rest = block.rest(text)
        return None if rest is None else bodies + self._say(block, rest)

    def _command(self, kind: str, fields: Mapping[str, JsonText]) -> list[ev.Body] | None:
        """Commands for a shell come one by one; they stand in lines."""
        if kind.endswith(".delta"):
            text = need_text(fields, "delta")
        else:
            text = ("\n" if decode(fields.get("command_index", "0")) else "") + need_text(fields, "command")
        found = self._find("tool_call", fields)
        return None if found is None else found[0] + self._say(found[1], text)

    def _cite(self, fields: Mapping[str, JsonText]) -> list[ev.Body] | None:
        citation = citation_of(need(fields, "annotation"))
        found = self._find("text", fields)
        if found is None:
            return None
        bodies, block = found
        block.citations += 1
        return bodies + self.cite(block.number, citation)

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
            bodies += self._end(opened, block)
        left = [self.sealed(opened) for opened in item.open.values() if opened.kind not in CALLS]
        return [*bodies, *left] if is_same else [*bodies, *left, ev.RawEvent(PROVIDER, raw(text))]

    def _end(self, opened: _Open, block: Block) -> list[ev.Body]:
        if opened.ref != block.provider_ref:
            block = keep_id(block)  # the id that the item has in the end is the one to name it by
        cited = [body for citation in block.citations[opened.citations :] for body in self.cite(opened.number, citation)]
        bodies = [*cited, self.sealed_as(opened.number, block)]
        if block.provider_ref == "mcp_approval_request" and block.tool_call_id is not None:
            bodies.append(ev.ToolApproval(block.tool_call_id, block.tool_call_id))
        return bodies


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
