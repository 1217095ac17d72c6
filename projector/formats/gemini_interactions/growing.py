"""An interaction while it is streamed: steps by their index, and the blocks that each becomes."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING

from msgspec.structs import replace

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
from projector.formats.shared.response import OpenBlock, ResponseDraft, is_same
from projector.formats.shared.stream import maybe_text, need_text, sum_of
from projector.json_text import JsonText, decode, dump, join_fields, raw, split, split_array, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from projector.message import Block

_SAID = {THOUGHT: {"type", "summary", "signature"}, CALL: {"type", "id", "name", "arguments", "signature"}}
"""Fields of a step that our own fields say."""


class Answer(ResponseDraft["_Step"]):
    """A response made of steps. The older form of the interface has contents in their place."""

    def __init__(self, run_id: str, message_id: str, step: int, ref: str | None) -> None:
        super().__init__(run_id, message_id, step, ref)
        self._types: dict[JsonText, str] = {}
        self._texts: dict[JsonText, int] = {}
        self._blocks: dict[JsonText, list[_Step]] = {}
        """What came of each step; of contents only their texts."""
        self._others: dict[JsonText, int] = {}
        """How many contents of a step are no text."""
        self._ends: dict[_Step, ev.BlockSealed] = {}
        self._cited: dict[int, int] = {}

    def match(self, steps: list[JsonText]) -> list[JsonText | None]:
        """Which step each of the final list was: by its id, else by its place among those of its type that have none."""
        ids = {ref: index for index, blocks in self._blocks.items() for block in blocks if (ref := _id_of(block.fields))}
        unnamed = self._types.keys() - ids.values()
        left = defaultdict[str, deque[JsonText]](deque)
        for index, kind in self._types.items():
            left[_sort_of(kind)].append(index)
        found: list[JsonText | None] = []
        for at, step in enumerate(steps):
            fields, place = split(step), str(at)
            sort = _sort_of(need_text(fields, "type"))
            ref = _id_of(fields)
            known = None if ref is None else ids.get(ref)
            if known is None:
                queue = left[sort]
                while queue and queue[0] not in unnamed:
                    queue.popleft()
                is_there = place in unnamed and _sort_of(self._types[place]) == sort
                known = place if is_there else queue[0] if queue else None
            if known is not None:
                unnamed.discard(known)
            found.append(known)
        return found

    def correct(self, index: JsonText, source: JsonText) -> list[ev.Body]:
        """What the final list says of a step that was streamed: what was left out is added, something else wins."""
        fields = split(source)
        if _sort_of(self._types[index]) == OUTPUT:
            contents = split_array(_list(fields, "content")) if fields["type"] == dump(OUTPUT) else [source]
            return self._correct_contents(index, contents)
        [block, *_] = self._blocks[index]
        if block.number < 0:
            return self._grow_step(index, block, "", fields)
        text = block.learn_whole(fields)
        if block.kind == "reasoning":
            return self._correct_block(block, text)
        end = self._ends.get(block)
        if end is not None:
            now = self.sealed(block)
            if _says(now) != _says(end):
                self._ends[block] = now = replace(now, text="".join(block.pieces) if now.text is None else now.text)
                return [now]
        return []

    def _correct_block(self, block: _Step, text: str) -> list[ev.Body]:
        end = self._ends.get(block)
        if end is None:
            return self.complete(block, text)
        if not text or (block.beyond(text) == "" and end.signature == block.signature):
            return []
        block.become(text)
        block.text = text
        self._ends[block] = now = self.sealed(block)
        return [now]

    def _correct_contents(self, index: JsonText, contents: list[JsonText]) -> list[ev.Body]:
        blocks, bodies = self._blocks.setdefault(index, []), list[ev.Body]()
        known = [len(blocks), self._others.get(index, 0)]
        counts = [0, 0]
        for content, text, cited in _joined(contents, into=known[0]):
            is_media = text is None
            at, is_new = counts[is_media], counts[is_media] >= known[is_media]
            counts[is_media] += 1
            if text is None:
                bodies += self._take_content(index, _read_content(content)) if is_new else []
                continue
            bodies += self._begin_text(index) + self.grow(blocks[at], text) if is_new else self._correct_block(blocks[at], text)
            bodies += self._cite_block(blocks[at], cited) + (self.seal((index, "text")) if is_new else [])
        return bodies

    def _cite_block(self, block: _Step, annotations: list[JsonText]) -> list[ev.Body]:
        news = annotations[self._cited.get(block.number, 0) :]
        return [body for one in news for body in self.cite(block.number, citation(one))]

    def cite(self, number: int, citation: JsonText) -> list[ev.Body]:
        """A source of what a block says."""
        self._cited[number] = self._cited.get(number, 0) + 1
        return super().cite(number, citation)

    def seal(self, key: object) -> list[ev.Body]:
        """A block is whole; what was said of its end is known, as the final list may say more."""
        block = self.open.pop(key, None)
        if block is None:
            return []
        self._ends[block] = end = self.sealed(block)
        return [end]

    def begin_step(self, index: JsonText, source: JsonText) -> list[ev.Body]:
        """A step begins, with what is said of it already."""
        fields = split(source)
        kind = need_text(fields, "type")
        contents = split_array(_list(fields, "content")) if kind == OUTPUT else []
        block = _Step(kind, fields)
        block.check()
        is_empty = says_nothing(fields.get("text", '""')) and not fields.keys() & {"data", "uri"}
        if (kind == "text" or kind in MEDIA) and not is_empty:
            contents = [source]
        read = [_read_content(content) for content in contents]  # the last that may raise
        self._types[index] = kind
        self._blocks.pop(index, None)  # an index that is used once more
        bodies = self.seal(index)
        if kind == OUTPUT:
            return bodies + [body for content in read for body in self._take_content(index, content)]
        if kind == "text" or kind in MEDIA:
            return bodies + [body for content in read for body in self._take_content(index, content)]
        self._blocks[index] = [block]
        if kind == CALL and "name" not in fields:  # the older form names it in its delta
            self.open[index] = block
            return bodies
        return bodies + self._begin(index, block)

    def take_delta(self, index: JsonText, source: JsonText) -> list[ev.Body] | None:
        """More of a step; None for what is unknown."""
        delta = split(source)
        kind = need_text(delta, "type")
        if kind == "text":
            text, cited = need_text(delta, "text"), _citations(delta)
            return self._grow_text(index, text) + self._cite(index, cited)
        if kind in ("text_annotation", "text_annotation_delta"):
            return self._cite(index, _citations(delta))
        if kind in MEDIA:
            return self._take_content(index, _read_content(source))
        begun: list[ev.Body] = []
        known = self.open.get(index)
        _check_delta(kind, delta, known)
        if known is None:
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
        totals = self.totals | {name: count for name, count in split(text).items() if not says_nothing(count)}
        return self.use(
            ev.RunUsage(
                run_id="",
                request_id="",
                input=sum_of(totals, "total_input_tokens", "total_tool_use_tokens"),
                output=sum_of(totals, "total_output_tokens", "total_thought_tokens", "total_reasoning_tokens"),
                cached=sum_of(totals, "total_cached_tokens"),
                reasoning=sum_of(totals, "total_thought_tokens", "total_reasoning_tokens"),
                raw=raw(join_fields(totals)),
            ),
            totals=totals,
        )

    def _begin(self, index: JsonText, block: _Step) -> list[ev.Body]:
        bodies = self.begin(index, block, block.name(), block.call_id())
        return bodies + self.grow(block, block.summary())

    def _grow_text(self, index: JsonText, text: str) -> list[ev.Body]:
        self._types.setdefault(index, OUTPUT)
        bodies = [] if (index, "text") in self.open else self._begin_text(index)
        return bodies + self.grow(self.open[index, "text"], text)

    def _begin_text(self, index: JsonText) -> list[ev.Body]:
        block = _Step("text", {})
        self._blocks.setdefault(index, []).append(block)
        bodies = self.seal((index, "text")) + self.begin((index, "text"), block)
        self._texts[index] = block.number
        return bodies

    def check_list(self, steps: list[JsonText]) -> None:
        """Raises `FormatError` and `InvalidJson` where the final list can't be read; changes nothing."""
        trial = Answer(self.run_id, "", 0, None)
        for at, (step, index) in enumerate(zip(steps, self.match(steps), strict=True)):
            trial.begin_step(str(at), step)
            if index is not None and (kind := need_text(split(step), "type")) != OUTPUT and _sort_of(kind) == OUTPUT:
                _read_content(step)

    def _take_content(self, index: JsonText, read: tuple[Block, list[JsonText]]) -> list[ev.Body]:
        """A content of a step: text goes on, all else comes whole."""
        block, cited = read
        self._types.setdefault(index, OUTPUT)
        if block.kind == "text":
            return self._grow_text(index, block.text) + self._cite(index, cited) + self.seal((index, "text"))
        self._others[index] = self._others.get(index, 0) + 1
        return self.seal((index, "text")) + self.put(block)

    def _cite(self, index: JsonText, cited: list[JsonText]) -> list[ev.Body]:
        number = self._texts.get(index, self.last_text)
        return [] if number is None else [body for one in cited for body in self.cite(number, one)]


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

    def learn_whole(self, fields: Mapping[str, JsonText]) -> str:
        """What the final list says of it, which wins over what was streamed; its text."""
        named, called = self.name(), self.call_id()
        self.learn({name: text for name, text in fields.items() if name != "type"})
        self.signature = maybe_text(fields, "signature") or self.signature
        if self.name() != named:
            self.final_name = self.name()
        if self.call_id() != called:
            self.final_call_id = self.call_id()
        if not says_nothing(fields.get("arguments", "null")) and not is_same("".join(self.pieces), self.given):
            self.whole = self.given
        return self.summary()

    def check(self) -> None:
        """Raises `FormatError` where what it will be asked for is not what it must be."""
        self.name(), self.call_id(), self.summary()

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


def _joined(contents: list[JsonText], *, into: int) -> list[tuple[JsonText, str | None, list[JsonText]]]:
    """Contents with the text and the annotations of each. Where they are more than was streamed, as deltas join them."""
    joined: list[tuple[JsonText, str | None, list[JsonText]]] = []
    made = [content_block(Fields(content, "a content")) for content in contents]
    is_more = sum(block.kind == "text" for block in made) > into > 0
    for content, block in zip(contents, made, strict=True):
        text, cited = (block.text, _annotations(content)) if block.kind == "text" else (None, [])
        before = joined[-1] if joined and is_more else None
        if text is not None and before is not None and before[1] is not None:
            joined[-1] = before[0], before[1] + text, before[2] + cited
        else:
            joined.append((content, text, cited))
    return joined


def _check_delta(kind: str, delta: dict[str, JsonText], known: _Step | None) -> None:
    """Raises `FormatError` where a delta lacks what it needs, for a step that is `known` or begins with it."""
    maybe_text(delta, "signature")
    if kind == "thought_summary":
        content = delta.get("content", "null")
        _ = "" if says_nothing(content) else summary_text(content)
    elif kind == "arguments_delta":
        maybe_text(delta, "arguments")
    elif kind != "thought_signature":
        news = {name: text for name, text in delta.items() if name not in ("type", "signature")}
        _Step(kind if known is None else known.step, ({} if known is None else known.fields) | news).check()


def _read_content(source: JsonText) -> tuple[Block, list[JsonText]]:
    """A content and its citations. Raises `FormatError`, `InvalidJson`."""
    return content_block(Fields(source, "a content")), _citations(split(source))


def _citations(fields: Mapping[str, JsonText]) -> list[JsonText]:
    return [citation(one) for one in split_array(_list(fields, "annotations"))]


def _annotations(content: JsonText) -> list[JsonText]:
    return split_array(_list(split(content), "annotations"))


def _id_of(fields: Mapping[str, JsonText]) -> tuple[str, str] | None:
    """What names a step: its own id, or that of the call it answers."""
    return next(((name, ref) for name in ("id", "call_id") if (ref := maybe_text(fields, name)) is not None), None)


def _sort_of(kind: str) -> str:
    """The type of a step; contents of the older form are what a model put out."""
    return OUTPUT if kind == "text" or kind in MEDIA else kind


def _says(end: ev.BlockSealed) -> tuple[object, ...]:
    """What the end of a block says, however its JSON is written."""
    values = (decode(text) if (text := text_of(given)) else None for given in (end.opaque, end.input))
    return (end.text, end.name, end.tool_call_id, end.signature, *values)


def _list(fields: Mapping[str, JsonText], name: str) -> JsonText:
    given = fields.get(name, "null")
    return given if given.startswith("[") else "[]"
