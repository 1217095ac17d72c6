"""What files that are taken in and given out may be, by name."""

from __future__ import annotations

from typing import Final

from projector.formats import READERS, STREAMS

AUTO: Final = "auto"
TAILFOLD: Final = "tailfold"
MESSAGES: Final = "tailfold-messages"
FORMATS: Final = (MESSAGES, *sorted({*READERS, *STREAMS}))
