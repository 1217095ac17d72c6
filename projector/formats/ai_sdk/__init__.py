"""AI SDK UI messages: streams and histories, in and out."""
