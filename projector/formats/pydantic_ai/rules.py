"""What Pydantic AI has a form for; it hands on what any maker has made."""

from __future__ import annotations

from typing import Final

from projector.formats.outgoing.rules import Rules
from projector.formats.pydantic_ai.content import PROVIDER

RULES: Final = Rules(
    provider=PROVIDER,
    kinds=frozenset({
        "text", "reasoning", "redacted_reasoning", "tool_call", "server_tool_call", "server_tool_result", "media",
        "compaction", "provider",
    }),
    as_text=frozenset({"refusal", "compaction"}),
    media_roles=frozenset({"user", "assistant"}),
    signed_reasoning=False,
    id_length=256,
)  # fmt: skip
