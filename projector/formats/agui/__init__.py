"""AG-UI: events and messages, in and out."""
