"""Trees of messages, as OpenAssistant has them, in."""
