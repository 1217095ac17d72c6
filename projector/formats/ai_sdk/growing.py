"""A step of an AI SDK stream while it grows: one response of the model, with the parts that are open in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from projector import events as ev
from projector.formats.ai_sdk.parts import DYNAMIC, SHELL, citation, with_metadata
from projector.json_text import InvalidJson, JsonText, decode, dump, is_json, join_fields, raw
from projector.message import Block

if TYPE_CHECKING:
    from projector.formats.shared.fields import Fields

_OF_CALLS: Final = {"providerMetadata": "callProviderMetadata", "title": "title", "toolMetadata": "toolMetadata",
                    "inputEncoding": "inputEncoding"}  # fmt: skip


class Text:
    """A part of text or reasoning between its start and its end. Its block begins with its first text."""

    def __init__(self, number: int, kind: str, ref: str) -> None:
        self.number, self.kind, self.ref = number, kind, ref
        self.metadata: JsonText | None = None
        self.has_begun = False


class Call:
    """A tool call whose input is not whole."""

    def __init__(self, number: int, kind: str, *, dynamic: bool) -> None:
        self.number, self.kind, self.dynamic = number, kind, dynamic
        self.pieces: list[str] = []
        self.rest: dict[str, JsonText] = {}

    def note(self, chunk: Fields) -> None:
        """What a chunk says of the call beside its input; the newest counts."""
        for name, ours in _OF_CALLS.items():
            text = chunk.raw(name)
            if text is not None:
                self.rest[ours] = text


class Step:
    """A message under way, from the first part of a step to the step's end."""

    def __init__(self, run_id: str, message_id: str, number: int, *, begins: bool) -> None:
        self._run_id, self.message_id, self.number = run_id, message_id, number
        self.shell: dict[str, JsonText] = {"step": "true" if begins else "false"}
        self.is_over = False
        self._blocks = 0
        self.texts: dict[str, Text] = {}
        self.calls: dict[str, Call] = {}

    def begin(self) -> list[ev.Body]:
        """The events with which it begins."""
        return [
            ev.RunStep(self._run_id, self.number, "started"),
            ev.MessageStarted(self._run_id, self.message_id, "assistant"),
        ]

    def annotate(self) -> ev.MessageAnnotated:
        """What only the AI SDK knows of the message."""
        return ev.MessageAnnotated(self.message_id, raw(f'{{"{SHELL}":{join_fields(self.shell)}}}'))

    def finish(self) -> list[ev.Body]:
        """Nothing comes any more; with a part that is open it stays partial."""
        self.is_over = True
        ended = ev.MessageFinished(self.message_id, "partial" if self.texts or self.calls else "complete")
        return [self.annotate(), ended, ev.RunStep(self._run_id, self.number, "finished")]

    def start_text(self, kind: str, ref: str) -> None:
        """A part of text or reasoning has its place."""
        self.texts[f"{kind} {ref}"] = Text(self._take(), kind, ref)

    def grow_text(self, text: Text, delta: str) -> list[ev.Body]:
        """Text that goes on, or begins."""
        bodies: list[ev.Body] = [] if text.has_begun or not delta else [self._start(text, text.kind)]
        return [*bodies, ev.BlockDelta(self.message_id, text.number, delta)] if delta else bodies

    def end_text(self, text: Text, citations: list[JsonText]) -> list[ev.Body]:
        """The part is whole. Reasoning without text is kept if there is something to be sent back."""
        del self.texts[f"{text.kind} {text.ref}"]
        rest = {"providerMetadata": text.metadata} if text.metadata is not None else {}
        block = with_metadata(Block(text.kind, text="x" if text.has_begun else ""), rest, "providerMetadata")
        if not text.has_begun and block.opaque is None:
            return []
        bodies: list[ev.Body] = [] if text.has_begun else [self._start(text, block.kind)]
        cited = [ev.BlockAnnotated(self.message_id, text.number, raw(citation(source))) for source in citations]
        return [*bodies, *cited, ev.BlockSealed(self.message_id, text.number, block.signature, raw(block.opaque))]

    def start_call(self, chunk: Fields) -> list[ev.Body]:
        """A call begins."""
        kind: Any = "server_tool_call" if chunk.is_true("providerExecuted") else "tool_call"
        tool_call_id, dynamic = chunk.text("toolCallId"), chunk.is_true("dynamic")
        call = self.calls[tool_call_id] = Call(self._take(), kind, dynamic=dynamic)
        call.note(chunk)
        ref = DYNAMIC if dynamic else None
        return [ev.BlockStarted(self.message_id, call.number, kind, chunk.text("toolName"), tool_call_id, provider_ref=ref)]

    def grow_call(self, tool_call_id: str, delta: str) -> list[ev.Body]:
        """A piece of a call's input."""
        call = self.calls[tool_call_id]
        call.pieces.append(delta)
        return [ev.BlockDelta(self.message_id, call.number, delta)] if delta else []

    def seal_call(self, tool_call_id: str, given: JsonText | None, chunk: Fields | None = None) -> list[ev.Body]:
        """The input is whole: what was streamed, unless what is given now is something else."""
        call = self.calls.pop(tool_call_id)
        if chunk is not None:
            call.note(chunk)
        text = "".join(call.pieces)
        said = raw("" if given is None or _is_same(text, given) else given)
        parse: Any = "ok" if given is not None or is_json(text) else "bad"
        block = with_metadata(Block(call.kind), call.rest, "callProviderMetadata")
        return [ev.BlockSealed(self.message_id, call.number, block.signature, raw(block.opaque), said, parse)]

    def seal_if_whole(self, tool_call_id: str) -> list[ev.Body]:
        """The input is whole if it can be read, though nobody has said so."""
        call = self.calls.get(tool_call_id)
        return self.seal_call(tool_call_id, None) if call is not None and is_json("".join(call.pieces)) else []

    def end_parts(self) -> list[ev.Body]:
        """The stream has finished: all text is whole, and all input that can be read."""
        bodies = [body for text in list(self.texts.values()) for body in self.end_text(text, [])]
        return bodies + [body for name in list(self.calls) for body in self.seal_if_whole(name)]

    def put(self, block: Block) -> list[ev.Body]:
        """A part that comes whole."""
        number, kind = self._take(), cast("ev.Kind", block.kind)
        named = (block.name, block.tool_call_id, block.media_type, block.provider_ref)
        grown = [ev.BlockDelta(self.message_id, number, text, name) for name, text in block.fields.items()]
        started = ev.BlockStarted(self.message_id, number, kind, *named)
        return [started, *grown, ev.BlockSealed(self.message_id, number, opaque=raw(block.opaque))]

    def _start(self, text: Text, kind: Any) -> ev.BlockStarted:
        text.has_begun = True
        ref = text.ref if text.kind == "reasoning" else None
        return ev.BlockStarted(self.message_id, text.number, kind, provider_ref=ref)

    def _take(self) -> int:
        self._blocks += 1
        return self._blocks - 1


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


def _is_same(text: str, given: JsonText) -> bool:
    try:
        return bool(decode(text) == decode(given)) if text else False
    except InvalidJson:
        return False
