"""A response of a model while it is streamed: its blocks by what the provider calls them, as events of one message.

A stream reader reads the fields of its protocol and says what they mean; here blocks are numbered, what is open is
kept until it is whole, the pieces of a call's input are joined, and it is told once what came more than once. What a
provider says of the whole wins over what it had streamed.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

from msgspec.structs import replace

from projector import events as ev
from projector.json_text import InvalidJson, JsonText, decode, is_json, join_fields, raw

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from projector.message import Block

CALLS: Final = ("tool_call", "server_tool_call")


_COUNTS: Final = ("input", "output", "cached", "cache_write", "reasoning")


class OpenBlock:
    """A block that still grows, and what its end will say. Of its text it knows how much there is and whether it is this."""

    def __init__(self, kind: Any, ref: str | None = None) -> None:
        self.kind, self.ref = kind, ref
        self.number = -1
        """Its place in the message; none before it begins."""
        self.pieces: list[str] = []
        """The input of a call as it was streamed: whether it is JSON is seen at the end."""
        self.given: JsonText = ""
        """The input of a call of which nothing is streamed."""
        self.whole: JsonText = ""
        """The input of a call that wins over what was streamed."""
        self.takes_text = False
        """Whether the text of a call is no JSON, as of tools that take text."""
        self.text: str | None = None
        """The whole text where it is another than what was streamed."""
        self.final_name: str | None = None
        self.final_call_id: str | None = None
        """What a call is called in the end, where it began under another name or id."""
        self.signature: str | None = None
        self.kept: JsonText | None = None
        """What its own fields do not say, for its maker."""
        self._length_bytes = 0
        self._digest = hashlib.blake2b(digest_size=16)

    def sign(self, piece: str | None) -> None:
        """More of its signature."""
        if piece:
            self.signature = (self.signature or "") + piece

    def opaque(self) -> JsonText | None:
        """What is kept for its maker, with what its own fields do not say of it."""
        return self.kept

    def measure(self, text: str) -> None:
        """More of its text is there."""
        units = text.encode("utf-16-le", "surrogatepass")  # where a pair of surrogates is cut in two, too
        self._length_bytes += len(units)
        self._digest.update(units)

    def become(self, text: str) -> None:
        """Its text is this, whatever it was."""
        self._length_bytes, self._digest = 0, hashlib.blake2b(digest_size=16)
        self.measure(text)

    def beyond(self, whole: str) -> str | None:
        """What the whole text has beyond what is there; None if it is another text."""
        units = whole.encode("utf-16-le", "surrogatepass")
        begun = hashlib.blake2b(units[: self._length_bytes], digest_size=16)
        if begun.digest() != self._digest.digest():
            return None
        return units[self._length_bytes :].decode("utf-16-le", "surrogatepass")


B = TypeVar("B", bound=OpenBlock)


class ResponseDraft(Generic[B]):
    """One message under way. Each verb gives the events that it adds."""

    def __init__(self, run_id: str, message_id: str, step: int | None, ref: str | None = None) -> None:
        self.run_id, self.message_id, self.ref = run_id, message_id, ref
        self.step = step
        """The step of the run that it begins and ends; None where it is no step."""
        self.request_id = ref or message_id
        self.blocks = 0
        self.open: dict[object, B] = {}
        """The blocks that still grow, by what the provider calls them."""
        self.growing: OpenBlock | None = None
        """The text that goes on where a provider names no blocks."""
        self.last_text: int | None = None
        """The newest block of text, which citations belong to that name none."""
        self.totals: dict[str, JsonText] = {}
        """Usage as the provider tells it, of one that leaves out later what it said before."""
        self.used: ev.RunUsage | None = None
        self.is_finished = False
        self.noted: dict[str, JsonText] = {}

    def start(self, role: Any = "assistant", name: str | None = None) -> list[ev.Body]:
        """The message begins, and with it a step of the run."""
        return [*self._step_is("started"), ev.MessageStarted(self.run_id, self.message_id, role, name, self.ref)]

    def begin(
        self, key: object, block: B, name: str | None = None, tool_call_id: str | None = None, media_type: str | None = None
    ) -> list[ev.Body]:
        """A block begins, known by this key until it is sealed."""
        self.open[key] = block
        return [self.started(block, name, tool_call_id, media_type)]

    def reserve(self) -> int:
        """The next place in the message, for a block that begins later."""
        self.blocks += 1
        return self.blocks - 1

    def say(self, kind: Any, ref: str | None, text: str, kept: JsonText | None = None) -> list[ev.Body]:
        """Text goes on where the same was said last, else what grew is whole and a block begins."""
        at = self.growing
        if at is not None and at.kind == kind and at.ref == ref:
            return self.grow(at, text)
        bodies = self.hush()
        at = self.growing = OpenBlock(kind, ref)
        at.kept = kept
        return [*bodies, self.started(at), *self.grow(at, text)]

    def hush(self) -> list[ev.Body]:
        """The text that goes on is whole."""
        block, self.growing = self.growing, None
        return [] if block is None else [self.sealed(block)]

    def grow(self, block: OpenBlock, text: str, field: str | None = None) -> list[ev.Body]:
        """More of a block; nothing where the text is empty."""
        if not text:
            return []
        if field is None:
            block.measure(text)
            if block.kind in CALLS:
                block.pieces.append(text)
        return [ev.BlockDelta(self.message_id, block.number, text, field)]

    def complete(self, block: OpenBlock, whole: str) -> list[ev.Body]:
        """What the provider says all of a block's text is. What was left out is added; another text counts in the end.

        An empty text says nothing.
        """
        if not whole:
            return []
        rest = block.beyond(whole)
        block.text = whole if rest is None else None
        return self.grow(block, rest or "")

    def seal(self, key: object) -> list[ev.Body]:
        """A block is whole; nothing where none is open."""
        block = self.open.pop(key, None)
        return [] if block is None else [self.sealed(block)]

    def seal_all(self) -> list[ev.Body]:
        """All blocks are whole: the text that goes on, then the others in the order they were begun in."""
        return [*self.hush(), *(body for key in list(self.open) for body in self.seal(key))]

    def started(
        self, block: OpenBlock, name: str | None = None, tool_call_id: str | None = None, media_type: str | None = None
    ) -> ev.BlockStarted:
        """The beginning of a block. It takes the next place, unless one was reserved for it."""
        if block.number < 0:
            block.number = self.reserve()
        if block.kind == "text":
            self.last_text = block.number
        return ev.BlockStarted(self.message_id, block.number, block.kind, name, tool_call_id, media_type, block.ref)

    def sealed(self, block: OpenBlock) -> ev.BlockSealed:
        """The end of a block. What was given as a whole wins over the pieces of a call's input."""
        given, parse, text = "", None, block.text
        if block.kind in CALLS:
            given, parse, text = _input_of(block)
        kept = raw(block.opaque())
        named = block.final_name, block.final_call_id
        return ev.BlockSealed(self.message_id, block.number, block.signature, kept, raw(given), parse, text, *named)

    def sealed_as(self, number: int, whole: Block, text: str | None = None) -> ev.BlockSealed:
        """The end of a block as its provider tells it of the whole; `text` where it is not what was streamed."""
        parse: Any = whole.parse
        return ev.BlockSealed(self.message_id, number, whole.signature, raw(whole.opaque), raw(whole.input_text), parse, text)

    def put(self, block: Block) -> list[ev.Body]:
        """A block that comes whole."""
        kind: Any = block.kind
        number = self.reserve()
        if kind == "text":
            self.last_text = number
        named = (block.name, block.tool_call_id, block.media_type, block.provider_ref)
        bodies: list[ev.Body] = [ev.BlockStarted(self.message_id, number, kind, *named)]
        if block.text:
            bodies.append(ev.BlockDelta(self.message_id, number, block.text))
        bodies += [ev.BlockDelta(self.message_id, number, text, name) for name, text in block.fields.items()]
        return [*bodies, self.sealed_as(number, block)]

    def cite(self, number: int, citation: JsonText) -> list[ev.Body]:
        """A source of what the block of this number says."""
        return [ev.BlockAnnotated(self.message_id, number, raw(citation))]

    def note(self, fields: Mapping[str, JsonText]) -> list[ev.Body]:
        """What is said of the message as a whole; null says nothing."""
        return self._annotate({name: text for name, text in fields.items() if text.strip() != "null"})

    def note_news(self, fields: Mapping[str, JsonText]) -> list[ev.Body]:
        """The same of a provider that says it once more in each chunk."""
        news = {name: text for name, text in fields.items() if text != "null" and self.noted.get(name) != text}
        self.noted |= news
        return self._annotate(news)

    def use(
        self, usage: ev.RunUsage, *, corrects: Collection[str] = (), totals: dict[str, JsonText] | None = None
    ) -> list[ev.Body]:
        """Tokens of this response so far, in the provider's own `totals`; whose they are is filled in.

        They are counts of what was spent, so they never fall, and what is left out or null stays as it was; but for
        those that the provider estimates first and `corrects` later. Nothing where nothing is new.
        """
        before = self.used
        if totals is not None:
            self.totals = totals
        if before is not None:
            counts = {name: _most(getattr(before, name), getattr(usage, name)) for name in _COUNTS}
            told = {name: value for name in corrects if (value := getattr(usage, name)) is not None}
            usage = replace(usage, **(counts | told))
        if usage == before:
            return []
        self.used = usage
        return [replace(usage, run_id=self.run_id, request_id=self.request_id)]

    def add_up(self, said: Mapping[str, JsonText], *, corrects: Collection[str] = ()) -> dict[str, JsonText]:
        """The totals that a provider tells piece by piece: null says nothing, and no count falls that it does not correct."""
        totals = dict(self.totals)
        for name, text in said.items():
            known = decode(totals[name]) if name in totals and name not in corrects else None
            value = decode(text)
            if value is not None and not (_is_count(known) and _is_count(value) and value < known):
                totals[name] = text
        return totals

    def refuse(self, block: Block) -> list[ev.Body]:
        """A refusal, which has no block in most streams; without one an empty message would vanish."""
        return [*self.hush(), *self.put(block)]

    def finish(self, status: Literal["complete", "partial"]) -> list[ev.Body]:
        """Nothing more belongs to this message."""
        self.is_finished = True
        return [ev.MessageFinished(self.message_id, status), *self._step_is("finished")]

    def reset(self) -> list[ev.Body]:
        """What its step has said is taken back."""
        return self._step_is("reset")

    def _step_is(self, phase: Literal["started", "finished", "reset"]) -> list[ev.Body]:
        return [] if self.step is None else [ev.RunStep(self.run_id, self.step, phase)]

    def _annotate(self, said: dict[str, JsonText]) -> list[ev.Body]:
        return [ev.MessageAnnotated(self.message_id, raw(join_fields(said)))] if said else []


def _input_of(block: OpenBlock) -> tuple[JsonText, Literal["ok", "bad"], str | None]:
    """The input of a call, whether it is JSON, and its text where that is not what was streamed."""
    text = "".join(block.pieces) if block.text is None else block.text
    if block.whole:
        is_said = not text or block.takes_text or decode(block.whole) == text or is_same(text, block.whole)
        return block.whole, "ok", block.text if is_said else block.whole
    given = "" if text else block.given
    return given, "ok" if is_json(text or given) else "bad", block.text


def is_same(text: str, given: JsonText) -> bool:
    """Whether a text says what this JSON does."""
    try:
        return bool(decode(text) == decode(given))
    except InvalidJson:
        return False


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _most(before: int | None, after: int | None) -> int | None:
    return before if after is None else after if before is None else max(before, after)
