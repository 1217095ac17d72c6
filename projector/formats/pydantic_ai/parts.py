"""The parts of Pydantic AI's responses as our blocks and back.

`provider_name` says who made a part: his are its signature and what he hides. What our own fields do not say of a part
stays with it. Source: `pydantic-ai-slim` 2.68.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from projector.formats.pydantic_ai.content import BINARY, PROVIDER, read_media, write_media
from projector.formats.shared.blocks import kept_block
from projector.formats.shared.makers import ANTHROPIC, BEDROCK, GOOGLE, OPENAI
from projector.formats.shared.payloads import maker_of, media_of, opaque, payload_for, signer_of
from projector.json_text import JsonText, decode, dump, is_json, join_fields, plain
from projector.message import Block

if TYPE_CHECKING:
    from collections.abc import Callable

    from projector.formats.shared.fields import Fields

SHELL: Final = "pydantic-ai"
"""Metadata of a message that came from Pydantic AI: what our fields do not say of its part, request or response."""
MAKERS: Final = {
    "anthropic": ANTHROPIC, "openai": OPENAI, "google": GOOGLE, "google-gla": GOOGLE, "google-vertex": GOOGLE,
    "google-cloud": GOOGLE, "bedrock": BEDROCK,
}  # fmt: skip
"""Whom `provider_name` means; what is written for a maker is the first name. Others make what they make as themselves."""
_NAMES: Final = {maker: next(name for name, ours in MAKERS.items() if ours == maker) for maker in MAKERS.values()}
_REDACTED: Final = "redacted_thinking"
_HIDDEN: Final = (_REDACTED, "redacted_content")
"""The ids of thoughts that their maker, Anthropic or Bedrock, hides; the signature is what he hides."""
_THOUGHT: Final = "thought_signature"
_BYTES: Final = re.compile(r'("data"\s*:\s*")([\w-]+={0,2})(")')
_OWN: Final = ("part_kind", "id")


def maker_named(name: str | None) -> str | None:
    """Who is meant by `provider_name`."""
    return None if name is None else MAKERS.get(name, name)


def read_part(part: Fields, maker: str | None) -> Block:
    """A part of a response; one of a kind that is not known is kept as it came. Raises `FormatError`."""
    kind = part.text("part_kind")
    read = _READERS.get(kind)
    if read is None:
        return kept_block(PROVIDER, part.source, kind)
    return read(part, maker_named(part.maybe_text("provider_name")) or maker or PROVIDER)


def read_speech(part: Fields) -> Block:
    """What was spoken, as its text; what it sounded like stays with it."""
    said = part.maybe_text("transcript")
    kept = join_fields(part.rest("transcript"))
    usual = _BYTES.sub(lambda found: found[1] + found[2].replace("-", "+").replace("_", "/") + found[3], kept)
    return Block("text", text=said or "", sealed=True, provider_ref=part.maybe_text("id"), opaque=opaque(PROVIDER, usual))


def write_speech(text: str, rest: dict[str, Any]) -> dict[str, Any]:
    """The part again, with what was spoken."""
    audio = rest.get("audio")
    heard = {"audio": audio | _url_safe(audio)} if isinstance(audio, dict) else {}
    return rest | heard | ({"transcript": text} if text else {})


def write_part(block: Block, name_of: Callable[[str], str | None]) -> dict[str, Any] | None:
    """A block of an answer as a part; None where there is no form for it. `name_of` tells the tool of a call."""
    rest: dict[str, Any] = plain(payload_for(block, PROVIDER) or "{}")
    ref = {"id": block.provider_ref} if block.provider_ref is not None and _keeps_id(block) else {}
    if block.kind == "server_tool_result":
        return _write_server_result(block, rest, name_of)
    write = _WRITERS.get(block.kind)
    written = write(block, rest) if write is not None else None
    return written if written is None or block.kind in ("provider", "redacted_reasoning") else ref | written


def write_citation(text: JsonText) -> dict[str, Any] | None:
    """A source of a text, as it came from Pydantic AI, or with the address or the words that any maker named."""
    given = plain(text)
    source = given.get("source") if isinstance(given, dict) else None
    if not isinstance(source, dict):
        return None
    if given.get("kind") == PROVIDER:
        return source
    quoted = {"excerpts": [source["cited_text"]]} if isinstance(source.get("cited_text"), str) else {}
    titles = [source[name] for name in ("title", "document_title", "filename") if isinstance(source.get(name), str)]
    titled = {"title": titles[0]} if titles else {}
    if isinstance(source.get("url"), str):
        return {"sources": [{"kind": "web", "url": source["url"]} | titled | quoted]}
    return {"sources": [{"kind": "document"} | titled | quoted]} if titled or quoted else None


def says_signature(block: Block) -> bool:
    """Whether a part has a place for the signature of a block, and it can be told whose it is."""
    signer = signer_of(block)
    if payload_for(block, PROVIDER) is not None:
        return True
    return signer in _NAMES and (block.kind == "reasoning" or signer == GOOGLE)


def _text(part: Fields, maker: str) -> Block:
    cited = tuple(f'{{"kind":{dump(PROVIDER)},"source":{source}}}' for source, _ in part.items("citations"))
    block = Block("text", text=part.text("content"), sealed=True, citations=cited)
    return _with_rest(block, part, ("content", "citations"), maker)


def _thinking(part: Fields, maker: str) -> Block:
    said, signature, ref = part.text("content"), part.maybe_text("signature"), part.maybe_text("id")
    if ref in _HIDDEN and signature is not None and not said:
        return Block("redacted_reasoning", sealed=True, opaque=_hidden(part, signature))
    return _with_rest(Block("reasoning", text=said, sealed=True, signature=signature), part, ("content", "signature"), maker)


def _hidden(part: Fields, signature: str) -> JsonText:
    """What Anthropic hides, as Anthropic has it, where that says all of the part."""
    said = {"part_kind": "thinking", "content": "", "id": _REDACTED, "signature": signature, "provider_name": ANTHROPIC}
    if {name: decode(text) for name, text in part.rest().items()} == said:
        return opaque(ANTHROPIC, dump({"type": _REDACTED, "data": signature}))
    return opaque(PROVIDER, part.source)


def _call(part: Fields, maker: str) -> Block:
    given = part.raw("args")
    form = "none" if given is None else "text" if given.startswith('"') else None
    if form is None and not (given or "").startswith("{"):
        raise part.wrong('"args" should be an object or text')
    text = part.text("args") if form == "text" else given or "{}"
    parse = "ok" if is_json(text or "{}") else "bad"
    name, ref = part.text("tool_name"), part.maybe_text("tool_call_id")
    block = Block("tool_call", text=text, sealed=True, name=name, tool_call_id=ref, parse=parse)
    return _with_rest(block, part, ("tool_name", "tool_call_id", "args"), maker, {"args": dump(form)} if form else {})


def _server_call(part: Fields, maker: str) -> Block:
    block = replace(_call(part, maker), kind="server_tool_call")
    return block if block.opaque is not None else replace(block, opaque=opaque(PROVIDER, "{}"))


def _server_result(part: Fields, maker: str) -> Block:  # noqa: ARG001 - one shape
    kept = kept_block(PROVIDER, part.source)
    return replace(kept, kind="server_tool_result", tool_call_id=part.maybe_text("tool_call_id"), name=part.text("tool_name"))


def _compaction(part: Fields, maker: str) -> Block:  # noqa: ARG001 - one shape
    block = Block("compaction", text=part.maybe_text("content") or "", sealed=True, provider_ref=part.maybe_text("id"))
    return replace(block, opaque=opaque(PROVIDER, join_fields(part.rest(*_OWN, "content"))))


def _file(part: Fields, maker: str) -> Block:  # noqa: ARG001 - one shape
    content = part.need("content")
    if content.text("kind") != BINARY:
        raise content.wrong(f'"kind" should be "{BINARY}"')
    block = read_media(content)
    rest = part.rest(*_OWN, "content") | {"content": payload_for(block, PROVIDER) or "{}"}
    return replace(block, provider_ref=part.maybe_text("id"), opaque=opaque(PROVIDER, join_fields(rest)))


def _speech(part: Fields, maker: str) -> Block:  # noqa: ARG001 - one shape
    block = read_speech(part)
    return block if block.text else kept_block(PROVIDER, part.source, "speech")


_READERS: Final[dict[str, Callable[[Fields, str], Block]]] = {
    "text": _text,
    "thinking": _thinking,
    "tool-call": _call,
    "builtin-tool-call": _server_call,
    "builtin-tool-return": _server_result,
    "compaction": _compaction,
    "file": _file,
    "speech": _speech,
}


def _with_rest(block: Block, part: Fields, said: tuple[str, ...], maker: str, form: dict[str, JsonText] | None = None) -> Block:
    """The block with what our own fields do not say; its id is a reference, a signature is of the maker."""
    rest = part.rest(*_OWN, *said) | (form or {})
    details = part.object("provider_details")
    thought = details.raw(_THOUGHT) if details is not None else None
    signature = block.signature or (decode(thought) if thought is not None and thought.startswith('"') else None)
    named = replace(block, provider_ref=part.maybe_text("id"), signature=signature)
    if not rest and named.provider_ref is None and signature is None:
        return named
    return replace(named, opaque=opaque(PROVIDER, join_fields(rest), signer=maker if signature is not None else None))


def _keeps_id(block: Block) -> bool:
    """Whether what is called a reference is the id of a part: it came from there, or it goes with a signature."""
    return maker_of(block) == PROVIDER or (block.kind == "reasoning" and signer_of(block) == OPENAI)


def _write_text(block: Block, rest: dict[str, Any]) -> dict[str, Any]:
    if rest.get("part_kind") == "speech":
        return write_speech(block.text, rest)
    cited = [source for source in map(write_citation, block.citations) if source is not None]
    return {"part_kind": "text", "content": block.text} | ({"citations": cited} if cited else {}) | _signed(block, rest)


def _write_thinking(block: Block, rest: dict[str, Any]) -> dict[str, Any]:
    written = {"part_kind": "thinking", "content": block.text}
    if block.signature is None or _is_thought(block, rest) or not says_signature(block):
        return written | rest
    named = {"provider_name": _NAMES[signer_of(block)]} if signer_of(block) in _NAMES else {}
    return written | {"signature": block.signature} | named | rest


def _write_hidden(block: Block, rest: dict[str, Any]) -> dict[str, Any] | None:
    maker = maker_of(block)
    if maker == PROVIDER:
        return rest
    payload = plain(payload_for(block, maker or "") or "{}")
    if maker == ANTHROPIC:
        ref, hidden = _REDACTED, payload.get("data")
    elif maker == OPENAI:
        ref, hidden = block.provider_ref or "", block.signature or payload.get("encrypted_content")
    else:
        return None
    named = {"part_kind": "thinking", "content": "", "provider_name": _NAMES[maker]}
    return named | {"signature": hidden} | ({"id": ref} if ref else {}) if isinstance(hidden, str) else None


def _write_call(block: Block, rest: dict[str, Any]) -> dict[str, Any]:
    form = rest.pop("args", None)
    kind = "tool-call" if block.kind == "tool_call" else "builtin-tool-call"
    written = {"part_kind": kind, "tool_name": block.name or "unnamed", "tool_call_id": block.tool_call_id or ""}
    maker = maker_of(block)
    named = {"provider_name": _NAMES[maker]} if kind != "tool-call" and maker in _NAMES else {}
    return written | _arguments(block.input_text or block.text, block.parse, form) | named | _signed(block, rest)


def _arguments(text: str, parse: str | None, form: object) -> dict[str, Any]:
    if not text or (form == "none" and text == "{}"):
        return {"args": ""} if form == "text" else {}
    is_object = form != "text" and parse != "bad" and text.lstrip().startswith("{")
    return {"args": plain(text) if is_object else text}


def _write_server_result(block: Block, rest: dict[str, Any], name_of: Callable[[str], str | None]) -> dict[str, Any]:
    if maker_of(block) == PROVIDER:
        return rest
    given = plain(block.opaque or "{}").get("payload")
    content = given.get("content", given) if isinstance(given, dict) else given
    ref, maker = block.tool_call_id or "", maker_of(block)
    named = {"provider_name": _NAMES[maker]} if maker in _NAMES else {}
    written = {"part_kind": "builtin-tool-return", "tool_name": block.name or name_of(ref) or "unnamed"}
    return written | {"tool_call_id": ref, "content": content} | named


def _write_compaction(block: Block, rest: dict[str, Any]) -> dict[str, Any] | None:
    written: dict[str, Any] = {"part_kind": "compaction"} | ({"content": block.text} if block.text else {})
    maker = maker_of(block)
    if maker == PROVIDER:
        return written | rest
    if maker not in _NAMES:
        return None
    payload = plain(payload_for(block, maker) or "{}")
    details = {name: value for name, value in payload.items() if name not in ("type", "id", "content")}
    ref = {"id": payload["id"]} if isinstance(payload.get("id"), str) else {}
    return written | ref | {"provider_name": _NAMES[maker]} | ({"provider_details": details} if details else {})


def _write_file(block: Block, rest: dict[str, Any]) -> dict[str, Any] | None:
    media = media_of(block)
    if media.data is None:
        return None
    return {"part_kind": "file"} | rest | {"content": write_media(media, rest.get("content", {}))}


def _write_kept(block: Block, rest: dict[str, Any]) -> dict[str, Any] | None:
    return rest if maker_of(block) == PROVIDER and "part_kind" in rest else None


_WRITERS: Final[dict[str, Callable[[Block, dict[str, Any]], dict[str, Any] | None]]] = {
    "text": _write_text,
    "reasoning": _write_thinking,
    "redacted_reasoning": _write_hidden,
    "tool_call": _write_call,
    "server_tool_call": _write_call,
    "compaction": _write_compaction,
    "media": _write_file,
    "provider": _write_kept,
}


def _signed(block: Block, rest: dict[str, Any]) -> dict[str, Any]:
    """What only a maker knows of a part, with the signature that Google puts on any of them."""
    if block.signature is None or _is_thought(block, rest) or signer_of(block) != GOOGLE:
        return rest
    return {"provider_name": _NAMES[GOOGLE]} | rest | {"provider_details": {_THOUGHT: block.signature}}


def _is_thought(block: Block, rest: dict[str, Any]) -> bool:
    details = rest.get("provider_details")
    return isinstance(details, dict) and details.get(_THOUGHT) == block.signature


def _url_safe(audio: dict[str, Any]) -> dict[str, Any]:
    data = audio.get("data")
    return {"data": data.replace("+", "-").replace("/", "_")} if isinstance(data, str) else {}
