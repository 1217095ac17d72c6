"""What of the change feed SQLite says in its own way."""

from __future__ import annotations

from typing import Final

from stream.tables.feed import FeedTexts

NUMBER: Final = "(SELECT max(changed) FROM streams) + 1"
"""The number of the next change; whatever moves a stream sets `changed` to it in the same statement."""

LAST: Final = "SELECT coalesce(max(changed), 0) FROM streams"
"""The number of the last one."""

FEED: Final = FeedTexts(LAST, ("INDEXED BY streams_by_change", "CROSS"))
