"""An interaction while it is streamed: steps by their index, and the blocks that each becomes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from projector import events as ev
from projector.formats.gemini_interactions.parts import (
    CALL,
    MEDIA,
    OUTPUT,
    PROVIDER,
    THOUGHT,
    citation,
    content_block,
    kind_of,
    summary_text,
)
from projector.formats.shared.fields import Fields, is_whole, says_nothing
from projector.formats.shared.payloads import opaque
from projector.formats.shared.response import OpenBlock, ResponseDraft
from projector.formats.shared.stream import maybe_text, maybe_whole, need_text
from projector.json_text import JsonText, decode, dump, join_fields, raw, split, split_array

if TYPE_CHECKING:
    from collections.abc import Mapping

_SAID = {THOUGHT: {"type", "summary", "signature"}, CALL: {"type", "id", "name", "arguments", "signature"}}
"""Fields of a step that our own fields say."""


class Answer(ResponseDraft["_Step"]):
    """A response made of steps. The older form of the interface has contents in their place."""

    def __init__(self, run_id: str, message_id: str, step: int, ref: str | None) -> None:
        super().__init__(run_id, message_id, step, ref)
        self._types: dict[JsonText, str] = {}
        self._texts: dict[JsonText, int] = {}

    def knows(self, index: JsonText) -> bool:
        """Whether this step has begun."""
        return index in self._types

    def begin_step(self, index: JsonText, source: JsonText) -> list[ev.Body]:
        """A step begins, with what is said of it already."""
        fields = split(source)
        kind = self._types[index] = need_text(fields, "type")
        bodies = self.seal(index)
        if kind == OUTPUT:
            contents = split_array(_list(fields, "content"))
            return bodies + [body for content in contents for body in self._take_content(index, content)]
        if kind == "text" or kind in MEDIA:
            is_empty = says_nothing(fields.get("text", '""')) and not fields.keys() & {"data", "uri"}
            return bodies if is_empty else bodies + self._take_content(index, source)
        block = _Step(kind, fields)
        if kind == CALL and "name" not in fields:  # the older form names it in its delta
            self.open[index] = block
            return bodies
        return bodies + self._begin(index, block)

    def take_delta(self, index: JsonText, source: JsonText) -> list[ev.Body] | None:
        """More of a step; None for what is unknown."""
        delta = split(source)
        kind = need_text(delta, "type")
        if kind == "text":
            return self._grow_text(index, need_text(delta, "text")) + self._cite(index, delta)
        if kind in ("text_annotation", "text_annotation_delta"):
            return self._cite(index, delta)
        if kind in MEDIA:
            return self._take_content(index, source)
        begun: list[ev.Body] = []
        if index not in self.open:
            step = THOUGHT if kind.startswith(THOUGHT) else kind
            if kind_of(step) == "provider":
                return None
            begun = self.begin_step(index, f'{{"type":{dump(step)}}}')
        return begun + self._grow_step(index, self.open[index], kind, delta)

    def _grow_step(self, index: JsonText, block: _Step, kind: str, delta: dict[str, JsonText]) -> list[ev.Body]:
        block.sign(maybe_text(delta, "signature"))
        if kind == "thought_summary":
            content = delta.get("content", "null")
            return [] if says_nothing(content) else self.grow(block, summary_text(content))
        if kind == "arguments_delta":
            return self.grow(block, maybe_text(delta, "arguments") or "")
        if kind == "thought_signature":
            return []
        block.learn({name: text for name, text in delta.items() if name not in ("type", "signature")})
        return self._begin(index, block) if block.number < 0 and "name" in block.fields else []

    def end_step(self, index: JsonText) -> list[ev.Body]:
        """A step is whole."""
        self._texts.pop(index, None)
        block = self.open.get(index)
        begun = self._begin(index, block) if block is not None and block.number < 0 else []
        return begun + self.seal((index, "text")) + self.seal(index)

    def seal_all(self) -> list[ev.Body]:
        """The response is whole, and so are its steps."""
        return [body for index in list(self._types) for body in self.end_step(index)] + super().seal_all()

    def measure(self, text: JsonText) -> list[ev.Body]:
        """Thoughts and what tools were told stand beside the totals, what is cached lies inside."""
        if says_nothing(text):
            return []
        self.totals |= {name: count for name, count in split(text).items() if not says_nothing(count)}
        return self.use(
            ev.RunUsage(
                run_id="",
                request_id="",
                input=self._count("total_input_tokens", "total_tool_use_tokens"),
                output=self._count("total_output_tokens", "total_thought_tokens", "total_reasoning_tokens"),
                cached=self._count("total_cached_tokens"),
                reasoning=self._count("total_thought_tokens", "total_reasoning_tokens"),
                raw=raw(join_fields(self.totals)),
            )
        )

    def _begin(self, index: JsonText, block: _Step) -> list[ev.Body]:
        bodies = self.begin(index, block, block.name(), block.call_id())
        return bodies + self.grow(block, block.summary())

    def _grow_text(self, index: JsonText, text: str) -> list[ev.Body]:
        self._types.setdefault(index, OUTPUT)
        block = self.open.get((index, "text"))
        bodies: list[ev.Body] = []
        if block is None:
            block = _Step("text", {})
            bodies = self.begin((index, "text"), block)
            self._texts[index] = block.number
        return bodies + self.grow(block, text)

    def _take_content(self, index: JsonText, source: JsonText) -> list[ev.Body]:
        """A content of a step: text goes on, all else comes whole."""
        content = Fields(source, "a content")
        block = content_block(content)
        self._types.setdefault(index, OUTPUT)
        if block.kind == "text":
            return self._grow_text(index, block.text) + self._cite(index, split(source)) + self.seal((index, "text"))
        return self.seal((index, "text")) + self.put(block)

    def _cite(self, index: JsonText, fields: Mapping[str, JsonText]) -> list[ev.Body]:
        number = self._texts.get(index, self.last_text)
        given = split_array(_list(fields, "annotations"))
        return [] if number is None else [body for one in given for body in self.cite(number, citation(one))]

    def _count(self, *names: str) -> int | None:
        counts = [maybe_whole(self.totals, name) or 0 for name in names if name in self.totals]
        return sum(counts) if counts else None


class _Step(OpenBlock):
    """A step with what was said of it."""

    def __init__(self, step: str, fields: dict[str, JsonText]) -> None:
        kind = "text" if step == "text" else kind_of(step)
        super().__init__(kind, None if kind in ("text", "reasoning", "tool_call") else step)
        self.step, self.fields = step, fields
        self.sign(maybe_text(fields, "signature"))
        self.given = _arguments(fields)

    def learn(self, fields: Mapping[str, JsonText]) -> None:
        """More fields, as some deltas bring them whole."""
        self.fields |= fields
        self.given = _arguments(self.fields)

    def name(self) -> str | None:
        """The tool's name; one of Google's own is named by its step."""
        told = maybe_text(self.fields, "name")
        return self.step.removesuffix("_call") if told is None and self.kind == "server_tool_call" else told

    def call_id(self) -> str | None:
        """Whose call or result it is."""
        return maybe_text(self.fields, "call_id" if self.kind == "server_tool_result" else "id")

    def summary(self) -> str:
        """The summary of a thought that was there from the beginning."""
        return "".join(map(summary_text, split_array(_list(self.fields, "summary")))) if self.kind == "reasoning" else ""

    def opaque(self) -> JsonText | None:
        """A step as it came, where our fields do not say all of it; of a signature, whose it is."""
        if self.kind == "text":
            return None
        said = _SAID.get(self.step)
        if said is None:
            signed = {"signature": dump(self.signature)} if self.signature and "signature" not in self.fields else {}
            return opaque(PROVIDER, join_fields(self.fields | signed))
        rest = {name: text for name, text in self.fields.items() if name not in said}
        if not rest and not self.signature:
            return None
        return opaque(PROVIDER, join_fields({"type": dump(self.step)} | rest))


def _arguments(fields: Mapping[str, JsonText]) -> JsonText:
    """The input of a call as JSON; where it is text, the JSON in it."""
    given = fields.get("arguments", "{}")
    text = decode(given) if given.startswith('"') else ""
    return text if isinstance(text, str) and is_whole(text) else given


def _list(fields: Mapping[str, JsonText], name: str) -> JsonText:
    given = fields.get(name, "null")
    return given if given.startswith("[") else "[]"
