"""What recorders wrap around streams and histories, and how a format is told. What a format means must not live here."""
