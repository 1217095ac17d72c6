"""A message while AG-UI streams it: which block grows, which calls are open.

AG-UI may say more of a block after its end (an encrypted value) or of a call (arguments that only a snapshot has), so
an end is a wish that is granted when something else comes.
"""

from __future__ import annotations

from typing import Any, Final

from projector import events as ev
from projector.formats.agui.parts import PROVIDER, SHELL
from projector.formats.agui.reader import signed, without_hint
from projector.json_text import JsonText, dump, is_json, join_fields, raw, split
from projector.message import Block

_NO_ARGUMENTS: Final = "{}"


class Call:
    """A tool call that is not sealed. `has_ended`: nothing comes but a snapshot or the end."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.arguments: list[str] = []
        self.has_ended = False
        self.value: str | None = None
        self.signer = PROVIDER
        self.notes: dict[str, JsonText] = {}

    def note(self, notes: dict[str, JsonText]) -> None:
        """What an event says of the call beside its arguments."""
        self.notes = merge_notes(self.notes, notes)


class Answer:
    """A message under way. `group` is what our own metadata calls it; once `answered`, its text is complete."""

    def __init__(self, message_id: str, role: str, step: int, group: object) -> None:
        self.message_id, self.role, self.step, self.group = message_id, role, step, group
        self.answered = False
        self.only_reasoning = True
        self.open_refs: set[str | None] = set()
        """Messages of AG-UI in it that have begun and not ended."""
        self.calls: dict[str, Call] = {}
        self._blocks = 0
        self._growing: _Text | None = None
        self._pieces: list[tuple[str, str | None]] = []
        self._notes: dict[str | None, dict[str, JsonText]] = {}

    @property
    def thinking_about(self) -> str | None:
        """Whether reasoning grows: its id, or "" where it has none."""
        growing = self._growing
        return growing.ref or "" if growing is not None and growing.kind == "reasoning" else None

    def holds(self, ref: str | None) -> bool:
        """Whether a block of it belongs to this message of AG-UI."""
        return any(piece == ref for _, piece in self._pieces)

    def note(self, ref: str | None, notes: dict[str, JsonText]) -> None:
        """What an event says of a message beside its content."""
        if notes:
            self._notes[ref] = merge_notes(self._notes.get(ref, {}), notes)

    def say(self, kind: Any, ref: str | None, text: str) -> list[ev.Body]:
        """Text or reasoning that goes on, or begins."""
        bodies: list[ev.Body] = []
        if self._growing is None or (self._growing.kind, self._growing.ref) != (kind, ref):
            bodies += self.close_text()
            self._growing = _Text(self._take(kind, ref), kind, ref)
            bodies.append(ev.BlockStarted(self.message_id, self._growing.number, kind, provider_ref=None))
        return [*bodies, ev.BlockDelta(self.message_id, self._growing.number, text)] if text else bodies

    def close_text(self, ref: str | None = None) -> list[ev.Body]:
        """The block that grows is whole (with `ref`: if it is of that message)."""
        growing = self._growing
        if growing is None or (ref is not None and growing.ref != ref):
            return []
        self._growing = None
        block = signed(Block("reasoning"), growing.value, growing.signer, {})
        return [ev.BlockSealed(self.message_id, growing.number, block.signature, raw(block.opaque))]

    def sign_thought(self, value: str, signer: str) -> None:
        """The encrypted value of the reasoning that grows."""
        if self._growing is not None:
            self._growing.value, self._growing.signer = value, signer

    def start_call(self, tool_call_id: str, name: str, ref: str | None) -> list[ev.Body]:
        """A call begins; text before it is whole."""
        bodies = self.close_text()
        call = self.calls[tool_call_id] = Call(self._take("tool_call", ref))
        return [*bodies, ev.BlockStarted(self.message_id, call.number, "tool_call", name, tool_call_id)]

    def grow_call(self, tool_call_id: str, text: str) -> list[ev.Body]:
        """A piece of a call's arguments."""
        call = self.calls[tool_call_id]
        call.arguments.append(text)
        return [ev.BlockDelta(self.message_id, call.number, text)] if text else []

    def seal_call(self, tool_call_id: str) -> list[ev.Body]:
        """The call is whole. One without arguments has an empty object as its input."""
        call = self.calls.pop(tool_call_id)
        text = "".join(call.arguments)
        block = signed(Block("tool_call"), call.value, call.signer, without_hint(call.notes))
        given = raw("" if text else _NO_ARGUMENTS)
        parse: Any = "ok" if not text or is_json(text) else "bad"
        return [ev.BlockSealed(self.message_id, call.number, block.signature, raw(block.opaque), given, parse)]

    def seal_calls(self) -> list[ev.Body]:
        """The calls that have ended are whole, unless nobody has said their arguments yet."""
        ready = [name for name, call in self.calls.items() if call.has_ended and any(call.arguments)]
        return [body for name in ready for body in self.seal_call(name)]

    def seal_what_parses(self) -> list[ev.Body]:
        """At the end of a run: all calls that are whole as far as anybody can see."""
        ready = [name for name, call in self.calls.items() if call.has_ended or is_json("".join(call.arguments))]
        return [body for name in ready for body in self.seal_call(name)]

    def finish(self) -> list[ev.Body]:
        """Nothing comes any more. A call that broke off leaves the message partial."""
        shells = [join_fields(({} if ref is None else {"id": dump(ref)}) | self._note_of(ref)) for _, ref in self._pieces]
        bodies = self.close_text()
        if shells:
            bodies.append(ev.MessageAnnotated(self.message_id, raw(f'{{"{SHELL}":[{",".join(shells)}]}}')))
        return [*bodies, ev.MessageFinished(self.message_id, "partial" if self.calls else "complete")]

    def _take(self, kind: str, ref: str | None) -> int:
        """The number of a new block, and the message of AG-UI it goes into."""
        sort = "reasoning" if kind == "reasoning" else self.role
        self.only_reasoning = self.only_reasoning and sort == "reasoning"
        if sort == "reasoning" or not self._pieces or self._pieces[-1][0] != sort:
            self._pieces.append((sort, ref))
        self._blocks += 1
        return self._blocks - 1

    def _note_of(self, ref: str | None) -> dict[str, JsonText]:
        return without_hint(self._notes.get(ref, {}))


class _Text:
    def __init__(self, number: int, kind: str, ref: str | None) -> None:
        self.number, self.kind, self.ref = number, kind, ref
        self.value: str | None = None
        self.signer = PROVIDER


def merge_notes(before: dict[str, JsonText], after: dict[str, JsonText]) -> dict[str, JsonText]:
    """Metadata of later events is added key by key, as a client does it."""
    merged = before | after
    if "metadata" in before and "metadata" in after:
        merged["metadata"] = join_fields(split(before["metadata"]) | split(after["metadata"]))
    return merged
