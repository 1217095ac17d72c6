"""LangChain messages: content blocks of version 1, and the older forms: text with `tool_calls`, and raw calls of OpenAI.

Read as they are dumped flat, as `{"type", "data"}`, or as LangChain serialises objects (`{"lc": 1, …}`). Written flat:
text with `tool_calls` where that says all, else content blocks of version 1. What our own fields do not say of a
message stays with it. Source: `langchain-core` 1.8 (`facts/formats.md` §6 of the design).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from msgspec.structs import replace

from projector.formats.format import Export, FormatError
from projector.formats.langchain import parts as blocks_of
from projector.formats.langchain.parts import MAKERS, PROVIDER
from projector.formats.outgoing.repair import Rules, mend
from projector.formats.shared.blocks import part_data
from projector.formats.shared.fields import Fields, items_of, messages_of, shown
from projector.formats.shared.history import History, HistoryMessage, Loss, result_draft, text_block, text_parts
from projector.formats.shared.payloads import maker_of, opaque, part_block, payload_for, signer_of
from projector.json_text import JsonText, decode, dump, is_json, join_fields, plain, split
from projector.message import Block
from projector.run_draft import Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from projector.events import Role
    from projector.message import Message

SHELL: Final = "langchain"
"""Metadata of a message that came from LangChain: its id there, and what our fields do not say of it."""
_ROLES: Final[dict[str, Role]] = {
    "human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "tool", "developer": "developer",
}  # fmt: skip
_TYPES: Final = {"user": "human", "assistant": "ai", "system": "system", "developer": "system", "tool": "tool"}
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
_KINDS: Final = (
    "text", "reasoning", "redacted_reasoning", "tool_call", "server_tool_call", "server_tool_result", "media", "refusal",
    "provider",
)  # fmt: skip
_RULES: Final = Rules(
    provider=PROVIDER,
    kinds=frozenset(_KINDS),
    as_text=frozenset({"compaction"}),
    media_roles=frozenset({"user", "assistant", "system", "developer"}),
    signed_reasoning=False,
    id_length=256,
)
_VERSION: Final = "output_version"


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


def write(messages: Sequence[Message]) -> Export:
    """A path of messages as a list of LangChain messages, such as a chain sends them on; `payload` is that list."""
    mended = mend([replace(message, blocks=tuple(map(_wrap, message.blocks))) for message in messages], _RULES)
    writer = _Writer()
    repairs: list[Loss] = []
    written: list[dict[str, Any]] = []
    for message in mended.messages:
        said = writer.message(replace(message, blocks=tuple(map(_unwrap, message.blocks))))
        if said["content"] or message.role == "tool" or said.get("tool_calls") or said.get("invalid_tool_calls"):
            written.append(said)
        else:
            repairs.append(Loss("a message without content is not sent", message.id))
    return Export(written, (*mended.losses, *writer.losses), (*mended.repairs, *repairs))


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


def _wrap(block: Block) -> Block:
    """LangChain is no maker: it hands on what any of them has made, each to its own. So nothing is foreign to it."""
    is_server = block.kind in ("server_tool_call", "server_tool_result")
    has_maker = block.opaque is not None or block.signature is not None or is_server
    if not has_maker or block.kind not in _KINDS or block.kind == "media":
        return block
    return replace(block, opaque=opaque(PROVIDER, f'{{"inner":{block.opaque or "null"}}}'))


def _unwrap(block: Block) -> Block:
    payload = payload_for(block, PROVIDER) if block.kind in _KINDS and block.kind != "media" else None
    if payload is None:
        return block
    inner = split(payload).get("inner", "null")
    return replace(block, opaque=None if inner == "null" else inner)


class _Writer:
    """Turns messages into LangChain's and notes what can't be said."""

    def __init__(self) -> None:
        self.losses: list[Loss] = []
        self._taken: set[str] = set()

    def message(self, message: Message) -> dict[str, Any]:
        """One message."""
        shell = plain(message.metadata.get(SHELL, "{}"))
        shell = shell if isinstance(shell, dict) else {}
        is_list = shell.pop("content", None) == []
        written: dict[str, Any] = {"type": _TYPES[message.role]}
        if message.role == "tool":
            written |= self._result(message, is_list=is_list)
        elif message.role == "assistant":
            written |= self._answer(message, shell, is_list=is_list)
        else:
            written["content"] = self._content(message, message.blocks, is_list=is_list)
        if message.role == "developer":
            shell.setdefault("additional_kwargs", {"__openai_role__": "developer"})
        written |= {"name": message.name} if message.name is not None else {}
        named = self._id(message, shell)
        return written | {name: value for name, value in shell.items() if name not in ("id", "role")} | named

    def _id(self, message: Message, shell: dict[str, Any]) -> dict[str, str]:
        own = shell.get("id")
        if own is None and SHELL in message.metadata:
            return {}
        ref = own if isinstance(own, str) and own not in self._taken else message.id
        self._taken.add(ref)
        return {"id": ref}

    def _answer(self, message: Message, shell: dict[str, Any], *, is_list: bool) -> dict[str, Any]:
        about = shell.get("response_metadata") if isinstance(shell.get("response_metadata"), dict) else {}
        is_new = (about or {}).get(_VERSION) == "v1" or not _is_classic(message.blocks)
        said = [block for block in message.blocks if is_new or block.kind != "tool_call"]
        calls = [blocks_of.write_call(block) for block in message.blocks if block.kind == "tool_call"]
        written: dict[str, Any] = {"content": self._content(message, said, is_list=is_list or is_new)}
        written["tool_calls"] = [call for call in calls if call["type"] == "tool_call"]
        written["invalid_tool_calls"] = [call for call in calls if call["type"] != "tool_call"]
        if is_new:
            makers = [theirs for theirs, ours in MAKERS.items() if {ours} == blocks_of.signers(message.blocks)]
            added = {"model_provider": makers[0]} if makers and "model_provider" not in (about or {}) else {}
            shell["response_metadata"] = (about or {}) | added | {_VERSION: "v1"}
        return written

    def _content(self, message: Message, blocks: Sequence[Block], *, is_list: bool) -> str | list[Any]:
        if not is_list and (not blocks or (len(blocks) == 1 and blocks_of.is_plain(blocks[0]))):
            return "".join(block.text for block in blocks)
        content = []
        for block in blocks:
            written = blocks_of.write_block(block)
            if written is None:
                self._lose(f"LangChain has no form for this ({block.kind})", message, block)
            else:
                content.append(written)
                self._lose_rest(message, block)
        return content

    def _result(self, message: Message, *, is_list: bool) -> dict[str, Any]:
        [block] = message.blocks
        parts = [self._part(part) for part in items_of(block.parts or "[]", "parts")]
        content: Any = self._content(message, parts, is_list=is_list)
        if block.status not in (None, "ok", "error", "synthetic"):  # of a synthetic one its text says it
            self._lose(f"that the result is {block.status}, it is sent as an error", message, block)
        return {
            "content": content,
            "tool_call_id": block.tool_call_id,
            "status": "success" if block.status in (None, "ok") else "error",
        }

    def _part(self, text: JsonText) -> Block:
        """A part of a result; JSON goes as its text."""
        part = plain(text)
        made = part_block(part) if isinstance(part, dict) else text_block(part if isinstance(part, str) else text)
        return text_block(made.text) if made.kind == "data" else made

    def _lose_rest(self, message: Message, block: Block) -> None:
        maker = maker_of(block)
        if block.signature is not None and signer_of(block) not in (PROVIDER, *MAKERS.values()):
            self._lose(f"a signature of {signer_of(block)}", message, block)
        if maker in (None, PROVIDER) or block.kind in ("provider", "redacted_reasoning", "media"):
            return
        is_result = block.kind == "server_tool_result"
        self._lose(
            f"what a tool of {maker} gave is sent as it came" if is_result else f"what only {maker} knows", message, block
        )

    def _lose(self, what: str, message: Message, block: Block | None = None) -> None:
        self.losses.append(Loss(what, message.id, None if block is None else block.number))


def _is_classic(blocks: Sequence[Block]) -> bool:
    """Whether a content with `tool_calls` beside it says all, which every version of LangChain takes."""
    kinds = [block.kind for block in blocks]
    first_call = kinds.index("tool_call") if "tool_call" in kinds else len(kinds)
    are_plain = all(payload_for(block, PROVIDER) is None and block.signature is None for block in blocks[first_call:])
    in_order = all(kind in ("text", "media") for kind in kinds[:first_call]) and set(kinds[first_call:]) <= {"tool_call"}
    return are_plain and in_order and not any(block.citations for block in blocks)
