"""What a provider demands of a history, and what is said while the history is mended to fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from projector.formats.shared.history import Loss

if TYPE_CHECKING:
    from projector.message import Block, Message


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider demands; the writer of its format states it in one place.

    `provider` is the maker whose payloads and signatures may be sent. `kinds` are the kinds of block it has a form
    for; those of `as_text` are sent as text where they can't be sent as themselves, all others are left out and
    said. `signed_reasoning`: only reasoning with a signature or a payload of this maker; else any. `reasoning_leads`:
    reasoning never stands last in a message. `object_input`: the input of a tool is a JSON object, not text.
    `server_tools_answered`: a server tool's call needs its result. `results_in_order`: of their calls.
    `turns_combine`: messages of the assistant in succession are one turn, whose results may come behind the last.
    """

    provider: str
    kinds: frozenset[str]
    as_text: frozenset[str] = frozenset({"refusal", "compaction"})
    media_roles: frozenset[str] = frozenset({"user"})
    signed_reasoning: bool = True
    reasoning_leads: bool = False
    object_input: bool = False
    server_tools_answered: bool = False
    results_in_order: bool = False
    refuse_nul: bool = False
    turns_combine: bool = False
    begins_with_user: bool = False
    alternate: bool = False
    trimmed_end: bool = False
    id_characters: str | None = None
    """The characters that a call's id may have, as the inside of a regular expression's class; None: any."""
    id_length: int = 64
    name_length: int = 64
    """Of a tool's name, whose characters are letters, digits, `_` and `-` with every provider."""


class Notes:
    """What is said while a history is mended."""

    def __init__(self) -> None:
        self.repairs: list[Loss] = []
        self.losses: list[Loss] = []

    def repair(self, what: str, message: Message, block: Block | None = None) -> None:
        """Something was changed so that the provider takes it."""
        self.repairs.append(Loss(what, message.id, None if block is None else block.number))

    def lose(self, what: str, message: Message, block: Block | None = None) -> None:
        """Something can't be said in this format."""
        self.losses.append(Loss(what, message.id, None if block is None else block.number))
