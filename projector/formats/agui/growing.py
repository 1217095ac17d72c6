"""A message while AG-UI streams it: which block grows, which calls are open.

AG-UI may say more of a block after its end (an encrypted value) or of a call (arguments that only a snapshot has), so
an end is a wish that is granted when something else comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from projector.formats.agui.parts import PROVIDER, SHELL
from projector.formats.agui.reader import signed, without_hint
from projector.formats.shared.response import OpenBlock, ResponseDraft
from projector.json_text import JsonText, dump, is_json, join_fields, split
from projector.message import Block

if TYPE_CHECKING:
    from projector import events as ev


class Call(OpenBlock):
    """A tool call that is not sealed. `has_ended`: nothing comes but a snapshot or the end."""

    def __init__(self) -> None:
        super().__init__("tool_call")
        self.given = "{}"
        self.has_ended = False
        self.value: str | None = None
        self.signer = PROVIDER
        self.notes: dict[str, JsonText] = {}

    def learn(self, notes: dict[str, JsonText]) -> None:
        """What an event says of the call beside its arguments."""
        self.notes = merge_notes(self.notes, notes)


class Answer(ResponseDraft[OpenBlock]):
    """A message under way. `group` is what our own metadata calls it; once `answered`, its text is complete."""

    def __init__(self, run_id: str, message_id: str, role: str, step: int | None, group: object) -> None:
        super().__init__(run_id, message_id, step)
        self.role, self.group = role, group
        self.answered = False
        self.only_reasoning = True
        self.open_refs: set[str | None] = set()
        """Messages of AG-UI in it that have begun and not ended."""
        self.calls: dict[str, Call] = {}
        self._growing_ref: str | None = None
        self._pieces: list[tuple[str, str | None]] = []
        self._notes: dict[str | None, dict[str, JsonText]] = {}

    @property
    def thinking_about(self) -> str | None:
        """Whether reasoning grows: its id, or "" where it has none."""
        return self._growing_ref or "" if self.growing is not None and self.growing.kind == "reasoning" else None

    def holds(self, ref: str | None) -> bool:
        """Whether a block of it belongs to this message of AG-UI."""
        return any(piece == ref for _, piece in self._pieces)

    def learn(self, ref: str | None, notes: dict[str, JsonText]) -> None:
        """What an event says of a message beside its content."""
        if notes:
            self._notes[ref] = merge_notes(self._notes.get(ref, {}), notes)

    def speak(self, kind: str, ref: str | None, text: str) -> list[ev.Body]:
        """Text or reasoning of a message of AG-UI that goes on, or begins."""
        bodies: list[ev.Body] = []
        if self.growing is None or (self.growing.kind, self._growing_ref) != (kind, ref):
            bodies = self.hush()
            self._go_into(kind, ref)
            self._growing_ref = ref
        return bodies + self.say(kind, None, text)

    def close_text(self, ref: str | None) -> list[ev.Body]:
        """The block that grows is whole if it is of that message; of whichever where that has no id."""
        return self.hush() if ref is None or ref == self._growing_ref else []

    def sign_thought(self, value: str, signer: str) -> None:
        """The encrypted value of the reasoning that grows."""
        if self.growing is not None:
            _sign(self.growing, value, signer, {})

    def start_call(self, tool_call_id: str, name: str, ref: str | None) -> list[ev.Body]:
        """A call begins; text before it is whole."""
        bodies = self.hush()
        call = self.calls[tool_call_id] = Call()
        self._go_into("tool_call", ref)
        return [*bodies, self.started(call, name, tool_call_id)]

    def grow_call(self, tool_call_id: str, text: str) -> list[ev.Body]:
        """A piece of a call's arguments."""
        return self.grow(self.calls[tool_call_id], text)

    def seal_call(self, tool_call_id: str) -> list[ev.Body]:
        """The call is whole. One without arguments has an empty object as its input."""
        call = self.calls.pop(tool_call_id)
        _sign(call, call.value, call.signer, without_hint(call.notes))
        return [self.sealed(call)]

    def seal_calls(self) -> list[ev.Body]:
        """The calls that have ended are whole, unless nobody has said their arguments yet."""
        ready = [name for name, call in self.calls.items() if call.has_ended and call.pieces]
        return [body for name in ready for body in self.seal_call(name)]

    def seal_what_parses(self) -> list[ev.Body]:
        """At the end of a run: all calls that are whole as far as anybody can see."""
        ready = [name for name, call in self.calls.items() if call.has_ended or is_json("".join(call.pieces))]
        return [body for name in ready for body in self.seal_call(name)]

    def leave(self) -> list[ev.Body]:
        """Nothing comes any more. A call that broke off leaves the message partial."""
        shells = [join_fields(({} if ref is None else {"id": dump(ref)}) | self._note_of(ref)) for _, ref in self._pieces]
        noted = self.note({SHELL: f"[{','.join(shells)}]"}) if shells else []
        return [*self.hush(), *noted, *self.finish("partial" if self.calls else "complete")]

    def _go_into(self, kind: str, ref: str | None) -> None:
        """The message of AG-UI that a new block goes into."""
        sort = "reasoning" if kind == "reasoning" else self.role
        self.only_reasoning = self.only_reasoning and sort == "reasoning"
        if sort == "reasoning" or not self._pieces or self._pieces[-1][0] != sort:
            self._pieces.append((sort, ref))

    def _note_of(self, ref: str | None) -> dict[str, JsonText]:
        return without_hint(self._notes.get(ref, {}))


def _sign(block: OpenBlock, value: str | None, signer: str, rest: dict[str, JsonText]) -> None:
    said = signed(Block(block.kind), value, signer, rest)
    block.signature, block.kept = said.signature, said.opaque


def merge_notes(before: dict[str, JsonText], after: dict[str, JsonText]) -> dict[str, JsonText]:
    """Metadata of later events is added key by key, as a client does it."""
    merged = before | after
    if "metadata" in before and "metadata" in after:
        merged["metadata"] = join_fields(split(before["metadata"]) | split(after["metadata"]))
    return merged
