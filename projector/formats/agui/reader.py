"""AG-UI messages: text, tool calls and results, reasoning as messages of its own, activities.

A response of the model is one message with us and several of one kind each in AG-UI: its reasoning, then what it says
with its calls. They are read as one where they stand so; where they can't, or another maker signed, the metadata of
the written messages says it (`tailfold`). Source: the AG-UI 1.0 schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from projector.formats.agui.parts import (
    ACTIVITY,
    ANSWER,
    NO_ARGUMENTS,
    PROVIDER,
    SHELL,
    content_blocks,
    content_parts,
    content_shell,
)  # fmt: skip
from projector.formats.format import FormatError
from projector.formats.outgoing.display import HINT
from projector.formats.shared.blocks import kept_block
from projector.formats.shared.fields import Fields, messages_of, shown
from projector.formats.shared.history import History, HistoryMessage, call_block, result_draft
from projector.formats.shared.payloads import opaque
from projector.json_text import JsonText, decode, is_json, join_fields
from projector.message import Block

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from projector.events import Role

_ROLES: Final = ("user", "system", "developer", "assistant", "tool", "reasoning", ACTIVITY)
_EXPECTED: Final = 'AG-UI messages were expected: a JSON list, or an object with "messages"'


def read(text: str) -> Iterator[History]:
    """The conversation in a list of messages, a RunAgentInput or a MESSAGES_SNAPSHOT event. Raises `FormatError`."""
    given = messages_of(text, _EXPECTED)
    if isinstance(given, list):
        yield History(tuple(drafts_of(given)))
        return
    if "messages" not in given:
        raise FormatError(f"{_EXPECTED}, not {shown(given.source)}")
    rest = given.rest("messages", "threadId", "thread_id", "type")
    name = given.maybe_text("threadId") or given.maybe_text("thread_id")
    yield History(tuple(drafts_of(given.objects("messages"))), name=name, metadata=rest)


def drafts_of(messages: Iterable[Fields]) -> list[HistoryMessage]:
    """The messages in our form: reasoning and the answer behind it are one. Raises `FormatError`."""
    drafts: list[HistoryMessage] = []
    group: list[Fields] = []
    for message in messages:
        role = message.text("role")
        if role not in _ROLES:
            raise message.wrong(f"the role {role!r} is none of {', '.join(_ROLES)}")
        if group and not _goes_on(group, message):
            drafts.append(_answer(group))
            group = []
        if role in ANSWER:
            group.append(message)
        else:
            drafts.append(_single(role, message))
    return [*drafts, _answer(group)] if group else drafts


def hint_of(fields: Fields) -> dict[str, Any]:
    """What we have written into the metadata of a message, call or event."""
    metadata = fields.raw("metadata") or ""
    hint = decode(metadata).get(HINT) if metadata.startswith("{") else None
    return hint if isinstance(hint, dict) else {}


def call_of(call: Fields) -> Block:
    """One of the tool calls of a message. No arguments are an empty object."""
    function = call.need("function")
    arguments = function.maybe_text("arguments") or NO_ARGUMENTS
    name, tool_call_id = function.text("name"), call.text("id")
    block = call_block(name, tool_call_id, arguments, is_json=is_json(arguments))
    return sign(block, call, call.rest("id", "type", "function", "encryptedValue"))


def sign(block: Block, fields: Fields, rest: dict[str, JsonText]) -> Block:
    """A block with the encrypted value that came with it, for whoever made it, and what else is for AG-UI only."""
    value, signer = fields.maybe_text("encryptedValue"), hint_of(fields).get("signer")
    return signed(block, value, signer if isinstance(signer, str) else PROVIDER, without_hint(rest))


def signed(block: Block, value: str | None, signer: str, rest: dict[str, JsonText]) -> Block:
    """The same of parts that are known."""
    if value is None and not rest:
        return block
    kept = opaque(PROVIDER, join_fields(rest), signer=None if value is None or signer == PROVIDER else signer)
    fields = {name: getattr(block, name) for name in block.__struct_fields__}
    return Block(**fields | {"signature": value, "opaque": kept})


def without_hint(rest: dict[str, JsonText]) -> dict[str, JsonText]:
    """Fields without what we have written into their metadata ourselves."""
    metadata = rest.get("metadata", "")
    if HINT not in metadata or not metadata.startswith("{"):
        return rest
    others = Fields(metadata, "metadata").rest(HINT)
    kept = {name: text for name, text in rest.items() if name != "metadata"}
    return kept | ({"metadata": join_fields(others)} if others else {})


def _goes_on(group: Sequence[Fields], message: Fields) -> bool:
    if message.text("role") not in ANSWER:
        return False
    ours = hint_of(group[0]).get("message")
    if ours is not None or hint_of(message).get("message") is not None:
        return bool(ours == hint_of(message).get("message"))
    return all(other.text("role") == "reasoning" for other in group)


def _answer(group: Sequence[Fields]) -> HistoryMessage:
    blocks: list[Block] = []
    shells = []
    named = next((message for message in group if message.text("role") == "assistant"), group[-1])
    for message in group:
        rest = message.rest("role", "content", "toolCalls", *(["name"] if message is named else []))
        if message.text("role") == "reasoning":
            rest.pop("encryptedValue", None)
            blocks.append(sign(Block("reasoning", text=message.maybe_text("content") or "", sealed=True), message, {}))
        else:
            rest |= content_shell(message)
            blocks += [*content_blocks(message), *map(call_of, message.objects("toolCalls"))]
        shells.append(join_fields(without_hint(rest)))
    metadata = {SHELL: "[" + ",".join(shells) + "]"}
    return HistoryMessage(
        "assistant", tuple(blocks), name=named.maybe_text("name"), provider_ref=named.maybe_text("id"), metadata=metadata
    )


def _single(role: str, message: Fields) -> HistoryMessage:
    if role == ACTIVITY:
        return HistoryMessage(
            "assistant", (kept_block(PROVIDER, message.source, ACTIVITY),), provider_ref=message.maybe_text("id")
        )
    if role == "tool":
        given = hint_of(message).get("status")
        status = given if isinstance(given, str) else "error" if "error" in message else "ok"
        draft = result_draft(message.text("toolCallId"), content_parts(message), status=status)
        rest = message.rest("role", "content", "toolCallId") | content_shell(message)
        kept = {SHELL: "[" + join_fields(without_hint(rest)) + "]"}
        return HistoryMessage("tool", draft.blocks, metadata=kept)
    rest = message.rest("role", "content", "name") | content_shell(message)
    kept = {SHELL: "[" + join_fields(without_hint(rest)) + "]"}
    ref, name = message.maybe_text("id"), message.maybe_text("name")
    return HistoryMessage(cast("Role", role), tuple(content_blocks(message)), name=name, provider_ref=ref, metadata=kept)
