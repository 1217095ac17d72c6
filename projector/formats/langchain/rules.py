"""What LangChain has a form for; it hands on what any maker has made."""

from __future__ import annotations

from typing import Final

from projector.formats.langchain.parts import PROVIDER
from projector.formats.outgoing.rules import Rules

KINDS: Final = (
    "text", "reasoning", "redacted_reasoning", "tool_call", "server_tool_call", "server_tool_result", "media", "refusal",
    "provider",
)  # fmt: skip
RULES: Final = Rules(
    provider=PROVIDER,
    kinds=frozenset(KINDS),
    as_text=frozenset({"compaction"}),
    media_roles=frozenset({"user", "assistant", "system", "developer"}),
    signed_reasoning=False,
    id_length=256,
)
