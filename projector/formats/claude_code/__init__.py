"""Sessions of Claude Code, and what its command streams, in."""
