"""Anthropic Messages: requests, lists of messages and whole responses in, `{"system", "messages"}` out.

Source: the public reference of the *Messages API*; what it demands is stated in `RULES` and checked by `validators`.
Not expressed: names of speakers, answers about approvals, where in the conversation an instruction stood, statuses of a tool's
result beyond its being an error, media without bytes or address, what only another provider can read.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final, get_args

from msgspec.structs import replace

from projector import events as ev
from projector.formats.anthropic.parts import (
    PROVIDER,
    known_block,
    lost_citations,
    numbers_as_text,
    read_block,
    read_part,
    value_of,
    write_block,
    write_part,
)
from projector.formats.format import Export, FormatError
from projector.formats.outgoing.repair import SYSTEM, Rules, mend
from projector.formats.outgoing.unicode import mend_json
from projector.formats.shared.fields import Fields, items_of, shown
from projector.formats.shared.history import History, HistoryMessage, Loss, result_draft, text_block, text_parts
from projector.formats.shared.payloads import maker_of
from projector.json_text import InvalidJson, JsonText, decode, dump, join_fields, split
from projector.run_draft import Usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from projector.message import Block, Message

RULES: Final = Rules(
    provider=PROVIDER,
    kinds=frozenset(
        {
            "text", "reasoning", "redacted_reasoning", "tool_call", "server_tool_call", "server_tool_result", "media",
            "compaction", "provider",
        }
    ),
    reasoning_leads=True,
    object_input=True,
    server_tools_answered=True,
    turns_combine=True,
    trimmed_end=True,
    id_characters="a-zA-Z0-9_-",
    id_length=128,
)  # fmt: skip
_SHELL: Final = "anthropic"
"""Metadata of a message: fields of Anthropic's message or tool_result that have no other place; `content: []` where it was a
list although text would say the same; `role: system` of an instruction that stood among the messages."""
_IN_RESPONSES: Final = ("id", "type", "role", "content", "usage")
_EMPTY_ERROR: Final = "[error]"
_WANTED: Final = 'an object with "messages", a list of messages, or a response with "content"'


def read(text: str) -> Iterator[History]:
    """The history of a request, of a list of messages, or of a whole response. Raises `FormatError`."""
    text = text.removeprefix("\ufeff")
    try:
        yield _read(text)
    except InvalidJson as error:
        raise FormatError(f"the document: JSON was expected, and {error}") from error


def _read(text: str) -> History:
    if text.lstrip().startswith("["):
        return _history(items_of(text, "the document"), {})
    document = Fields(text, "the document")
    if "messages" in document:
        messages = [item for item, _ in document.items("messages")]
        return _history(messages, document.rest("messages", "system"), document.raw("system"))
    if document.maybe_text("role") is None:
        raise document.wrong(f"{_WANTED} was expected, not {shown(text)}")
    return _history([text], {})


def _history(messages: Sequence[JsonText], metadata: dict[str, JsonText], system: JsonText | None = None) -> History:
    drafts: list[HistoryMessage] = []
    losses: list[Loss] = []
    if system is not None:
        drafts += _system(system)
    for number, message in enumerate(messages, 1):
        place = f"message {number}"
        fields = Fields(message, place)
        found = list(_read_message(fields))
        if not found:
            losses.append(Loss(f"{place} has no content"))
        elif fields.names() > {"role", "content"} and all(draft.role == "tool" for draft in found):
            losses.append(Loss(f"{place} has fields that results have no place for"))
        drafts += found
    return History(tuple(drafts), metadata=metadata, losses=tuple(losses))


def _system(system: JsonText) -> Iterator[HistoryMessage]:
    blocks = _read_content(system, "the system prompt")
    if blocks:
        yield HistoryMessage("system", tuple(blocks), metadata=_shell({}, system, blocks))


def _read_content(content: JsonText, place: str) -> list[Block]:
    if content.lstrip().startswith("["):
        return [read_block(Fields(item, f"{place}, block {at}")) for at, item in enumerate(items_of(content, place), 1)]
    said = decode(content)
    if not isinstance(said, str):
        raise FormatError(f"{place}: text or a list of blocks was expected, not {shown(content)}")
    return [text_block(said)] if said else []


def _read_message(message: Fields) -> Iterator[HistoryMessage]:
    role = message.text("role")
    if role not in get_args(ev.Role):
        raise message.wrong(f'"role" should be user or assistant, not {role!r}')
    content = message.raw("content")
    if content is None:
        raise message.wrong('"content" should be text or a list of blocks, and it is not there')
    if message.maybe_text("type") == "message":
        yield _read_response(message, content)
        return
    rest = {name: text for name, text in split(message.source).items() if name not in ("role", "content")}
    rest |= {"role": dump(role)} if role in SYSTEM else {}
    parts: list[Block | HistoryMessage] = []
    if not content.lstrip().startswith("["):
        parts += _read_content(content, message.place)
    else:
        for item, place in message.items("content"):
            block = Fields(item, place)
            parts.append(_read_result(block) if block.text("type") == "tool_result" else read_block(block))
    yield from _grouped(role, parts, rest, content)


def _grouped(
    role: Any, parts: Sequence[Block | HistoryMessage], rest: dict[str, JsonText], content: JsonText
) -> Iterator[HistoryMessage]:
    """Results are messages of their own; what stands between them belongs together."""
    blocks: list[Block] = []
    for part in [*parts, None]:
        if part is not None and not isinstance(part, HistoryMessage):
            blocks.append(part)
            continue
        if blocks:
            yield HistoryMessage(role, tuple(blocks), metadata=_shell(rest, content, blocks if len(parts) == 1 else []))
            blocks, rest = [], {}
        if part is not None:
            yield part


def _read_result(result: Fields) -> HistoryMessage:
    content = result.raw("content")
    rest = {name: text for name, text in split(result.source).items() if name not in ("type", "tool_use_id", "content")}
    if rest.get("is_error") == "true":
        del rest["is_error"]
    blocks = [] if content is None else _read_content(content, f'{result.place}, in "content"')
    if content is not None and not blocks:  # an empty text or list is not the same as none
        rest["content"] = content
    is_list = content is not None and content.lstrip().startswith("[")
    read_parts = ",".join(map(read_part, result.objects("content"))) if is_list else ""
    parts = f"[{read_parts}]" if is_list or not blocks else text_parts(blocks[0].text)
    draft = result_draft(result.text("tool_use_id"), parts, status="error" if result.is_true("is_error") else "ok")
    return replace(draft, metadata=_shell(rest, content or "", blocks))


def _read_response(message: Fields, content: JsonText) -> HistoryMessage:
    """A whole response: what its stream would have given."""
    blocks = _read_content(content, message.place)
    reason = message.maybe_text("stop_reason")
    if reason == "refusal":
        details = message.object("stop_details")
        said = details.maybe_text("explanation") if details is not None else None
        blocks.append(replace(text_block(said or ""), kind="refusal"))
    used = message.object("usage")
    return HistoryMessage(
        "assistant",
        tuple(blocks),
        provider_ref=message.maybe_text("id"),
        metadata=message.rest(*_IN_RESPONSES),
        usage=_usage(used) if used is not None else None,
        model=message.maybe_text("model"),
        provider=PROVIDER,
        finish_reason=reason,
    )


def _usage(used: Fields) -> Usage:
    """Cached tokens stand beside the input here; ours is a total."""
    cached, written = used.whole("cache_read_input_tokens"), used.whole("cache_creation_input_tokens")
    fresh, details = used.whole("input_tokens"), used.object("output_tokens_details")
    total = None if fresh is None else fresh + (cached or 0) + (written or 0)
    reasoning = details.whole("thinking_tokens") if details is not None else None
    return Usage(total, used.whole("output_tokens"), cached, written, reasoning, used.source)


def _shell(rest: dict[str, JsonText], content: JsonText, blocks: Sequence[Block]) -> dict[str, JsonText]:
    fields = dict(rest)
    if content.lstrip().startswith("[") and len(blocks) == 1 and _is_plain(blocks[0]):
        fields["content"] = "[]"
    return {_SHELL: join_fields(fields)} if fields else {}


def _is_plain(block: Block) -> bool:
    return block.kind == "text" and not block.opaque and not block.citations


def write(messages: Sequence[Message]) -> Export:
    """A path as `{"system"?, "messages"}`, such as the Messages API takes it.

    Results stand first in the user's message that follows their calls.
    """
    writer = _Writer()
    mended = mend(writer.arranged([writer.expressible(message) for message in messages]), RULES)
    for message, following in zip_longest(mended.messages, mended.messages[1:]):
        writer.add(message, following)
    return Export(writer.payload(), (*writer.losses, *mended.losses), (*mended.repairs, *writer.repairs))


class _Writer:
    def __init__(self) -> None:
        self.losses: list[Loss] = []
        self.repairs: list[Loss] = []
        self._system: list[dict[str, Any]] = []
        self._is_text = False
        self._messages: list[dict[str, Any]] = []
        self._takes_more = False

    def payload(self) -> dict[str, Any]:
        """What was written."""
        system: Any = self._system[0]["text"] if self._is_text and len(self._system) == 1 else self._system
        return ({"system": system} if system else {}) | {"messages": self._messages}

    def expressible(self, message: Message) -> Message:
        """The message without what no block of Anthropic says."""
        if message.name is not None:
            self.losses.append(Loss("the name of the speaker", message.id))
        known = (known_block(block) for block in message.blocks)
        blocks = tuple(block for block in known if self._is_expressible(message, block))
        return message if blocks == message.blocks else replace(message, blocks=blocks)

    def arranged(self, messages: Sequence[Message]) -> list[Message]:
        """Instructions first, but for those that came from inside a conversation of Anthropic's."""
        first = [message for message in messages if message.role in SYSTEM and not _is_inside(message)]
        rest = [message for message in messages if message.role not in SYSTEM or _is_inside(message)]
        for message, given in zip([*first, *rest], messages, strict=True):
            if message is not given and message.role in SYSTEM:
                self.repairs.append(Loss("an instruction inside the conversation is sent before it", message.id))
        return first + rest

    def add(self, message: Message, following: Message | None) -> None:
        """The next message of a mended path, and the one behind it."""
        if message.role == "tool":
            results = [self._result(message, message.blocks[0])]
            if self._takes_more:
                self._messages[-1]["content"] += results
            else:
                self._messages.append({"role": "user", "content": results})
            self._takes_more = True
            return
        blocks = [said for block in message.blocks if (said := write_block(block)) is not None]
        shell = {name: value for name, value in _shell_of(message).items() if name not in ("role", "content")}
        if message.role in SYSTEM and not self._has_place(message, following):
            self._instruct(message, blocks)
        elif message.role == "user" and self._takes_more:
            self._messages[-1] |= {"content": self._messages[-1]["content"] + blocks} | shell
            self._takes_more = False
        else:
            content = message.text if _prefers_text(message) else blocks
            self._messages.append({"role": message.role, "content": content} | shell)
            self._takes_more = False

    def _has_place(self, message: Message, following: Message | None) -> bool:
        """Whether an instruction may stand here (*Mid-conversation system messages*; newer models only)."""
        if not _is_inside(message) or not self._messages or (following is not None and following.role != "assistant"):
            return False
        before = self._messages[-1]
        last = before["content"][-1] if isinstance(before["content"], list) else {"type": "text"}
        is_of_server = "server_tool" in last["type"] or "tool_use_id" in last
        return before["role"] == "user" or (before["role"] == "assistant" and is_of_server)

    def _instruct(self, message: Message, blocks: Sequence[dict[str, Any]]) -> None:
        texts = [block for block in blocks if block["type"] == "text"]
        if _is_inside(message):
            self.repairs.append(Loss("an instruction that has no place in the conversation is sent before it", message.id))
            self.losses += [Loss("an instruction is text", message.id)] if len(texts) < len(blocks) else []
        if self._system and texts:
            self.losses.append(Loss("where an instruction ends: all are one system prompt", message.id))
        self._is_text = not self._system and _prefers_text(message)
        self._system += texts

    def _is_expressible(self, message: Message, block: Block) -> bool:
        if message.role in SYSTEM and block.kind != "text" and not _is_inside(message):
            self._lose(f"an instruction is text, and not {block.kind}", message, block)
            return False
        if block.kind == "reasoning" and block.sealed and not block.signature:
            self._lose("reasoning without its signature", message, block)
            return False
        if block.kind == "media" and message.role == "assistant":
            self._lose("an assistant has no media", message, block)
            return False
        if block.kind == "media" and block.sealed and write_block(block) is None:
            self._lose("media without bytes or an address that Anthropic takes", message, block)
            return False
        if block.kind in RULES.kinds and maker_of(block) in (None, PROVIDER) and write_block(block) is None:
            self._lose(f"a {block.kind} that says nothing", message, block)
            return False
        if block.kind in ("tool_call", "server_tool_call"):
            if block.approval is not None:
                self._lose("the answer about the approval", message, block)
            if numbers_as_text(block.input or block.text):
                self._lose("a number too large for a float; it is sent as text", message, block)
        for _ in range(lost_citations(block)):
            self._lose("a citation of another kind", message, block)
        return True

    def _result(self, message: Message, block: Block) -> dict[str, Any]:
        shell = _shell_of(message)
        content: Any = list(self._parts(message, block))
        if len(content) == 1 and content[0].keys() == {"type", "text"} and shell.get("content") != []:
            content = content[0]["text"]
        else:
            filled = [part for part in content if part["type"] != "text" or part["text"].strip()]
            if len(filled) < len(content):
                self.repairs.append(Loss("blank parts of a result are not sent", message.id, block.number))
            content = filled
        is_error = block.status not in (None, "ok")
        if is_error and not content:
            self.repairs.append(Loss("an error without text is sent as such", message.id, block.number))
            content = _EMPTY_ERROR
        if block.status in ("denied", "interrupted"):
            self._lose(f"that the result was {block.status}; it is sent as an error", message, block)
        sent = {"type": "tool_result", "tool_use_id": block.tool_call_id} | ({"is_error": True} if is_error else {})
        sent |= {name: value for name, value in shell.items() if name != "content"}
        return sent | ({"content": content} if content else {"content": shell["content"]} if "content" in shell else {})

    def _parts(self, message: Message, block: Block) -> Iterator[dict[str, Any]]:
        given = value_of(block.parts or "[]")
        for part in given if isinstance(given, list) else [given]:
            said = write_part(part if isinstance(part, dict) else {"kind": "text", "text": str(part)})
            if said is None:
                self._lose("a part of a result that Anthropic has no form for", message, block)
            else:
                yield said

    def _lose(self, what: str, message: Message, block: Block) -> bool:
        self.losses.append(Loss(what, message.id, block.number))
        return False


def _prefers_text(message: Message) -> bool:
    is_one = len(message.blocks) == 1 and _is_plain(message.blocks[0])
    return is_one and "content" not in _shell_of(message)


def _is_inside(message: Message) -> bool:
    """Whether an instruction came as a message among others."""
    return _shell_of(message).get("role") == "system"


def _shell_of(message: Message) -> dict[str, Any]:
    shell = value_of(mend_json(message.metadata.get(_SHELL, "{}"), refuse_nul=False)[0])
    return shell if isinstance(shell, dict) else {}
