"""What a single message loses on its way to a provider: what is partial, blank, ill-formed, or of another maker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from projector.formats.outgoing.unicode import mend_json, mend_text
from projector.formats.shared.payloads import maker_of, plain_media, signer_of
from projector.json_text import InvalidJson, decode, dump

if TYPE_CHECKING:
    from projector.formats.outgoing.rules import Notes, Rules
    from projector.message import Block, Message

_OF_ASSISTANTS: Final = {
    "reasoning", "redacted_reasoning", "tool_call", "server_tool_call", "server_tool_result", "refusal", "compaction",
}  # fmt: skip
_ONLY_A_PAYLOAD: Final = {
    "redacted_reasoning",
    "server_tool_call",
    "server_tool_result",
    "compaction",
    "provider",
    "source",
    "data",
}
"""Kinds whose form only their maker knows."""
_CALLS: Final = ("tool_call", "server_tool_call")
_KEPT_PARTIAL: Final = ("text", "refusal")
_SAID: Final = ("text", "reasoning", "refusal")
_BAD_INPUT: Final = "INVALID_JSON"
"""Under this name Anthropic's documentation (*Fine-grained tool streaming*) has input sent back that is no JSON."""


def clean(message: Message, rules: Rules, notes: Notes) -> Message:
    """The message with the blocks that can be sent, each in a form that the provider takes."""
    blocks = []
    for block in message.blocks:
        cleaned = _clean_block(message, block, rules, notes)
        if cleaned is not None:
            blocks.append(cleaned)
    cleaned_message = replace(message, blocks=tuple(blocks))
    return message if cleaned_message == message else cleaned_message


def _clean_block(message: Message, block: Block, rules: Rules, notes: Notes) -> Block | None:
    if block.kind != "tool_result":
        if not _is_allowed(message, block, rules, notes):
            return None
        sendable = block if _is_sendable(block, rules) else _as_text(message, block, rules, notes)
        block = block if sendable is None else _without_foreign(message, sendable, rules, notes)
        if sendable is None or _is_blank(message, block, notes):
            return None
        block = _whole(message, block, notes)
        if block.kind in _CALLS and rules.object_input:
            block = _with_object(message, block, notes)
    return _well_formed(message, block, rules, notes)


def _is_allowed(message: Message, block: Block, rules: Rules, notes: Notes) -> bool:
    """Whether such a block may stand in such a message, as far as it came."""
    if not block.sealed and block.kind not in _KEPT_PARTIAL:
        notes.repair(f"a partial block ({block.kind}) is not sent", message, block)
        return False
    if block.kind in _OF_ASSISTANTS and message.role != "assistant":
        notes.repair(f"only an assistant has such a block ({block.kind})", message, block)
        return False
    if block.kind == "media" and message.role not in rules.media_roles and maker_of(block) != rules.provider:
        notes.lose(f"media can't be sent in a message of the {message.role}", message, block)
        return False
    return True


def _as_text(message: Message, block: Block, rules: Rules, notes: Notes) -> Block | None:
    """What can't be sent as itself, as text where the rules want it."""
    if block.kind not in rules.as_text or not block.text.strip():
        notes.lose(f"{rules.provider} can't be told this ({_describe(block)})", message, block)
        return None
    notes.lose(f"it is sent as text ({_describe(block)})", message, block)
    return replace(block, kind="text", signature=None, opaque=None, provider_ref=None)


def _is_blank(message: Message, block: Block, notes: Notes) -> bool:
    says = block.text.strip() or block.signature or (block.kind == "reasoning" and block.opaque)  # Gemini signs empty texts too
    if block.kind in _SAID and not says:
        notes.repair(f"a blank block ({block.kind}) is not sent", message, block)
        return True
    return False


def _whole(message: Message, block: Block, notes: Notes) -> Block:
    if block.sealed:
        return block
    notes.repair(f"a partial block ({block.kind}) is sent as far as it came", message, block)
    return replace(block, sealed=True)


def _is_sendable(block: Block, rules: Rules) -> bool:
    if block.kind not in rules.kinds:
        return False
    if block.kind == "reasoning":
        is_signed = bool(block.signature) or maker_of(block) == rules.provider
        return not rules.signed_reasoning or (is_signed and signer_of(block) == rules.provider)
    if block.kind in _ONLY_A_PAYLOAD:
        return signer_of(block) == rules.provider
    return True


def _without_foreign(message: Message, block: Block, rules: Rules, notes: Notes) -> Block:
    """Payloads and signatures go to their own maker only; of media, their bytes or address are for everybody."""
    if block.signature is not None and signer_of(block) != rules.provider:
        notes.lose(f"a signature of {signer_of(block)} is not sent", message, block)
        block = replace(block, signature=None)
    maker = maker_of(block)
    if maker not in (None, rules.provider):
        notes.lose(f"what only {maker} knows of the block is not sent", message, block)
        block = plain_media(block) if block.kind == "media" else replace(block, opaque=None)
    return block


def _with_object(message: Message, block: Block, notes: Notes) -> Block:
    """The input of a tool call as a JSON object."""
    text = block.input_text or block.text
    try:
        value = decode(text) if text.strip() else {}
    except InvalidJson:
        value = None
        sent = dump({_BAD_INPUT: text})
    else:
        if isinstance(value, dict):
            return block if text.strip() else replace(block, input_text="{}", parse="ok")
        sent = f'{{"input":{text}}}'
    notes.repair("the input of the call is no JSON object, it is sent inside one", message, block)
    return replace(block, input_text=sent, text="", parse="ok")


def _well_formed(message: Message, block: Block, rules: Rules, notes: Notes) -> Block | None:
    changes: dict[str, object] = {}
    count = 0
    is_json = block.kind in _CALLS and rules.object_input
    for name in ("text", "name", "media_type", "input_text", "parts", "opaque"):
        value = getattr(block, name)
        if not value:
            continue
        mend = mend_json if name in ("input_text", "parts", "opaque") or (name == "text" and is_json) else mend_text
        mended_value, found = mend(value, refuse_nul=rules.refuse_nul)
        if name == "text" and is_json:  # a custom tool's input is plain text
            mended_value, more = mend_text(mended_value, refuse_nul=rules.refuse_nul)
            found += more
        changes[name] = mended_value
        count += found
    mended = [mend_json(citation, refuse_nul=rules.refuse_nul) for citation in block.citations]
    fields = {name: mend_text(text, refuse_nul=rules.refuse_nul) for name, text in block.fields.items()}
    count += sum(found for _, found in mended) + sum(found for _, found in fields.values())
    changes["citations"] = tuple(text for text, _ in mended)
    changes["fields"] = {name: text for name, (text, _) in fields.items()}
    if not count:
        return block
    if block.kind in ("reasoning", "redacted_reasoning") and rules.signed_reasoning:
        notes.repair("reasoning with ill-formed text is not sent, for it can't be changed", message, block)
        return None
    notes.repair(f"characters that no text may have were replaced: {count}", message, block)
    return replace(block, **changes)


def _describe(block: Block) -> str:
    if block.kind == "reasoning" and block.signature is None and maker_of(block) is None:
        return "reasoning without a signature"
    of = f" of {signer_of(block)}" if block.opaque or block.signature else ""
    return block.kind + of
