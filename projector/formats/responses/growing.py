"""One response while it is streamed: which blocks are open, and what the end of an item adds to its deltas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, cast

from msgspec.structs import replace

from projector import events as ev
from projector.formats.responses.items import Item, Items, Part, Told, told
from projector.formats.shared.fields import Fields, count_of, says_nothing, text_of_field
from projector.formats.shared.history import HistoryMessage, message_bodies
from projector.formats.shared.openai_items import citation_of, is_result, item_type, keep_id, part_block
from projector.formats.shared.openai_messages import result_of
from projector.formats.shared.response import CALLS, ResponseDraft
from projector.formats.shared.stream import need, need_object, need_text
from projector.json_text import JsonText, decode, dump, is_json, raw, split
from projector.message import Block

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from projector.message import BlockKind

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
    "response.content_part.added", "response.reasoning_summary_part.added",
    "response.reasoning_summary_part.done", "response.reasoning_summary_text.done", "response.reasoning_text.done",
    "response.shell_call_command.done",
}  # fmt: skip
"""Events that say nothing which deltas before them or the end of the item do not say."""
_BEGIN_LATE: Final = ("message", "reasoning", "tool_search_call")
"""Blocks of messages and reasoning begin with their text; a search for tools ends with another call id than it begins with."""
_BETWEEN: Final = "\n\n"


class Output(ResponseDraft[Part]):
    """One response that is being streamed: items, each of one block or more.

    What a tool gave back may stand among them: then what follows is another message of the same response.
    """

    def __init__(self, run_id: str, message_id: str, step: int, ref: str | None, mint: Callable[[], str]) -> None:
        super().__init__(run_id, message_id, step, ref)
        self._mint = mint
        self._items = Items()
        self._calls: dict[str, str] = {}
        self._results: list[HistoryMessage] = []
        """What came back while a block was open."""
        self._has_come_back: set[str | None] = set()
        self._is_between = False
        """Whether the message has ended and the next one has not begun."""

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
        if kind in _TEXT_DELTAS or kind in _CALL_DELTAS:
            return self._grow(kind, fields)
        if kind in _TEXT_DONE:
            return self._complete(*_TEXT_DONE[kind], fields)
        if kind in _STEPS:
            return _STEPS[kind](self, fields)
        return [] if kind in _SAID_AGAIN else None

    def take_list(self, items: Sequence[JsonText], *, is_whole: bool) -> list[ev.Body]:
        """The items that the end of the response lists; of a failed one those that are completed."""
        known = [told(item) for item in items if not self._is_result(split(item))]
        of_stream = iter(zip(self._items.of_list(known), known, strict=True))
        bodies: list[ev.Body] = []
        for source in items:
            if self._is_result(split(source)):
                bodies += self._take_result(source)
                continue
            item, said = next(of_stream)
            if is_whole or said.is_completed:
                bodies += self._close(item or self._items.add(Item(said.type, None, said.ref, said.call_id)), said)
        return bodies

    def seal_all(self) -> list[ev.Body]:
        """The response is whole: what its events left open is as it stands."""
        left = [self.sealed(block) for item in self._items for block in item.open.values()]
        for item in self._items:
            item.open.clear()
        return left + self._settle()

    def finish(self, status: Literal["complete", "partial"]) -> list[ev.Body]:
        """Nothing more belongs to this response."""
        results, self._results = self._results, []
        if not (results or self._is_between):
            return super().finish(status)
        self.is_finished = True
        ended = [] if self._is_between else [ev.MessageFinished(self.message_id, status)]
        return [*ended, *self._results_of(results), *self._step_is("finished")]

    def _place(self, fields: Mapping[str, JsonText]) -> object:
        return count_of(decode(fields.get("output_index", "null")))

    def _part(self, kind: str, fields: Mapping[str, JsonText]) -> int:
        return count_of(decode(fields.get("content_index", "null"))) or 0 if kind in ("text", "refusal") else 0

    def add_item(self, fields: Mapping[str, JsonText]) -> list[ev.Body]:
        """`response.output_item.added`."""
        place, text = self._place(fields), need(fields, "item")
        if self._is_result(split(text)):
            return []  # its end has what came back
        said = told(text)
        if self._items.of_beginning(said, place) is not None:
            return []
        item = self._items.add(Item(said.type, place, said.ref, said.call_id))
        if said.type in _BEGIN_LATE or said.blocks[0].kind not in CALLS:
            return []
        return self._begin(item, 0, said.blocks[0])

    def _begin(self, item: Item, part: int, block: Block) -> list[ev.Body]:
        if block.kind == "tool_call" and block.tool_call_id is not None:
            self._calls[block.tool_call_id] = item.type
        opened = item.open[part] = Part(block.kind, block.provider_ref)
        started = [*self._resume(), self.started(opened, block.name, block.tool_call_id, block.media_type)]
        opened.message_id = self.message_id
        return [*started, *self.grow(opened, block.text)]

    def _find(self, kind: str, fields: Mapping[str, JsonText]) -> tuple[list[ev.Body], Part] | None:
        """The block that an event is about; one whose beginning was missed begins here. None if it is done."""
        place, ref, part = self._place(fields), text_of_field(fields, "item_id") or None, self._part(kind, fields)
        item = self._items.of_event(kind, place, ref)
        if item is None:
            if kind in CALLS:
                return None  # nobody knows which tool it calls
            item = self._items.add(Item("reasoning" if kind == "reasoning" else "message", place, ref))
        if item.is_done or part in item.ended:
            return None
        if part in item.open:
            return [], item.open[part]
        if kind in CALLS:
            return None
        begun = self._begin(item, part, Block(cast("BlockKind", kind), provider_ref=item.ref))
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
        return bodies + self.grow(block, text)

    def _complete(self, kind: str, name: str, fields: Mapping[str, JsonText]) -> list[ev.Body] | None:
        """The whole text of a block: what its deltas left out is added, another text counts in the end."""
        text = need_text(fields, name)
        found = self._find(kind, fields) if text else ([], None)
        if found is None or found[1] is None:
            return None if found is None else []
        bodies, block = found
        return bodies + self.complete(block, text)

    def complete_part(self, fields: Mapping[str, JsonText]) -> list[ev.Body]:
        """A part of a message is whole, which the end of its text has said in most streams."""
        block = part_block(need(fields, "part"))
        said = {**fields, "text": dump(block.text)}
        is_said = block.kind in ("text", "refusal") and text_of_field(need_object(fields, "part"), "type") != "reasoning_text"
        return self._complete(block.kind, "text", said) or [] if is_said else []

    def begin_command(self, fields: Mapping[str, JsonText]) -> list[ev.Body] | None:
        """Commands for a shell come one by one; they stand in lines."""
        between = "\n" if decode(fields.get("command_index", "0")) else ""
        return self._command(between + need_text(fields, "command"), fields)

    def grow_command(self, fields: Mapping[str, JsonText]) -> list[ev.Body] | None:
        """More of one."""
        return self._command(need_text(fields, "delta"), fields)

    def _command(self, text: str, fields: Mapping[str, JsonText]) -> list[ev.Body] | None:
        found = self._find("tool_call", fields)
        return None if found is None else found[0] + self.grow(found[1], text)

    def cite_text(self, fields: Mapping[str, JsonText]) -> list[ev.Body] | None:
        """A source of what a part says."""
        citation = citation_of(need(fields, "annotation"))
        found = self._find("text", fields)
        if found is None:
            return None
        bodies, block = found
        block.citations += 1
        return bodies + self.cite(block.number, citation)

    def finish_item(self, fields: Mapping[str, JsonText]) -> list[ev.Body]:
        """`response.output_item.done`."""
        place, text = self._place(fields), need(fields, "item")
        if self._is_result(split(text)):
            return self._take_result(text)
        said = told(text)
        item = self._items.of_end(said, place) or self._items.add(Item(said.type, place, said.ref, said.call_id))
        return self._close(item, said)

    def _close(self, item: Item, said: Told) -> list[ev.Body]:
        """An item is whole: its blocks get what they lack, and are sealed. It may be told so twice."""
        bodies: list[ev.Body] = []
        for part, block in enumerate(said.blocks):
            if part in item.ended:
                bodies += self._correct(item.ended[part], block)
                continue
            if part in item.open and _kind_of(item.open[part]) != _kind_of(block):
                bodies.append(self.sealed(item.open.pop(part)))
            if part not in item.open:
                bodies += self._begin(item, part, block)
            opened = item.ended[part] = item.open.pop(part)
            bodies += self.complete(opened, block.text) + self._end(opened, block)
        left = [self.sealed(opened) for opened in item.open.values()]
        item.ended |= item.open
        item.open, item.is_done = {}, True
        return bodies + left + self._settle()

    def _end(self, opened: Part, block: Block) -> list[ev.Body]:
        if opened.ref != block.provider_ref:
            block = keep_id(block)  # the id that the item has in the end is the one to name it by
        if opened.pieces and not block.text and not block.input_text:
            block = replace(block, parse="ok" if is_json("".join(opened.pieces)) else "bad")
        sealed = self.sealed_as(opened.number, block, opened.text)
        bodies = [*self._cite_all(opened, block), sealed]
        if opened.text is not None:
            opened.become(opened.text)
        if block.provider_ref == "mcp_approval_request" and block.tool_call_id is not None:
            bodies.append(ev.ToolApproval(block.tool_call_id, block.tool_call_id))
        return bodies

    def _correct(self, ended: Part, block: Block) -> list[ev.Body]:
        """An end after the first one, which says more or something else."""
        cited = self._cite_all(ended, block)
        if not block.text or ended.beyond(block.text) == "" or _kind_of(ended) != _kind_of(block):
            return cited
        ended.become(block.text)
        return [*cited, replace(self.sealed_as(ended.number, block, block.text), message_id=ended.message_id)]

    def _cite_all(self, part: Part, block: Block) -> list[ev.Body]:
        news = block.citations[part.citations :]
        part.citations += len(news)
        return [ev.BlockAnnotated(part.message_id, part.number, raw(citation)) for citation in news]

    def _is_result(self, fields: Mapping[str, JsonText]) -> bool:
        return is_result(fields, self._calls)

    def _take_result(self, source: JsonText) -> list[ev.Body]:
        """What a tool gave back, which the server ran for itself; it waits until no block is open."""
        item = Fields(source, "an item")
        call_id = item.maybe_text("call_id") or item.maybe_text("id")
        if call_id in self._has_come_back:
            return []
        self._has_come_back.add(call_id)
        self._results.append(result_of(item, item_type(split(source))))
        return self._settle()

    def _settle(self) -> list[ev.Body]:
        """What came back, once the message before it is whole."""
        if not self._results or any(item.open for item in self._items):
            return []
        results, self._results = self._results, []
        ended = [] if self._is_between else [ev.MessageFinished(self.message_id, "complete")]
        self._is_between = True
        return [*ended, *self._results_of(results)]

    def _results_of(self, results: Sequence[HistoryMessage]) -> Iterator[ev.Body]:
        for result in results:
            yield from message_bodies(self.run_id, self._mint(), result)

    def _resume(self) -> list[ev.Body]:
        """The next message of this response begins."""
        if not self._is_between:
            return []
        self._is_between, self.blocks, self.last_text = False, 0, None
        self.message_id = self._mint()
        return [ev.MessageStarted(self.run_id, self.message_id, "assistant", None, self.ref)]


_STEPS: Final[dict[str, Callable[[Output, Mapping[str, JsonText]], list[ev.Body] | None]]] = {
    "response.output_item.added": Output.add_item,
    "response.output_item.done": Output.finish_item,
    "response.content_part.done": Output.complete_part,
    "response.output_text.annotation.added": Output.cite_text,
    "response.shell_call_command.added": Output.begin_command,
    "response.shell_call_command.delta": Output.grow_command,
}


def _kind_of(block: Part | Block) -> str:
    return "reasoning" if block.kind == "redacted_reasoning" else block.kind


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
