"""Sessions of pi, in."""
