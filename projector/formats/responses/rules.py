"""What the Responses API demands of a history."""

from __future__ import annotations

from typing import Final

from projector.formats.outgoing.rules import Rules
from projector.formats.responses.parts import (
    REASONING,
    SAID,
)
from projector.formats.shared.openai_items import (
    PROVIDER,
)

RULES: Final = Rules(
    provider=PROVIDER,
    kinds=frozenset({
        *SAID, *REASONING, "tool_call", "server_tool_call", "server_tool_result", "compaction", "media", "provider",
    }),
    reasoning_leads=True,
    object_input=True,
    refuse_nul=True,
    id_characters="!-~",
)  # fmt: skip
