"""What Gemini demands of a history; `validator` checks it by a reading of its own."""

from __future__ import annotations

from typing import Final

from projector.formats.gemini.stream_reader import PROVIDER
from projector.formats.outgoing.rules import Rules

RULES: Final = Rules(
    provider=PROVIDER,
    kinds=frozenset({"text", "reasoning", "tool_call", "server_tool_call", "server_tool_result", "media", "provider"}),
    media_roles=frozenset({"user", "assistant"}),
    object_input=True,
    results_in_order=True,
    turns_combine=True,
    begins_with_user=True,
    alternate=True,
    id_length=256,
)
