"""What Converse demands of a history; `validator` checks it by a reading of its own."""

from __future__ import annotations

from typing import Final

from projector.formats.bedrock.stream_reader import PROVIDER
from projector.formats.outgoing.rules import Rules

RULES: Final = Rules(
    provider=PROVIDER,
    kinds=frozenset(
        {
            "text", "reasoning", "redacted_reasoning", "tool_call", "server_tool_call", "server_tool_result", "media",
            "provider",
        }
    ),
    reasoning_leads=True,
    object_input=True,
    server_tools_answered=True,
    turns_combine=True,
    begins_with_user=True,
    alternate=True,
    trimmed_end=True,
    id_characters="a-zA-Z0-9_.:-",
)  # fmt: skip
