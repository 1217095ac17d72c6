"""What is served over HTTP: the protocol of streams, conversations, and what agents read."""
