"""LangChain messages: content blocks of version 1, and the older forms: text with `tool_calls`, and raw calls of OpenAI.

Read as they are dumped flat, as `{"type", "data"}`, or as LangChain serialises objects (`{"lc": 1, …}`). What our own
fields do not say of a message stays with it. Source: `langchain-core` 1.8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from msgspec.structs import replace

from projector.formats.format import FormatError
from projector.formats.langchain import parts as blocks_of
from projector.formats.langchain.parts import MAKERS, PROVIDER, SHELL
from projector.formats.shared.blocks import part_data
from projector.formats.shared.fields import Fields, messages_of, shown
from projector.formats.shared.history import History, HistoryMessage, Loss, result_draft, text_block, text_parts
from projector.json_text import JsonText, decode, dump, is_json, join_fields
from projector.message import Block
from projector.run_draft import Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from projector.events import Role

_ROLES: Final[dict[str, Role]] = {
    "human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "tool", "developer": "developer",
}  # fmt: skip
_CHAT_ROLES: Final[dict[str, Role]] = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "system": "system",
}
_EXPECTED: Final = 'LangChain messages were expected: a JSON list, one message, or an object with "messages"'
_SAID: Final = ("type", "content", "name", "tool_calls", "invalid_tool_calls", "tool_call_id", "status", "role")
_FRAGMENTS: Final = ("tool_call_chunks", "chunk_position")
_KEYWORDS: Final = ("tool_calls", "function_call", "refusal", "reasoning_content")


def read(text: str) -> Iterator[History]:
    """The conversation in a list of messages, one of them, or a state with `messages`. Raises `FormatError`."""
    given = messages_of(text, _EXPECTED)
    if isinstance(given, list):
        yield _history(given)
    elif "messages" in given:
        found = _history(given.objects("messages"))
        yield History(found.drafts, metadata=given.rest("messages"), losses=found.losses)
    elif "type" in given:
        yield _history([given])
    else:
        raise FormatError(f"{_EXPECTED}, not {shown(given.source)}")


def _history(messages: Iterable[Fields]) -> History:
    drafts: list[HistoryMessage] = []
    losses: list[Loss] = []
    for given in messages:
        kind, message = _plain_form(given)
        if kind == "remove":
            losses.append(Loss("a message that removes another one", message.maybe_text("id")))
            continue
        if kind == "chat" and message.text("role") not in _CHAT_ROLES:
            losses.append(Loss(f"the role {message.text('role')!r}, it is taken as the user's", message.maybe_text("id")))
        drafts.append(_draft(kind, message))
    return History(tuple(drafts), losses=tuple(losses))


def _plain_form(given: Fields) -> tuple[str, Fields]:
    """The type and the fields of a message, in whichever form it was kept."""
    if "lc" in given:
        names = given.items("id")
        name = decode(names[-1][0]) if names else ""
        message = given.need("kwargs")
        kind = message.maybe_text("type") or str(name).removesuffix("Chunk").removesuffix("Message").lower()
    elif "data" in given:
        message, kind = given.need("data"), given.text("type")
    else:
        message, kind = given, given.text("type")
    kind = kind.removesuffix("MessageChunk").lower()
    if kind not in _ROLES and kind not in ("chat", "remove"):
        raise given.wrong(f"the type {kind!r} is none of {', '.join(_ROLES)}, chat, remove")
    return kind, message


def _draft(kind: str, message: Fields) -> HistoryMessage:
    role = _CHAT_ROLES.get(message.text("role"), "user") if kind == "chat" else _ROLES[kind]
    keywords, about = message.object("additional_kwargs"), message.object("response_metadata")
    if keywords is not None and keywords.raw("__openai_role__") == '"developer"':
        role = "developer"
    rest = message.rest(*_SAID, *_FRAGMENTS)
    if keywords is not None and any(name in keywords for name in _KEYWORDS):
        rest["additional_kwargs"] = join_fields(keywords.rest(*_KEYWORDS))
    rest |= _content_shell(message)
    named = about.maybe_text("model_provider") if about is not None else None
    maker = MAKERS.get(named or "", PROVIDER)
    if role == "tool":
        return _result(message, rest, maker)
    blocks = _content(message, maker)
    if role == "assistant":
        blocks = _with_calls(_with_keywords(blocks, keywords), message, keywords, maker)
    draft = HistoryMessage(
        cast("Role", role), tuple(blocks), name=message.maybe_text("name"), provider_ref=message.maybe_text("id")
    )
    return replace(_with_facts(draft, message, about), metadata={SHELL: join_fields(rest)}, provider=maker if named else None)


def _with_facts(draft: HistoryMessage, message: Fields, about: Fields | None) -> HistoryMessage:
    used = message.object("usage_metadata")
    usage = None
    if used is not None:
        inside, out = used.object("input_token_details"), used.object("output_token_details")
        cached = inside.whole("cache_read") if inside is not None else None
        written = inside.whole("cache_creation") if inside is not None else None
        reasoning = out.whole("reasoning") if out is not None else None
        usage = Usage(used.whole("input_tokens"), used.whole("output_tokens"), cached, written, reasoning, used.source)
    if about is None:
        return replace(draft, usage=usage)
    model = about.maybe_text("model_name") or about.maybe_text("model")
    reason = about.maybe_text("finish_reason") or about.maybe_text("stop_reason")
    return replace(draft, usage=usage, model=model, finish_reason=reason)


def _content(message: Fields, maker: str) -> list[Block]:
    content = message.raw("content")
    if content is None or not content.startswith("["):
        text = message.maybe_text("content")
        return [text_block(text)] if text else []
    blocks = []
    for item, place in message.items("content"):
        made = text_block(str(decode(item))) if item.startswith('"') else blocks_of.read_block(Fields(item, place), maker)
        if made is not None:
            blocks.append(made)
    return blocks


def _content_shell(message: Fields) -> dict[str, JsonText]:
    """That the content was a list, where text would say the same."""
    content = message.raw("content") or ""
    return {"content": "[]"} if content.startswith("[") else {}


def _with_keywords(blocks: list[Block], keywords: Fields | None) -> list[Block]:
    """What older integrations kept beside the content."""
    if keywords is None:
        return blocks
    thought, refusal = keywords.raw("reasoning_content"), keywords.raw("refusal")
    if thought is not None and thought.startswith('"') and not any(block.kind == "reasoning" for block in blocks):
        said = Block("reasoning", text=decode(thought), sealed=True)
        blocks = [said, *blocks] if said.text else blocks
    if refusal is not None and refusal.startswith('"') and not any(block.kind == "refusal" for block in blocks):
        blocks = [*blocks, Block("refusal", text=decode(refusal), sealed=True)]
    return blocks


def _with_calls(blocks: list[Block], message: Fields, keywords: Fields | None, maker: str) -> list[Block]:
    """The calls that the content does not have. Their arguments are as the provider wrote them, where that was kept."""
    written = _raw_calls(keywords, maker)
    listed = [*message.objects("tool_calls"), *message.objects("invalid_tool_calls")] or message.objects("tool_call_chunks")
    found = [blocks_of.read_call(call, maker) for call in listed] or list(written.values())
    for call in found:
        raw = written.get(call.tool_call_id or "")
        best = replace(call, text=raw.text) if raw is not None and _is_same(raw, call) else call
        at = next((at for at, block in enumerate(blocks) if _is_call(block, call.tool_call_id)), None)
        if at is None:
            blocks = [*blocks, best]
        elif not _is_same(blocks[at], call):  # what was parsed is the last word
            blocks = [*blocks[:at], best, *blocks[at + 1 :]]
    return blocks


def _is_call(block: Block, tool_call_id: str | None) -> bool:
    return block.kind == "tool_call" and tool_call_id is not None and block.tool_call_id == tool_call_id


def _is_same(one: Block, other: Block) -> bool:
    if one.text == other.text:
        return True
    return is_json(one.text) and is_json(other.text) and bool(decode(one.text) == decode(other.text))


def _raw_calls(keywords: Fields | None, maker: str) -> dict[str, Block]:
    """The calls of OpenAI's Chat Completions, as older messages have them beside the content."""
    if keywords is None:
        return {}
    found = {}
    for number, call in enumerate(keywords.objects("tool_calls")):
        function = call.need("function")
        ref = call.maybe_text("id")
        made = blocks_of.call(function.text("name"), ref, function.maybe_text("arguments") or "{}", {}, maker)
        found[ref or str(number)] = made
    function_call = keywords.object("function_call")
    if function_call is not None and not found:
        arguments = function_call.maybe_text("arguments") or "{}"
        found[""] = blocks_of.call(function_call.text("name"), None, arguments, {}, maker)
    return found


def _result(message: Fields, rest: dict[str, JsonText], maker: str) -> HistoryMessage:
    """A tool's message. That of a function names no call, and answers the one before it."""
    content = message.raw("content") or "null"
    is_said = content[:1] in ('"', "[") or content == "null"
    parts = [] if is_said else [part_data(content)]
    for block in _content(message, maker) if is_said else []:
        fields = {"kind": dump(block.kind)} | ({"text": dump(block.text)} if block.kind == "text" else {})
        fields |= {"media_type": dump(block.media_type)} if block.media_type else {}
        fields |= {name: dump(value) for name, value in block.fields.items()}
        parts.append(join_fields(fields | ({"opaque": block.opaque} if block.opaque else {})))
    rest |= {"name": name} if (name := message.raw("name")) is not None else {}
    status = "error" if message.maybe_text("status") == "error" else "ok"
    rest |= {"status": dump("success")} if message.maybe_text("status") == "success" else {}
    said = "[" + ",".join(parts) + "]" if parts else text_parts("") if content == '""' else "[]"
    draft = result_draft(message.maybe_text("tool_call_id") or "", said, status=status)
    return HistoryMessage("tool", draft.blocks, metadata={SHELL: join_fields(rest)})
