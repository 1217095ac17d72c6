"""What Chat Completions and its dialects demand of a history."""

from __future__ import annotations

from typing import Final, Literal

from projector.formats.chat.parts import PROVIDER
from projector.formats.outgoing.rules import Rules

Reasoning = Literal["reasoning_content", "reasoning", "reasoning_details", "thinking"]
"""The field in which a target takes its own reasoning back: DeepSeek and others, Groq and others, OpenRouter, Mistral."""
_KINDS: Final = frozenset({"text", "refusal", "tool_call", "media"})
_OF_DIALECTS: Final = frozenset({"reasoning", "redacted_reasoning", "provider"})
_MAX_ID: Final = 40  # OpenAI refuses longer ids of calls; those of other makers are longer
_MAX_ID_OF_DIALECTS: Final = 256


def rules_for(reasoning: Reasoning | None) -> Rules:
    """The rules of a target that takes reasoning back in this field; None is OpenAI, which takes none."""
    return Rules(
        provider=PROVIDER,
        kinds=_KINDS | (_OF_DIALECTS if reasoning else frozenset()),
        signed_reasoning=False,
        object_input=True,
        refuse_nul=True,
        id_characters="!-~",
        id_length=_MAX_ID if reasoning is None else _MAX_ID_OF_DIALECTS,
    )
