"""A message while it goes out as AG-UI: which of its blocks are open, and which message of AG-UI each goes into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from projector.formats.agui.stream_events import call_start, content, encrypted, ends, text_start, thought_start, whole
from projector.formats.agui.writer import write
from projector.formats.outgoing.display import HINT
from projector.formats.shared.live import GrowingBlock, one_block

if TYPE_CHECKING:
    from collections.abc import Collection

    from projector import events as ev
    from projector.formats.agui.client_view import ClientView

Wire = list[dict[str, Any]]
_TEXT: Final = ("text", "refusal")


class OutgoingMessage:
    """Gives the events for what happens in one message.

    `calls` are the ids of calls that have gone out, `shown` of those that a client shows besides. `expected`: the
    messages of AG-UI that it becomes, where they are known.
    """

    def __init__(self, body: ev.MessageStarted, expected: Wire | None, calls: set[str], shown: Collection[str] = ()) -> None:
        self.id, self.run_id, self._role, self._name = body.message_id, body.run_id, body.role, body.name
        self._expected, self._calls, self._shown = expected or [], calls, shown
        self._open: dict[int, GrowingBlock] = {}
        self._seen: set[int] = set()
        self._round = ""
        self._answers = 0
        self._piece: str | None = None
        """The message of AG-UI that calls name as their parent; text goes into it unless text of it has ended."""
        self._known: dict[str, Any] | None = None
        self._text: GrowingBlock | None = None
        self._has_text = False

    def start(self, body: ev.BlockStarted) -> Wire:
        """A block begins."""
        if body.block in self._seen:
            return []
        self._seen.add(body.block)
        block = self._open[body.block] = GrowingBlock(body)
        if body.kind in _TEXT and self._role != "tool":  # AG-UI has no text of a tool: it gives results only
            return self._start_text(block)
        if self._role != "assistant":
            return []
        if body.kind == "reasoning":
            events = self._end_text()
            self._piece, self._has_text, self._known = None, False, self._next()
            block.ref = self._known["id"] if self._known else self._ref(body.block)
            return [*events, *thought_start(block.ref, self._metadata())]
        if body.kind == "tool_call":
            events = self._end_text()
            block.ref = body.tool_call_id or f"call_{self.id}_{body.block}"
            while block.ref in self._calls or block.ref in self._shown:
                block.ref += "~"
            self._calls.add(block.ref)
            parent = self._answer(body.block)
            return [*events, call_start(block.ref, block.name, parent, self._of_call(block.ref))]
        return []

    def grow(self, body: ev.BlockDelta) -> Wire:
        """A block goes on; pieces that nobody sees, such as the bytes of media, are nothing."""
        block = self._open.get(body.block)
        said = "" if block is None else block.grow(body)
        return [content(block, said)] if block is not None and said and block.ref else []

    def ref_of(self, number: int) -> str | None:
        """What AG-UI calls a block that is open."""
        block = self._open.get(number)
        return None if block is None else block.ref

    def seal(self, body: ev.BlockSealed) -> Wire:
        """A block is whole. Its text may go on with the next one, so that it ends when something else comes."""
        block = self._open.get(body.block)
        if block is None:
            return []
        if not block.ref:
            del self._open[body.block]
            is_kept = block.kind == "provider" and self._role == "assistant"
            return [event for piece in self._whole(block, body) for event in whole(piece)] if is_kept else []
        rest = self._rest(block)
        if block.kind in _TEXT:
            del self._open[body.block]
            goes_on = self._text is not None and self._text.ref == block.ref
            return rest + ([] if goes_on or self._is_open(block.ref) else ends(block))
        if block.kind == "reasoning":
            known = self._known if self._known and self._known["id"] == block.ref else self._whole(block, body)[0]
            end, *after = self._end(body.block)
            return [*rest, end, *encrypted("message", block.ref, known), *after]
        expected = self._known_call(block.ref)
        call = expected or self._whole(block, body)[0]["toolCalls"][0]
        [end] = self._end(body.block)
        given = [] if block.has_text else [content(block, call["function"]["arguments"])]
        told = {"metadata": call["metadata"]} if expected is None and "metadata" in call else {}
        return [*rest, *given, *encrypted("tool-call", block.ref, call), end | told]

    def end_call(self, tool_call_id: str) -> Wire:
        """A call has its result: nothing comes to it any more, unless nobody has said its arguments yet."""
        calls = [(number, block) for number, block in self._open.items() if block.kind == "tool_call" and block.has_text]
        found = [number for number, block in calls if block.ref == tool_call_id]
        return [event for number in found for event in self._end(number)]

    def take_back(self) -> Wire:
        """What it has said counts no longer. It may go on, under other ids."""
        events = self.finish()
        self._round += "~"
        self._answers += 1
        self._piece, self._has_text, self._seen = None, False, set()
        return events

    def finish(self) -> Wire:
        """Nothing comes any more: what is open ends."""
        return self._end_text() + [event for number in list(self._open) for event in self._end(number)]

    def reopen(self, view: ClientView) -> Wire:
        """What is open is opened once more, for a client that shows `view`; of calls all that they have said."""
        texts = [block for block in self._open.values() if block.kind in _TEXT] + ([self._text] if self._text else [])
        refs = dict.fromkeys(block.ref for block in texts if block.ref)
        events = [text_start(ref, self._role, self._name, self._metadata()) for ref in refs]
        for block in self._open.values():
            if block.kind == "reasoning" and block.ref:
                events += thought_start(block.ref, self._metadata())
            elif block.kind == "tool_call" and block.ref:
                events.append(call_start(block.ref, block.name, view.parent_of(block.ref), self._of_call(block.ref)))
                events += [content(block, said)] if (said := view.arguments(block.ref)) else []
        return events

    def _start_text(self, block: GrowingBlock) -> Wire:
        if self._text is not None:  # one more block of the same text
            block.ref, self._text = self._text.ref, block
            return []
        if self._has_text:
            self._piece = None
        block.ref = self._answer(block.head.block)
        self._text, self._has_text = block, True
        return [text_start(block.ref, self._role, self._name, self._metadata())]

    def _end_text(self) -> Wire:
        """Text ends where something else begins, unless it still grows beside it."""
        block, self._text = self._text, None
        if block is None or self._is_open(block.ref):
            return []
        value = encrypted("message", block.ref, self._known) if self._known else []
        return [*value, *ends(block)]

    def _end(self, number: int) -> Wire:
        block = self._open.pop(number)
        if not block.ref or (block.kind in _TEXT and self._is_open(block.ref)):
            return []
        return [*self._rest(block), *ends(block)]

    def _rest(self, block: GrowingBlock) -> Wire:
        said = block.rest()
        return [content(block, said)] if said else []

    def _is_open(self, ref: str) -> bool:
        return any(block.ref == ref and block.kind in _TEXT for block in self._open.values())

    def _answer(self, number: int) -> str:
        if self._piece is None:
            self._known = self._next()
            own = self.id if self._answers == 0 else self._ref(number)
            self._piece = self._known["id"] if self._known else own
            self._answers += 1
        return self._piece

    def _ref(self, number: int) -> str:
        return f"{self.id}/{number}{self._round}"

    def _next(self) -> dict[str, Any] | None:
        return self._expected.pop(0) if self._expected else None

    def _metadata(self) -> dict[str, Any]:
        if self._known is not None:
            known: dict[str, Any] = self._known.get("metadata") or {}
            return known
        return {HINT: {"message": self.id}} if self._role == "assistant" else {}

    def _of_call(self, tool_call_id: str) -> dict[str, Any]:
        """What groups messages of ours stands with a call too, for its message may say nothing."""
        own: dict[str, Any] = (self._known_call(tool_call_id) or {}).get("metadata", {})
        of_message = self._metadata().get(HINT)
        return own | ({HINT: own.get(HINT, {}) | of_message} if of_message else {})

    def _known_call(self, tool_call_id: str) -> dict[str, Any] | None:
        calls: Wire = (self._known or {}).get("toolCalls", [])
        return next((call for call in calls if call["id"] == tool_call_id), None)

    def _whole(self, block: GrowingBlock, body: ev.BlockSealed) -> Wire:
        """The messages of AG-UI that a whole block would be."""
        known = self._next() if block.kind == "provider" else None
        if known is not None:
            return [known]
        written: Wire = write([one_block(self.run_id, self.id, block.sealed(body))]).payload
        return written
