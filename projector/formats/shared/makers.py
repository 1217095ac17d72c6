"""Who makes what only he can read: the one name of each provider that several formats speak of."""

from __future__ import annotations

from typing import Final

ANTHROPIC: Final = "anthropic"
BEDROCK: Final = "bedrock"
GOOGLE: Final = "google"
OPENAI: Final = "openai"
