"""Items of the Responses API, as input and output have them: in and out.

Reasoning and what follows it move together, an item goes back under its own id only where the reasoning before it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec.structs import replace

from projector.formats.chat.parts import extra_of, says_nothing
from projector.formats.format import Export
from projector.formats.outgoing.repair import Rules, mend
from projector.formats.responses.output import (
    REASONING,
    SAID,
    groups,
    has_own_id,
    is_sound,
    item_of,
    result_item,
    result_parts,
    type_of_call,
    without_id,
    write_citation,
    write_part,
)
from projector.formats.responses.parts import (
    PART,
    PROVIDER,
    content_parts,
    is_client_call,
    is_result,
    item_blocks,
    item_type,
    part_block,
)
from projector.formats.shared.fields import Fields, items_of
from projector.formats.shared.history import History, HistoryMessage, Loss, text_parts
from projector.formats.shared.payloads import maker_of, payload_for
from projector.json_text import InvalidJson, JsonText, dump, join_fields, plain, split
from projector.message import Block, Message

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

EXTRA: Final = "openai"
"""Under this name a message's metadata holds the fields of its item that have no other place."""
_CLIENTS: Final = ("user", "system", "developer")
_TEXT_RESULTS: Final = (
    "function_call_output", "custom_tool_call_output", "local_shell_call_output", "apply_patch_call_output",
)  # fmt: skip
_NOTHING: Final = -1
_OF_CLIENT: Final = {"mcp_approval_response": "user", "additional_tools": "developer"}
"""Items that the client adds, with the role of the message that they become."""
_RULES: Final = Rules(
    provider=PROVIDER,
    kinds=frozenset({
        *SAID, *REASONING, "tool_call", "server_tool_call", "server_tool_result", "compaction", "media", "provider",
    }),
    reasoning_leads=True,
    object_input=True,
    refuse_nul=True,
    id_characters="!-~",
)  # fmt: skip


def read(text: str) -> Iterator[History]:
    """The one history in a document: a list of items, or an object that has it as `input` or as `output`.

    Raises `FormatError` with the place and what was expected.
    """
    text = text.removeprefix("\ufeff")
    metadata: dict[str, JsonText] = {}
    if text.lstrip().startswith("["):
        items = [(item, f"item {at}") for at, item in enumerate(items_of(text, "the document"))]
    else:
        document = Fields(text, "the document")
        name = next((name for name in ("input", "output") if name in document), None)
        if name is None:
            raise document.wrong('a list of items was expected, or an object with "input" or "output"')
        said = document.raw(name) or ""
        one = join_fields({"role": '"user"', "content": said})
        items = [(one, f'the document, in "{name}"')] if said.startswith('"') else document.items(name)
        metadata = document.rest(name)
    reader = _Reader()
    for item, place in items:
        fields = Fields(item, place)
        try:
            reader.read(item, fields)
        except InvalidJson as error:
            raise fields.wrong(f"the item can't be read ({error})") from error
    yield History(tuple(reader.drafts), metadata=metadata)


class _Reader:
    """Items in their order: what the model said in one go is one message."""

    def __init__(self) -> None:
        self.drafts: list[HistoryMessage] = []
        self._calls: dict[str, str] = {}
        self._is_answering = False

    def read(self, text: JsonText, item: Fields) -> None:
        fields = split(text)
        kind = item_type(fields)
        role: Any = item.maybe_text("role") if kind == "message" else _OF_CLIENT.get(kind)
        if kind == "message" and role not in (*_CLIENTS, "assistant"):
            raise item.wrong(f'"role" should be one of {", ".join(_CLIENTS)} or assistant, not {dump(role)}')
        if is_result(fields, self._calls):
            self._add(_result(item, kind), is_answer=False)
        elif role in _CLIENTS:
            self._add(_said(role, item, kind), is_answer=False)
        else:
            if kind in ("function_call", "custom_tool_call") or is_client_call(kind, fields):
                self._calls[item.maybe_text("call_id") or item.maybe_text("id") or ""] = kind
            self._answer(item_blocks(text, item.place))

    def _answer(self, blocks: list[Block]) -> None:
        if not self._is_answering:
            self._add(HistoryMessage("assistant", ()), is_answer=True)
        last = self.drafts[-1]
        self.drafts[-1] = replace(last, blocks=(*last.blocks, *blocks))

    def _add(self, draft: HistoryMessage, *, is_answer: bool) -> None:
        self.drafts.append(draft)
        self._is_answering = is_answer


def _said(role: Any, item: Fields, kind: str) -> HistoryMessage:
    if kind in _OF_CLIENT:
        return HistoryMessage(role, tuple(item_blocks(item.source, item.place)))
    parts = content_parts(split(item.source), item.place)
    return HistoryMessage(role, tuple(part_block(part) for part in parts), metadata=_extra(item, "type", "role", "content"))


def _result(item: Fields, kind: str) -> HistoryMessage:
    ref = item.maybe_text("call_id") or item.maybe_text("id") or ""
    output = item.raw("output") or '""'
    status, metadata = "ok", {}
    if kind in _TEXT_RESULTS:
        is_list = output.startswith("[")
        parts = _parts(item) if is_list else text_parts(item.maybe_text("output") or "")
        metadata = _extra(item, "type", "call_id", "output", *(("status",) if kind == "apply_patch_call_output" else ()))
        if kind == "apply_patch_call_output" and item.maybe_text("status") == "failed":
            status = "error"
    else:
        own = f'{{"provider":"{PROVIDER}","payload":{item.source}}}'
        parts = f'[{{"kind":"text","text":{dump(item.raw("output") or item.raw("tools") or "")}}},'
        parts += f'{{"kind":"provider","opaque":{own}}}]'
    block = Block("tool_result", sealed=True, tool_call_id=ref, status=status, parts=parts)
    return HistoryMessage("tool", (block,), metadata=metadata)


def _parts(item: Fields) -> JsonText:
    parts = []
    for text, _ in item.items("output"):
        block = part_block(text)
        part = {"kind": dump(block.kind)} | ({"text": dump(block.text)} if block.kind == "text" else {})
        part |= {"media_type": dump(block.media_type)} if block.media_type else {}
        part |= {"type": dump(block.provider_ref)} if block.kind == "provider" else {}
        parts.append(join_fields(part | ({"opaque": block.opaque} if block.opaque else {})))
    return "[" + ",".join(parts) + "]"


def _extra(item: Fields, *known: str) -> dict[str, JsonText]:
    rest = {name: text for name, text in item.rest(*known).items() if not says_nothing(text)}
    rest = {name: text for name, text in rest.items() if (name, text) != ("status", '"completed"')}
    return {EXTRA: join_fields(rest)} if rest else {}


def write(messages: Sequence[Message], *, reasoning: Literal["encrypted", "any"] = "encrypted") -> Export:
    """A path of messages as items that the API takes.

    Reasoning goes back with its encrypted content; `any` also sends what has none, which only a server takes that has
    kept the response (`store`), or that reads reasoning in plain text.
    """
    writer = _Writer()
    given = [writer.prepare(message, reasoning) for message in _without_blind_calls(messages, writer.repairs)]
    mended = mend(given, _RULES)
    originals = {message.id: message for message in messages}
    for message in mended.messages:
        if message.role == "assistant":
            writer.answer(message, originals.get(message.id, message))
        elif message.role == "tool":
            writer.result(message)
        else:
            writer.say(message)
    return Export(writer.items, (*writer.losses, *mended.losses), (*mended.repairs, *writer.repairs))


class _Writer:
    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self.losses: list[Loss] = []
        self.repairs: list[Loss] = []
        self._ids: set[str] = set()
        self._calls: dict[str | None, str] = {}

    def prepare(self, message: Message, reasoning: str) -> Message:
        """The message without reasoning that can't be sent."""
        kept = []
        for block in message.blocks:
            is_own = block.kind in REASONING and maker_of(block) == PROVIDER
            if is_own and block.signature is None and reasoning != "any":
                self.losses.append(Loss("reasoning without encrypted content is not sent", message.id, block.number))
            elif is_own and not (has_own_id(item_of([block])) or (reasoning == "any" and block.provider_ref)):
                self.losses.append(Loss("reasoning without an id of OpenAI is not sent", message.id, block.number))
            elif maker_of(block) == PROVIDER and not is_sound(item_of([block])):
                self.losses.append(Loss("an item whose ids are broken is not sent", message.id, block.number))
            else:
                kept.append(block)
        return replace(message, blocks=tuple(kept))

    def answer(self, message: Message, original: Message) -> None:
        leads, follows = _bonds(original)
        kept = {block.number for block in message.blocks}
        blocks = []
        for block in message.blocks:
            if block.kind in REASONING and follows.get(block.number, block.number) not in kept:
                self.repairs.append(Loss("reasoning without what it led to is not sent", message.id, block.number))
            else:
                blocks.append(block)
        for group in groups(blocks):
            block = group[0]
            item = item_of(group)
            is_loose = not leads.get(block.number, set()) <= kept
            if is_loose and block.kind not in (*SAID, "tool_call"):
                self.losses.append(Loss("it is not taken without its reasoning", message.id, block.number))
                continue
            self._note_citations(message, group)
            if block.kind == "tool_call":
                self._calls[block.tool_call_id] = type_of_call(block)
            self.items += self._with_fit_id(message, block, item, is_loose=is_loose)

    def say(self, message: Message) -> None:
        """A message of the client: its content, then items of its own."""
        if message.name:
            self.losses.append(Loss("a message has no name here", message.id))
        parts: list[dict[str, Any]] = []
        own: list[dict[str, Any]] = []
        for block in message.blocks:
            if _is_item(block):
                own += self._own(message, block)
                continue
            part = write_part(block)
            if part is None:
                self.losses.append(Loss(f"there is no form for it ({block.media_type})", message.id, block.number))
            else:
                parts.append(part)
        if not parts and any(not _is_item(block) for block in message.blocks):
            parts = [{"type": "input_text", "text": "[What this message held can't be sent.]"}]
        if parts:
            is_plain = [set(part) for part in parts] == [{"type", "text"}]
            content = parts[0]["text"] if is_plain else parts
            self.items.append({"role": message.role, "content": content} | extra_of(message, EXTRA, self.repairs))
        self.items += own

    def result(self, message: Message) -> None:
        [block] = message.blocks
        item = result_item(block, self._calls.get(block.tool_call_id, "function_call"))
        if item is None:
            raise AssertionError("calls whose result can't be sent are left out")
        if block.status == "error" and item["type"] != "apply_patch_call_output":
            self.losses.append(Loss("that a tool failed can't be said, but by its text", message.id, block.number))
        for part in result_parts(block.parts):
            if part.kind == "media" and write_part(part) is None:
                self.losses.append(Loss(f"there is no form for such media ({part.media_type})", message.id, block.number))
        self.items.append(item | extra_of(message, EXTRA, self.repairs))

    def _own(self, message: Message, block: Block) -> list[dict[str, Any]]:
        item: dict[str, Any] = plain(payload_for(block, PROVIDER) or "{}")
        request = item.get("approval_request_id")
        if request is not None and request not in self._ids:
            self.repairs.append(Loss(f"an answer to {request}, which is not asked here, is not sent", message.id, block.number))
            return []
        return [item]

    def _with_fit_id(self, message: Message, block: Block, item: dict[str, Any], *, is_loose: bool) -> list[dict[str, Any]]:
        ref = item.get("id")
        if ref is None:
            return [without_id(item)]
        is_seen = str(ref) in self._ids
        self._ids.add(str(ref))
        if block.kind not in (*SAID, "tool_call"):
            if is_seen:
                self.repairs.append(Loss(f"the item {ref} is there twice, it is sent once", message.id, block.number))
            return [] if is_seen else [item]
        if has_own_id(item) and not is_loose and not is_seen:
            return [item]
        if is_seen:
            self.repairs.append(Loss(f"the id {ref} is there twice, it is sent once", message.id, block.number))
        else:
            why = "for its reasoning is not sent" if is_loose else "for it is not one of OpenAI's"
            self.losses.append(Loss(f"the id {ref} is not sent, {why}", message.id, block.number))
        return [without_id(item)]

    def _note_citations(self, message: Message, group: Sequence[Block]) -> None:
        for block in group:
            if any(write_citation(citation) is None for citation in block.citations):
                self.losses.append(Loss("citations of another provider are not sent", message.id, block.number))


def _is_item(block: Block) -> bool:
    """Whether a block of the client is an item of its own, and no part of a message."""
    return block.kind == "provider" and not (block.provider_ref or "").startswith(PART)


def _bonds(message: Message) -> tuple[dict[int, set[int]], dict[int, int]]:
    """For each block the reasoning directly before it, for each reasoning what follows it."""
    leads: dict[int, set[int]] = {}
    follows: dict[int, int] = {}
    open_reasoning: set[int] = set()
    for block in message.blocks:
        if block.kind in REASONING and maker_of(block) == PROVIDER:
            open_reasoning.add(block.number)
        elif block.kind not in REASONING:
            leads[block.number] = open_reasoning
            is_answer = block.kind != "server_tool_result"  # whose call is missing
            follows |= dict.fromkeys(open_reasoning, block.number if is_answer else _NOTHING)
            open_reasoning = set()
    return leads, follows


def _without_blind_calls(messages: Sequence[Message], repairs: list[Loss]) -> list[Message]:
    """A computer's call is answered by a picture and by nothing else: one without is left out."""
    results = [block for message in messages for block in message.blocks if block.kind == "tool_result"]
    shown = {block.tool_call_id for block in results if result_item(block, "computer_call") is not None}
    kept = []
    for message in messages:
        blocks = []
        for block in message.blocks:
            if block.kind == "tool_call" and type_of_call(block) == "computer_call" and block.tool_call_id not in shown:
                repairs.append(Loss("a call of a computer without its picture is not sent", message.id, block.number))
            else:
                blocks.append(block)
        kept.append(message if len(blocks) == len(message.blocks) else replace(message, blocks=tuple(blocks)))
    return kept
