"""Items of the Responses API as blocks: messages, reasoning, calls of all tools, and what nobody knows yet.

What a block's own fields say is not kept twice: its payload holds the rest of the item. Items that only their maker
understands are kept as they came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from projector.formats.shared.fields import is_whole, items_of, says_nothing, text_of_field
from projector.formats.shared.makers import OPENAI
from projector.formats.shared.payloads import media_of, opaque, payload_for
from projector.json_text import InvalidJson, JsonText, decode, dump, join_fields, split
from projector.message import Block

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from projector.message import BlockKind

PROVIDER: Final = OPENAI
EXTRA: Final = "openai"
"""Under this name a message's metadata holds the fields of its item that have no other place."""
PART: Final = "content."
"""Before the type of a content part in `provider_ref`, where nobody knows the part; an item has its bare type there."""
TEXTS: Final = ("output_text", "input_text", "text")
RESULTS: Final = ("function_call_output", "custom_tool_call_output", "computer_call_output", "local_shell_call_output",
                  "apply_patch_call_output")  # fmt: skip
"""Outputs of tools that always run with the client."""
_RESULTS_OF_EITHER: Final = ("shell_call_output", "tool_search_output")
_SERVER_RESULTS: Final = ("program_output",)
_CLIENT_CALLS: Final = ("local_shell_call", "apply_patch_call", "computer_call")
_CALLS: Final = ("mcp_approval_request", "program")
_MEDIA: Final = ("input_image", "input_file", "input_audio", "output_audio", "computer_screenshot")
_OF_CALL: Final = ("type", "id", "call_id", "status")
_MEMBERS: Final = {
    "web_search_call": "action",
    "file_search_call": "queries",
    "code_interpreter_call": "code",
    "program": "code",
}
"""Where a server's tool has its input, if not as `arguments`."""


def item_type(fields: Mapping[str, JsonText]) -> str:
    """The type of an item; a message may leave it out."""
    return text_of_field(fields, "type") or "message"


def is_result(fields: Mapping[str, JsonText], calls: Mapping[str, str]) -> bool:
    """Whether an item is what the client's own tool gave back; `calls` are the client's calls by id."""
    kind = item_type(fields)
    if kind in RESULTS:
        return True
    if kind not in _RESULTS_OF_EITHER:
        return False
    return text_of_field(fields, "execution") == "client" or (text_of_field(fields, "call_id") or "") in calls


def item_blocks(text: JsonText, place: str = "an item") -> list[Block]:
    """The sealed blocks that one item is: one for each part of a message, else one.

    Raises `InvalidJson` or `FormatError` for what is no item.
    """
    fields = split(text)
    kind = item_type(fields)
    if kind == "message":
        return _message_blocks(fields, place)
    if kind in _BLOCKS:
        return [_BLOCKS[kind](fields)]
    if is_client_call(kind, fields):
        return [_client_block(kind, fields)]
    if kind.endswith("_call") or kind in _CALLS:
        return [_server_block(kind, fields, text)]
    our_kind: BlockKind = "provider"
    if kind in _RESULTS_OF_EITHER or kind in _SERVER_RESULTS:
        our_kind = "server_tool_result"
    elif kind == "compaction":
        our_kind = "compaction"
    call = text_of_field(fields, "call_id") if our_kind == "server_tool_result" else None
    return [Block(our_kind, sealed=True, tool_call_id=call, provider_ref=kind, opaque=opaque(PROVIDER, text))]


def is_client_call(kind: str, fields: Mapping[str, JsonText]) -> bool:
    """Whether the client runs the tool: some tools run here or there."""
    if kind == "tool_search_call":
        return text_of_field(fields, "execution") == "client"
    if kind == "shell_call":
        environment = fields.get("environment", "null")
        return says_nothing(environment) or text_of_field(split(environment), "type") == "local"
    return kind in _CLIENT_CALLS


def part_block(text: JsonText) -> Block:
    """One part of a message's content, or of a tool's output."""
    fields = split(text)
    kind = text_of_field(fields, "type") or "text"
    if kind in TEXTS:
        citations = tuple(citation_of(note) for note in items_of(_list(fields, "annotations"), "annotations"))
        rest = _said(fields, "type", "text", "annotations")
        said = text_of_field(fields, "text") or ""
        return Block("text", text=said, sealed=True, citations=citations, opaque=_payload({}, rest))
    if kind == "refusal":
        rest = _said(fields, "type", "refusal")
        return Block("refusal", text=text_of_field(fields, "refusal") or "", sealed=True, opaque=_payload({}, rest))
    if kind in _MEDIA:
        block = Block("media", sealed=True, provider_ref=kind, opaque=opaque(PROVIDER, text))
        return replace(block, media_type=media_of(block).media_type)
    return Block("provider", sealed=True, provider_ref=PART + kind, opaque=opaque(PROVIDER, text))


def keep_id(block: Block) -> Block:
    """The block with the id of its item in its payload, for it began under another one."""
    if block.provider_ref is None or block.kind not in ("text", "refusal", "reasoning", "tool_call"):
        return block
    fields = split(payload_for(block, PROVIDER) or "{}")
    fields["item"] = join_fields(split(fields.get("item", "{}")) | {"id": dump(block.provider_ref)})
    return replace(block, opaque=opaque(PROVIDER, join_fields(fields)))


def content_parts(fields: Mapping[str, JsonText], place: str) -> list[JsonText]:
    """The parts of a message's content; text alone is one part."""
    content = fields.get("content", "null")
    if content.lstrip().startswith("["):
        return items_of(content, place)
    said = text_of_field(fields, "content")
    return [join_fields({"type": '"text"', "text": content})] if said else []


def citation_of(annotation: JsonText) -> JsonText:
    """An annotation as a citation."""
    return f'{{"kind":{split(annotation).get("type", "null")},"source":{annotation}}}'


def _message_blocks(fields: Mapping[str, JsonText], place: str) -> list[Block]:
    """The first block keeps what the item says besides its content (its phase, for one)."""
    blocks: list[Block] = []
    ref = text_of_field(fields, "id")
    item = _said(fields, "type", "id", "role", "content") if text_of_field(fields, "role") == "assistant" else {}
    for part in content_parts(fields, place):
        block = part_block(part)
        if block.kind in ("text", "refusal"):
            rest = _said(split(part), "type", "text", "refusal", "annotations")
            block = replace(block, provider_ref=ref, opaque=_payload(item if not blocks else {}, rest))
        blocks.append(block)
    return blocks


def _reasoning_block(fields: Mapping[str, JsonText]) -> Block:
    """What can be read of reasoning is its text; nothing can be read of what is redacted or kept by the server."""
    parts = {name: items_of(_list(fields, name), name) for name in ("summary", "content")}
    texts = [text_of_field(split(part), "text") or "" for name in parts for part in parts[name]]
    said = "\n\n".join(texts)
    is_simple = len(parts["summary"]) < 2 and not parts["content"]
    names = ("type", "id", "encrypted_content", *(("summary", "content") if is_simple else ()))
    return Block(
        "reasoning" if said else "redacted_reasoning",
        text=said,
        sealed=True,
        provider_ref=text_of_field(fields, "id"),
        signature=text_of_field(fields, "encrypted_content") or None,
        opaque=_payload(_said(fields, *names), {}) or opaque(PROVIDER, "{}"),
    )


def _function_block(fields: Mapping[str, JsonText]) -> Block:
    arguments = text_of_field(fields, "arguments") or ""
    return Block(
        "tool_call",
        text=arguments,
        sealed=True,
        name=text_of_field(fields, "name"),
        tool_call_id=text_of_field(fields, "call_id"),
        provider_ref=text_of_field(fields, "id"),
        parse="ok" if is_whole(arguments) else "bad",
        opaque=_payload(_said(fields, "type", "id", "call_id", "name", "arguments"), {}),
    )


def _custom_block(fields: Mapping[str, JsonText]) -> Block:
    """A tool that takes text instead of JSON; where an object is wanted, the text stands inside one."""
    said = text_of_field(fields, "input") or ""
    return Block(
        "tool_call",
        text=said,
        sealed=True,
        name=text_of_field(fields, "name"),
        tool_call_id=text_of_field(fields, "call_id"),
        provider_ref=text_of_field(fields, "id"),
        input_text=dump({"input": said}),
        parse="ok",
        opaque=_payload(_said(fields, "id", "call_id", "name", "input"), {}),
    )


_BLOCKS: Final[dict[str, Callable[[Mapping[str, JsonText]], Block]]] = {
    "reasoning": _reasoning_block,
    "function_call": _function_block,
    "custom_tool_call": _custom_block,
}


def _client_block(kind: str, fields: Mapping[str, JsonText]) -> Block:
    """A tool of OpenAI's that the client runs: what is to be done is its input."""
    given = {name: text for name, text in fields.items() if name not in _OF_CALL and text.strip() != "null"}
    return Block(
        "tool_call",
        text=_readable(kind, fields),
        sealed=True,
        name=kind.removesuffix("_call"),
        tool_call_id=text_of_field(fields, "call_id") or text_of_field(fields, "id"),
        provider_ref=text_of_field(fields, "id"),
        input_text=join_fields(given),
        parse="ok",
        opaque=_payload(_said(fields, "id", "call_id", *given), {}),
    )


def _readable(kind: str, fields: Mapping[str, JsonText]) -> str:
    """What of such a call is streamed: a patch, commands."""
    try:
        if kind == "apply_patch_call":
            return text_of_field(split(fields.get("operation", "{}")), "diff") or ""
        if kind == "shell_call":
            commands = decode(split(fields.get("action", "{}")).get("commands", "[]"))
            return "\n".join(command for command in commands or () if isinstance(command, str))
    except InvalidJson:
        pass
    return ""


def _server_block(kind: str, fields: Mapping[str, JsonText], text: JsonText) -> Block:
    """A call that the provider runs itself; it goes back as it came."""
    name = text_of_field(fields, "name") or kind.removesuffix("_call")
    call = text_of_field(fields, "call_id") or text_of_field(fields, "id")
    member = _MEMBERS.get(kind, "")
    arguments = text_of_field(fields, "arguments")
    said, given = arguments or "", None
    if says_nothing(fields.get("arguments", "null")) and not says_nothing(fields.get(member, "null")):
        said = (text_of_field(fields, member) or "") if member == "code" else ""
        given = fields[member] if member == "action" else join_fields({member: fields[member]})
    elif arguments is None and not says_nothing(fields.get("arguments", "null")):
        given = fields["arguments"]
    parse = None if not (said or given) else "ok" if given or is_whole(said) else "bad"
    return Block(
        "server_tool_call", text=said, sealed=True, name=name, tool_call_id=call, provider_ref=kind, input_text=given,
        parse=parse, opaque=opaque(PROVIDER, text),
    )  # fmt: skip


def _said(fields: Mapping[str, JsonText], *known: str) -> dict[str, JsonText]:
    """What else an item says, that it is completed aside."""
    return {
        name: text
        for name, text in fields.items()
        if name not in known and not says_nothing(text) and (name, text) != ("status", '"completed"')
    }


def _payload(item: Mapping[str, JsonText], part: Mapping[str, JsonText]) -> JsonText | None:
    fields = {name: join_fields(rest) for name, rest in (("item", item), ("part", part)) if rest}
    return opaque(PROVIDER, join_fields(fields)) if fields else None


def _list(fields: Mapping[str, JsonText], name: str) -> JsonText:
    text = fields.get(name, "[]")
    return "[]" if says_nothing(text) else text
