"""Chat Completions messages: what most programs keep of a conversation, in and out.

Out goes what the API takes: reasoning only where the target names the field it wants it in, citations and server tools
never. The old `function_call` comes back as a tool call with an id of its own.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from projector.formats.chat.parts import (
    DETAILS,
    PLAIN_REASONING,
    PROVIDER,
    THINKING,
    detail_block,
    extra_of,
    is_whole,
    keep,
    part_block,
    says_nothing,
    write_detail,
    write_media,
    write_text,
)
from projector.formats.format import Export, FormatError
from projector.formats.outgoing.repair import Rules, mend
from projector.formats.shared.fields import Fields, items_of, shown
from projector.formats.shared.history import History, HistoryMessage, Loss, call_block, text_block, text_parts
from projector.formats.shared.payloads import opaque, payload_for
from projector.json_text import InvalidJson, JsonText, decode, dump, join_fields, plain, split
from projector.message import Block, Message

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Reasoning = Literal["reasoning_content", "reasoning", "reasoning_details", "thinking"]
"""The field in which a target takes its own reasoning back: DeepSeek and others, Groq and others, OpenRouter, Mistral."""
EXTRA: Final = "chat"
"""Under this name a message's metadata holds the fields of it that have no other place."""
_ROLES: Final = ("system", "developer", "user", "assistant", "tool", "function")
_KNOWN: Final = (
    "role", "content", "name", "tool_calls", "function_call", "tool_call_id", "refusal", "audio", DETAILS, *PLAIN_REASONING,
)  # fmt: skip
_KINDS: Final = frozenset({"text", "refusal", "tool_call", "media"})
_OF_DIALECTS: Final = frozenset({"reasoning", "redacted_reasoning", "provider"})
_NAME: Final = re.compile(r"[\s<|\\/>\x00-\x1f\ud800-\udfff]")
_MAX_ID: Final = 40  # OpenAI refuses longer ids of calls; those of other makers are longer
_MAX_ID_OF_DIALECTS: Final = 256
_MAX_NAME: Final = 64


def read(text: str) -> Iterator[History]:
    """The one history in a document: a list of messages, or an object that has it as `messages`.

    Raises `FormatError` with the place and what was expected.
    """
    metadata: dict[str, JsonText] = {}
    if text.lstrip("\ufeff \t\r\n").startswith("["):
        items = [(item, f"message {at}") for at, item in enumerate(items_of(text.lstrip("\ufeff"), "the document"))]
    else:
        document = Fields(text.removeprefix("\ufeff"), "the document")
        if "messages" not in document:
            raise document.wrong('a list of messages was expected, or an object with "messages"')
        items, metadata = document.items("messages"), document.rest("messages")
    reader = _Reader()
    drafts = [reader.read(Fields(item, place)) for item, place in items]
    yield History(tuple(drafts), metadata=metadata)


class _Reader:
    """Messages in their order; calls of the old form get ids by their place."""

    def __init__(self) -> None:
        self._at = -1
        self._functions: dict[str, str] = {}

    def read(self, fields: Fields) -> HistoryMessage:
        self._at += 1
        role = fields.text("role")
        if role not in _ROLES:
            raise fields.wrong(f'"role" should be one of {", ".join(_ROLES)}, not {shown(dump(role))}')
        try:
            return self._result(fields, role) if role in ("tool", "function") else self._message(fields, role)
        except InvalidJson as error:
            raise fields.wrong(f"the content can't be read ({error})") from error

    def _message(self, fields: Fields, role: Any) -> HistoryMessage:
        blocks = [*_reasoning(fields), *_content(fields)]
        if refusal := fields.maybe_text("refusal"):
            blocks.append(Block("refusal", text=refusal, sealed=True))
        blocks += [self._call(call) for call in fields.objects("tool_calls")]
        if (function := fields.object("function_call")) is not None:
            ref = self._functions[function.text("name")] = f"call_{self._at}"
            arguments = function.maybe_text("arguments") or ""
            blocks.append(call_block(function.text("name"), ref, arguments, is_json=is_whole(arguments)))
        if (audio := fields.raw("audio")) is not None:
            payload = opaque(PROVIDER, f'{{"audio":{audio}}}')
            blocks.append(Block("media", sealed=True, media_type="audio", provider_ref="audio", opaque=payload))
        return HistoryMessage(role, tuple(blocks), name=fields.maybe_text("name"), metadata=_extra(fields, _KNOWN))

    def _call(self, call: Fields) -> Block:
        custom = call.object("custom")
        inner = custom or call.need("function")
        name, ref = inner.text("name"), call.maybe_text("id")
        rest = call.rest("id", "type", "index", "function", "custom")
        if custom is not None:
            text = custom.maybe_text("input") or ""
            kept = keep(rest | {"type": '"custom"'})
            given = dump({"input": text})
            return Block("tool_call", text=text, sealed=True, name=name, tool_call_id=ref, input=given, parse="ok", opaque=kept)
        given = inner.raw("arguments") or '""'
        text = given if given.startswith("{") else inner.maybe_text("arguments") or ""
        block = call_block(name, ref, text, is_json=is_whole(text))
        return msgspec.structs.replace(block, opaque=keep(rest))

    def _result(self, fields: Fields, role: str) -> HistoryMessage:
        name = fields.maybe_text("name")
        known = ("role", "content", "tool_call_id") if role == "tool" else ("role", "content", "tool_call_id", "name")
        ref = fields.maybe_text("tool_call_id") or (self._functions.get(name or "") if role == "function" else None) or ""
        content = fields.raw("content") or '""'
        parts = _result_parts(fields) if content.startswith("[") else text_parts(fields.maybe_text("content") or "")
        block = Block("tool_result", sealed=True, tool_call_id=ref, status="ok", parts=parts)
        return HistoryMessage("tool", (block,), metadata=_extra(fields, known))


def write(messages: Sequence[Message], *, reasoning: Reasoning | None = None) -> Export:
    """A path of messages as the API takes it.

    `reasoning` names the field in which the target takes back what came in it; None is OpenAI, which takes neither
    reasoning nor what another maker has added to a call.
    """
    rules = Rules(
        provider=PROVIDER,
        kinds=_KINDS | (_OF_DIALECTS if reasoning else frozenset()),
        signed_reasoning=False,
        object_input=True,
        refuse_nul=True,
        id_characters="!-~",
        id_length=_MAX_ID if reasoning is None else _MAX_ID_OF_DIALECTS,
    )
    losses: list[Loss] = []
    given = [_without_foreign_reasoning(message, reasoning, losses) for message in messages]
    mended = mend(given, rules)
    writer = _Writer(reasoning, losses)
    payload = [writer.write(message) for message in mended.messages]
    return Export(payload, (*losses, *mended.losses), (*mended.repairs, *writer.repairs))


class _Writer:
    def __init__(self, reasoning: Reasoning | None, losses: list[Loss]) -> None:
        self._reasoning = reasoning
        self._losses = losses
        self.repairs: list[Loss] = []

    def write(self, message: Message) -> dict[str, Any]:
        for block in message.blocks:
            if block.citations:
                self._losses.append(Loss("citations can't be sent", message.id, block.number))
        extra = extra_of(message, EXTRA, self.repairs)
        if message.role == "tool":
            return self._result(message) | extra
        written: dict[str, Any] = {"role": message.role}
        if message.name:
            written["name"] = self._name(message, message.name)
        written["content"] = self._content(message)
        if message.role == "assistant":
            written |= self._assistant(message)
        return written | extra

    def _name(self, message: Message, name: str) -> str:
        sent = _NAME.sub("_", name)[:_MAX_NAME]
        if sent != name:
            self.repairs.append(Loss(f"the name {name!r} is sent as {sent}", message.id))
        return sent

    def _content(self, message: Message) -> str | list[dict[str, Any]] | None:
        parts: list[dict[str, Any]] = []
        seen_call = False
        for block in message.blocks:
            part = self._part(message, block)
            seen_call = seen_call or block.kind == "tool_call"
            if part is not None:
                parts.append(part)
                if seen_call:
                    self._losses.append(Loss("what stands behind a call is sent before it", message.id, block.number))
        if [set(part) for part in parts] == [{"type", "text"}]:
            only: str = parts[0]["text"]
            return only
        refusals = [block.text for block in message.blocks if block.kind == "refusal"]
        if not parts and refusals:
            return [{"type": "refusal", "refusal": "\n\n".join(refusals)}]
        if not parts and message.role != "assistant":
            return "[What this message held can't be sent.]"
        return parts or None

    def _part(self, message: Message, block: Block) -> dict[str, Any] | None:
        if block.kind == "text":
            return write_text(block)
        if block.kind == "provider":
            given: dict[str, Any] = plain(payload_for(block, PROVIDER) or "{}")
            return given
        if block.kind == "reasoning" and block.provider_ref == THINKING == self._reasoning:
            rest: dict[str, Any] = plain(payload_for(block, PROVIDER) or "{}")
            return {"type": THINKING, THINKING: [{"type": "text", "text": block.text}]} | rest
        if block.kind != "media" or _is_audio_of(message, block):
            return None
        part = write_media(block, is_plain=self._reasoning is None) if message.role == "user" else None
        if part is None:
            self._losses.append(Loss(f"there is no form for such media ({block.media_type})", message.id, block.number))
        return part

    def _assistant(self, message: Message) -> dict[str, Any]:
        written: dict[str, Any] = {}
        refusals = [block.text for block in message.blocks if block.kind == "refusal"]
        if refusals and any(block.kind in ("text", "media", "provider") for block in message.blocks):
            written["refusal"] = "\n\n".join(refusals)
        if self._reasoning in PLAIN_REASONING:
            said = [block.text for block in message.blocks if block.kind == "reasoning"]
            written |= {self._reasoning: "".join(said)} if said else {}
        elif self._reasoning == DETAILS:
            details = [write_detail(block) for block in message.blocks if block.kind in ("reasoning", "redacted_reasoning")]
            written |= {DETAILS: details} if details else {}
        for block in message.blocks:
            if _is_audio_of(message, block):
                audio: dict[str, Any] = plain(payload_for(block, PROVIDER) or "{}")
                written["audio"] = {"id": audio.get("audio", audio).get("id")}
        calls = [self._call(message, block) for block in message.blocks if block.kind == "tool_call"]
        return written | ({"tool_calls": calls} if calls else {})

    def _call(self, message: Message, block: Block) -> dict[str, Any]:
        rest: dict[str, Any] = plain(payload_for(block, PROVIDER) or "{}")
        kind = rest.pop("type", "function")
        if rest and self._reasoning is None:
            self._losses.append(Loss("what another maker has added to a call is not sent", message.id, block.number))
            rest = {}
        call = {"id": block.tool_call_id, "type": kind} | rest
        if kind == "custom":
            return call | {"custom": {"name": block.name, "input": block.text}}
        return call | {"function": {"name": block.name, "arguments": block.input or block.text}}

    def _result(self, message: Message) -> dict[str, Any]:
        [block] = message.blocks
        if block.status == "error":
            self._losses.append(Loss("that a tool failed can't be said, but by its text", message.id, block.number))
        parts = []
        for part in items_of(block.parts or "[]", "parts"):
            fields = split(part)
            if decode(fields.get("kind", "null")) == "text":
                rest: dict[str, Any] = plain(payload_for(Block("text", opaque=fields.get("opaque")), PROVIDER) or "{}")
                parts.append({"type": "text", "text": decode(fields.get("text", '""'))} | rest)
            else:
                self._losses.append(Loss("a tool's result is text only", message.id, block.number))
        is_plain = all(set(part) == {"type", "text"} for part in parts)
        content = "".join(part["text"] for part in parts) if is_plain and len(parts) < 2 else parts
        return {"role": "tool", "tool_call_id": block.tool_call_id, "content": content}


def _content(fields: Fields) -> list[Block]:
    content = fields.raw("content") or "null"
    if content.startswith("["):
        return [part_block(item, place) if item.lstrip().startswith("{") else text_block(_said(item, place))
                for item, place in fields.items("content")]  # fmt: skip
    text = fields.maybe_text("content")
    return [text_block(text)] if text else []


def _said(item: JsonText, place: str) -> str:
    text = decode(item)
    if not isinstance(text, str):
        raise FormatError(f"{place}: a part of the content should be an object or text, not {shown(item)}")
    return text


def _reasoning(fields: Fields) -> list[Block]:
    """What a dialect says of its reasoning, once."""
    if details := fields.items(DETAILS):
        return [detail_block(split(item)) for item, _ in details]
    found = ((name, fields.maybe_text(name)) for name in PLAIN_REASONING)
    said = next(((name, text) for name, text in found if text), None)
    return [] if said is None else [Block("reasoning", text=said[1], sealed=True, provider_ref=said[0])]


def _result_parts(fields: Fields) -> JsonText:
    """The parts of a result in our own words; what they do not say stays with them."""
    parts = []
    for item, place in fields.items("content"):
        block = part_block(item, place) if item.lstrip().startswith("{") else text_block(_said(item, place))
        part = {"kind": dump(block.kind)} | ({"text": dump(block.text)} if block.kind == "text" else {})
        part |= {"media_type": dump(block.media_type)} if block.media_type else {}
        parts.append(join_fields(part | ({"opaque": block.opaque} if block.opaque else {})))
    return "[" + ",".join(parts) + "]"


def _extra(fields: Fields, known: tuple[str, ...]) -> dict[str, JsonText]:
    rest = {name: text for name, text in fields.rest(*known).items() if not says_nothing(text)}
    return {EXTRA: join_fields(rest)} if rest else {}


def _is_audio_of(message: Message, block: Block) -> bool:
    """Sound that the model has made goes back by its id."""
    return block.kind == "media" and message.role == "assistant" and block.provider_ref == "audio"


def _without_foreign_reasoning(message: Message, reasoning: Reasoning | None, losses: list[Loss]) -> Message:
    """Reasoning goes back in the field it came in, and in no other."""
    if reasoning is None:
        return message
    kinds = ("reasoning", "redacted_reasoning")
    foreign = [block for block in message.blocks if block.kind in kinds and block.provider_ref != reasoning]
    losses += [Loss(f"reasoning that did not come as {reasoning} is not sent", message.id, block.number) for block in foreign]
    kept = tuple(block for block in message.blocks if block not in foreign)
    return msgspec.structs.replace(message, blocks=kept) if foreign else message
