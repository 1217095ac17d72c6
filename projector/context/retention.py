"""Block retention: what plugins add to a message is shown now, kept for a while, or both.

The policy of a message lies in its metadata, parallel to its blocks: None keeps a block for good, n keeps it in the n
newest messages that carry a policy.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from projector.context.facts import facts_of, form_of
from projector.context.tokens import result_text
from projector.context.tool_groups import answers
from projector.message import Block, Message

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

Policy = list[int | None]
POLICY: Final = "retention"
"""The field of a message's metadata that holds its policy."""
_STUB: Final = "[result no longer retained]"


class AdditionalContent(msgspec.Struct, frozen=True):
    """What a plugin adds to a message: to what is shown now, to what is kept (True: for good, n: for n messages).

    Raises `ValueError` for a negative number, and for what is none.
    """

    display_on_current_message: bool
    save_to_chat_history: bool | int
    content: tuple[Block, ...]

    def __post_init__(self) -> None:
        if type(self.save_to_chat_history) not in (bool, int) or self.save_to_chat_history < 0:
            raise ValueError(f"save_to_chat_history must be True, False or 0 and more, not {self.save_to_chat_history}")

    @property
    def is_saved(self) -> bool:
        """Whether any of it is kept; 0 is not."""
        return bool(self.save_to_chat_history)

    @property
    def keeps(self) -> int | None:
        """The policy of its blocks. True is no number here, though it equals 1."""
        return None if self.save_to_chat_history is True else int(self.save_to_chat_history)


class PluginAdditions(msgspec.Struct, frozen=True):
    """All that one plugin adds to a message, under a header with its label."""

    label: str
    additions: tuple[AdditionalContent, ...]


class RetentionAware(msgspec.Struct, frozen=True):
    """A message in two variants: what is sent now, and what is kept, with a policy for each block of it."""

    display: tuple[Block, ...]
    persistent: tuple[Block, ...]
    retention_policy: tuple[int | None, ...]


def enrich(blocks: Sequence[Block], plugins: Iterable[PluginAdditions]) -> RetentionAware:
    """A user's or tool's blocks with what plugins add. Blocks are never merged or put in another order.

    Empty texts are dropped before a policy is attached, so that both stay aligned.
    """
    own = tuple(block for block in blocks if not _is_empty(block))
    display, persistent = list(own), list(own)
    policy: Policy = [None] * len(own)
    for plugin in plugins:
        filled = [(one, body) for one in plugin.additions if (body := [b for b in one.content if not _is_empty(b)])]
        shown = [body for one, body in filled if one.display_on_current_message]
        saved = [(one, body) for one, body in filled if one.is_saved]
        if shown:
            display.append(_header(plugin.label))
        for body in shown:
            display += [*body, _SPACING]
        if saved:
            keeps = [one.keeps for one, _ in saved]
            persistent.append(_header(plugin.label))
            policy.append(None if None in keeps else max(number for number in keeps if number is not None))
        for one, body in saved:
            persistent += [*body, _SPACING]
            policy += [one.keeps] * (len(body) + 1)
    return RetentionAware(tuple(display), tuple(persistent), tuple(policy))


def check_policy(blocks: Sequence[object], policy: Sequence[int | None]) -> None:
    """Raises `ValueError` unless there is one policy a block, none of them negative."""
    if len(blocks) != len(policy):
        raise ValueError(f"{len(blocks)} blocks have {len(policy)} retention policies: there must be one each")
    for number in policy:
        if number is not None and (type(number) is not int or number < 0):  # it may come from a stored message
            raise ValueError(f"a retention policy is None or 0 and more, not {number!r}")


def policy_of(message: Message) -> Policy | None:
    """The policy of a message that has one. Raises `ValueError`, which names the message, where it does not fit its blocks."""
    policy = known_policy(message)
    return None if policy is None else list(policy)


def known_policy(message: Message) -> tuple[int | None, ...] | None:
    """The same, read once for the same message."""
    text = message.metadata_text.get(POLICY)
    if text is None or text == "null" or message.role == "assistant":  # null: it was taken away
        return None
    facts = facts_of(message)
    if facts.policy is None:
        facts.policy = tuple(_read_policy(message, text))
    return facts.policy


def _read_policy(message: Message, text: str) -> Policy:
    try:
        policy = json.loads(text)
        if not isinstance(policy, list):
            raise ValueError(f"a retention policy is a list, not {text[:40]}")  # noqa: TRY004 - of a value
        check_policy(message.blocks, policy)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"the retention policy of message {message.id!r} can't be used: {error}; annotate it with one that fits"
        ) from error
    return policy


def show_additions(messages: Sequence[Message], display: Mapping[str, Sequence[Block]]) -> list[Message]:
    """The view in which each message that is being sent is shown through its display variant, by its id.

    Raises `ValueError` for a message that is not there, for one of an assistant, and for a tool's without its result.
    """
    waiting = dict(display)
    shown = [_shown(one, waiting.pop(one.id)) if one.id in waiting else one for one in messages]
    for name in waiting:
        raise ValueError(f"display names a message that is not on the path: {name!r}; give the id of one that is being sent")
    return shown


def _shown(message: Message, blocks: Sequence[Block]) -> Message:
    if message.role == "assistant":
        raise ValueError(f"display is for what users and tools say, and {message.id!r} is an assistant's message")
    if message.role == "tool" and answers(replace(message, blocks=tuple(blocks))) != answers(message):
        raise ValueError(f"display of {message.id!r} must hold the result of its call: give what `enrich` made of its blocks")
    metadata = {name: value for name, value in message.metadata_text.items() if name != POLICY}
    return replace(message, blocks=_numbered(blocks), metadata_text=metadata)


def _numbered(blocks: Sequence[Block]) -> tuple[Block, ...]:
    return tuple(replace(block, number=number) for number, block in enumerate(blocks))


def prune(messages: Sequence[Message], sending: Container[str] = ()) -> list[Message]:
    """The view after retention: blocks whose time is over are gone, and messages that have none left.

    What is being sent right now has no index yet, and keeps all. The newest other message with a policy has index 0; a
    block stays while its policy is greater than the index. Emptied messages count too, or the removal of one would make
    older ones younger. A tool's message becomes a stub instead, and so does its result alone where a plugin's blocks
    outlive it: its call is not left without a result. Assistant
    messages are never touched. Raises `ValueError` as `policy_of` does.
    """
    if not any(POLICY in message.metadata_text for message in messages):
        return list(messages)
    kept: list[Message] = []
    index = 0
    for message in reversed(messages):
        policy = None if POLICY not in message.metadata_text or message.id in sending else known_policy(message)
        if policy is None:
            kept.append(message)
            continue
        facts = facts_of(message)
        if facts.pruned is not None and facts.pruned[0] <= index:  # all its times were over before
            left = facts.pruned[1]
        else:
            left = _left(message, policy, index)
            longest = max((keep for keep in policy if keep is not None), default=0)
            facts.pruned = (index, left) if longest <= index else None
        index += 1
        if left is not None:
            kept.append(left)
    return kept[::-1]


def _left(message: Message, policy: Sequence[int | None], index: int) -> Message | None:
    """What is left of a message with this index."""
    stays = tuple([keep is None or keep > index for keep in policy])
    if all(stays) and policy:
        return message
    return form_of(message, stays, _pruned, policy, stays) if any(stays) or message.role == "tool" else None


def _pruned(message: Message, policy: Sequence[int | None], stays: Sequence[bool]) -> Message:
    """The message with those of its blocks that stay."""
    left = [(block, keep) for block, keep, is_left in zip(message.blocks, policy, stays, strict=True) if is_left]
    blocks = tuple(block for block, _ in left)
    if message.role == "tool" and not any(block.kind == "tool_result" for block in blocks):
        return _stub(message, blocks)
    return replace(
        message, blocks=blocks, metadata_text={**message.metadata_text, POLICY: json.dumps([keep for _, keep in left])}
    )


def _stub(message: Message, others: Iterable[Block]) -> Message:
    """The message with a result that says nothing, and never weighs more than the one that was there."""
    results = [block for block in message.blocks if block.kind == "tool_result"]
    length = sum(len(result_text(block)) for block in results)
    said = _STUB if length > len(_STUB) else "\u2026" if length else ""
    parts = json.dumps([{"kind": "text", "text": said}])
    blocks = tuple(replace(block, parts=parts, text="", opaque=None) for block in results[:1])
    metadata = {name: value for name, value in message.metadata_text.items() if name != POLICY}
    return replace(message, blocks=(*blocks, *others) or (Block("text", text=_STUB, sealed=True),), metadata_text=metadata)


def _is_empty(block: Block) -> bool:
    return block.kind == "text" and not block.text


def _header(label: str) -> Block:
    return Block("text", text=f"\n### PLUGIN {label} CONTEXT ###\n", sealed=True)


_SPACING: Final = Block("text", text="\n", sealed=True)
