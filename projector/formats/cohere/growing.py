"""An answer of Cohere while it is streamed: contents and calls by their index, the plan, citations, usage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from projector import events as ev
from projector.formats.cohere.parts import KIND_OF, PLAN, TEXT_OF, citation
from projector.formats.shared.response import OpenBlock, ResponseDraft, is_same
from projector.formats.shared.stream import maybe_object, maybe_text, maybe_whole, need_object, need_text
from projector.json_text import JsonText, decode, raw, split

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from projector.message import Block


class Answer(ResponseDraft[OpenBlock]):
    """A response of either version. Contents, calls and citations are counted apart from each other."""

    def __init__(self, run_id: str, message_id: str, step: int, ref: str | None) -> None:
        super().__init__(run_id, message_id, step, ref)
        self._numbers: dict[JsonText, int] = {}
        self._plan: int | None = None
        self._calls = 0
        self._spoken: list[OpenBlock] = []
        """Texts that go on without an index, as the first version streams them."""
        self._first_calls: list[tuple[OpenBlock, str | None]] = []
        """Its calls, with the name that each began under."""

    def plan(self, text: str) -> list[ev.Body]:
        """More of what the model is about to do."""
        if not text:
            return []
        bodies = self.say("reasoning", PLAN, text)
        self._plan = self.growing.number if self.growing is not None else None
        return bodies

    def speak(self, text: str) -> list[ev.Body]:
        """More text."""
        if not text:
            return []
        bodies = self.say("text", None, text)
        if self.growing is not None and self.growing not in self._spoken[-1:]:
            self._spoken.append(self.growing)
        return bodies

    def speak_whole(self, text: str) -> list[ev.Body]:
        """All that was said: what was left out is added, another text counts."""
        if not self._spoken:
            return self.speak(text)
        *before, block = self._spoken
        for other in before:
            text = other.beyond(text) or ""
        if block is self.growing:
            return self.complete(block, text)
        if not text or block.beyond(text) == "":
            return []
        block.text = text
        block.become(text)
        return [self.sealed(block)]

    def take_content(self, index: JsonText, content: Mapping[str, JsonText]) -> list[ev.Body]:
        """A content begins, or goes on."""
        kind = next((name for name in TEXT_OF if name in content), maybe_text(content, "type") or "text")
        text = maybe_text(content, TEXT_OF.get(kind, "")) or ""
        block = self.open.get(("content", index))
        bodies: list[ev.Body] = []
        if block is None:
            block = OpenBlock(KIND_OF.get(kind, "provider"), None if kind in KIND_OF else kind)
            bodies = [*self.hush(), *self.begin(("content", index), block)]
            self._numbers[index] = block.number
        return bodies + self.grow(block, text)

    def take_call(self, index: JsonText, call: Mapping[str, JsonText]) -> list[ev.Body]:
        """A call begins, or its arguments go on."""
        function = maybe_object(call, "function")
        ref, name, piece = maybe_text(call, "id"), maybe_text(function, "name"), maybe_text(function, "arguments")
        block = self.open.get(("call", index))
        bodies: list[ev.Body] = []
        if block is None:
            block = OpenBlock("tool_call")
            bodies = [*self.hush(), *self.begin(("call", index), block, name, self.name_call(ref))]
        return bodies + self.grow(block, piece or "")

    def take_first_call(self, delta: Mapping[str, JsonText]) -> list[ev.Body]:
        """A piece of a call of the first version: its name, or more of its parameters."""
        key = ("call", delta.get("index", "0"))
        name, piece = maybe_text(delta, "name"), maybe_text(delta, "parameters")
        block = self.open.get(key)
        bodies: list[ev.Body] = []
        if block is None:
            block = OpenBlock("tool_call")
            bodies = [*self.hush(), *self.begin(key, block, name, self.name_call(None))]
            self._first_calls.append((block, name))
        return bodies + self.grow(block, piece or "")

    def put_first_calls(self, calls: Iterable[tuple[str, JsonText]]) -> list[ev.Body]:
        """The calls of the first version as a whole, name and input; those that came in pieces end here."""
        bodies = self.hush()
        for at, (name, given) in enumerate(calls):
            if at < len(self._first_calls):
                bodies += self._correct_call(at, name, given)
                continue
            block = OpenBlock("tool_call")
            block.given = given
            key = ("call", f"whole {at}")
            bodies += self.begin(key, block, name, self.name_call(None)) + self.seal(key)
            self._first_calls.append((block, name))
        return bodies

    def _correct_call(self, at: int, name: str, given: JsonText) -> list[ev.Body]:
        block, began_as = self._first_calls[at]
        key = next((key for key, other in self.open.items() if other is block), None)
        text = "".join(block.pieces)
        is_known = is_same(text or block.whole or block.given, given) and name in (began_as, block.final_name)
        if key is None and is_known:
            return []
        block.final_name = name if name != began_as else None
        block.whole = given
        if key is not None:
            return self.seal(key)
        end = self.sealed(block)
        return [replace(end, text=text if end.text is None else end.text)]

    def name_call(self, ref: str | None) -> str:
        """The id of a call; one that has none is named by its place."""
        self._calls += 1
        return ref or f"{self.message_id}.call{self._calls}"

    def add(self, block: Block) -> list[ev.Body]:
        """A block that came whole, with its citations."""
        bodies = self.hush() + self.put(block)
        number = self.blocks - 1
        return bodies + [body for one in block.citations for body in self.cite(number, one)]

    def take_citation(self, text: JsonText) -> list[ev.Body]:
        """A source of a content, by its index; of the newest text where there is none."""
        source = split(text)
        number = self._numbers.get(source.get("content_index", ""), self.last_text)
        if decode(source.get("type", "null")) == "PLAN":
            number = self._plan
        return [] if number is None else self.cite(number, citation(text))

    def measure(self, usage: ev.RunUsage | None) -> list[ev.Body]:
        """Tokens that were read and written, where they are told."""
        return [] if usage is None else self.use(usage)


def usage_of(fields: Mapping[str, JsonText], name: str) -> ev.RunUsage | None:
    """The tokens in a field; where only what is billed is told, that. Raises `FormatError`."""
    usage = maybe_object(fields, name)
    counts = maybe_object(usage, "tokens") or maybe_object(usage, "billed_units")
    if not counts:
        return None
    given, made = maybe_whole(counts, "input_tokens"), maybe_whole(counts, "output_tokens")
    return ev.RunUsage("", "", given, made, maybe_whole(usage, "cached_tokens"), raw=raw(fields[name]))


def first_calls(calls: Iterable[JsonText]) -> list[tuple[str, JsonText]]:
    """Calls of the first version: name and input. Raises `FormatError`, `InvalidJson`."""
    given = [split(text) for text in calls]
    return [(need_text(call, "name"), call.get("parameters", "{}")) for call in given]


def inner(fields: Mapping[str, JsonText], name: str) -> dict[str, JsonText]:
    """What a delta says of a message's field. Raises `FormatError`."""
    return need_object(need_object(need_object(fields, "delta"), "message"), name)
