"""A step of an AI SDK stream while it grows: one response of the model, with the parts that are open in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from projector.formats.ai_sdk.parts import DYNAMIC, SHELL, citation, with_metadata
from projector.formats.shared.response import OpenBlock, ResponseDraft, is_same
from projector.json_text import JsonText, decode, dump, is_json, join_fields
from projector.message import Block

if TYPE_CHECKING:
    from projector import events as ev
    from projector.formats.shared.fields import Fields

_OF_CALLS: Final = {"providerMetadata": "callProviderMetadata", "title": "title", "toolMetadata": "toolMetadata",
                    "inputEncoding": "inputEncoding"}  # fmt: skip


class Text(OpenBlock):
    """A part of text or reasoning between its start and its end. Its block begins with its first text."""

    def __init__(self, kind: str, part_id: str) -> None:
        super().__init__(kind, part_id if kind == "reasoning" else None)
        self.key = f"{kind} {part_id}"
        self.metadata: JsonText | None = None
        self.has_begun = False


class Call(OpenBlock):
    """A tool call whose input is not whole."""

    def __init__(self, kind: str, *, dynamic: bool) -> None:
        super().__init__(kind, DYNAMIC if dynamic else None)
        self.rest: dict[str, JsonText] = {}

    def note(self, chunk: Fields) -> None:
        """What a chunk says of the call beside its input; the newest counts."""
        for name, ours in _OF_CALLS.items():
            text = chunk.raw(name)
            if text is not None:
                self.rest[ours] = text


class Step(ResponseDraft[OpenBlock]):
    """A message under way, from the first part of a step to the step's end."""

    def __init__(self, run_id: str, message_id: str, step: int, *, begins: bool) -> None:
        super().__init__(run_id, message_id, step)
        self.shell: dict[str, JsonText] = {"step": "true" if begins else "false"}
        self.texts: dict[str, Text] = {}
        self.ended: set[str] = set()
        """The parts of text that are whole."""
        self.calls: dict[str, Call] = {}

    def annotate(self) -> list[ev.Body]:
        """What only the AI SDK knows of the message."""
        return self.note({SHELL: join_fields(self.shell)})

    def leave(self) -> list[ev.Body]:
        """Nothing comes any more; with a part that is open it stays partial."""
        return self.annotate() + self.finish("partial" if self.texts or self.calls else "complete")

    def start_text(self, kind: str, part_id: str, metadata: JsonText | None) -> None:
        """A part of text or reasoning has its place."""
        text = Text(kind, part_id)
        text.number, text.metadata = self.reserve(), metadata
        self.texts[text.key] = text

    def grow_text(self, text: Text, delta: str) -> list[ev.Body]:
        """Text that goes on, or begins."""
        started = self._start(text) if delta and not text.has_begun else []
        return started + self.grow(text, delta)

    def end_text(self, text: Text, citations: list[JsonText]) -> list[ev.Body]:
        """The part is whole. Reasoning without text is kept if there is something to be sent back."""
        del self.texts[text.key]
        self.ended.add(text.key)
        rest = {"providerMetadata": text.metadata} if text.metadata is not None else {}
        block = with_metadata(Block(text.kind, text="x" if text.has_begun else ""), rest, "providerMetadata")
        text.signature, text.kept = block.signature, block.opaque
        bodies: list[ev.Body] = []
        if not text.has_begun:
            if block.opaque is None:
                return []
            text.kind = block.kind
            bodies = self._start(text)
        cited = [body for source in citations for body in self.cite(text.number, citation(source))]
        return [*bodies, *cited, self.sealed(text)]

    def start_call(self, chunk: Fields) -> list[ev.Body]:
        """A call begins."""
        kind = "server_tool_call" if chunk.is_true("providerExecuted") else "tool_call"
        tool_call_id = chunk.text("toolCallId")
        call = self.calls[tool_call_id] = Call(kind, dynamic=chunk.is_true("dynamic"))
        call.note(chunk)
        return [self.started(call, chunk.text("toolName"), tool_call_id)]

    def seal_call(self, tool_call_id: str, given: JsonText | None, chunk: Fields | None = None) -> list[ev.Body]:
        """The input is whole: what was streamed, unless what is given now is something else."""
        call = self.calls.pop(tool_call_id)
        if chunk is not None:
            call.note(chunk)
        block = with_metadata(Block(call.kind), call.rest, "callProviderMetadata")
        call.signature, call.kept = block.signature, block.opaque
        call.whole = "" if given is None or (call.pieces and is_same("".join(call.pieces), given)) else given
        return [self.sealed(call)]

    def seal_if_whole(self, tool_call_id: str) -> list[ev.Body]:
        """The input is whole if it can be read, though nobody has said so."""
        call = self.calls.get(tool_call_id)
        return self.seal_call(tool_call_id, None) if call is not None and is_json("".join(call.pieces)) else []

    def end_parts(self) -> list[ev.Body]:
        """The stream has finished: all text is whole, and all input that can be read."""
        bodies = [body for text in list(self.texts.values()) for body in self.end_text(text, [])]
        return bodies + [body for name in list(self.calls) for body in self.seal_if_whole(name)]

    def _start(self, text: Text) -> list[ev.Body]:
        text.has_begun = True
        return [self.started(text)]


def merge_metadata(before: JsonText | None, after: JsonText) -> JsonText:
    """Metadata of a message with more of it: objects are merged, all else is replaced, as a client does it."""
    if before is None:
        return after
    return dump(_merge(decode(before), decode(after)))


def _merge(before: Any, after: Any) -> Any:
    if not isinstance(before, dict) or not isinstance(after, dict):
        return after
    merged = dict(before)
    for name, value in after.items():
        merged[name] = _merge(merged[name], value) if name in merged else value
    return merged
