"""What the Messages API demands of a history; `validators` checks it by a reading of its own."""

from __future__ import annotations

from typing import Final

from projector.formats.anthropic.parts import (
    PROVIDER,
)
from projector.formats.outgoing.rules import Rules

RULES: Final = Rules(
    provider=PROVIDER,
    kinds=frozenset(
        {
            "text", "reasoning", "redacted_reasoning", "tool_call", "server_tool_call", "server_tool_result", "media",
            "compaction", "provider",
        }
    ),
    reasoning_leads=True,
    object_input=True,
    server_tools_answered=True,
    turns_combine=True,
    trimmed_end=True,
    id_characters="a-zA-Z0-9_-",
    id_length=128,
)  # fmt: skip
