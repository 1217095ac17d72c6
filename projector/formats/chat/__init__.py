"""Chat Completions, as OpenAI and many others speak it: streams and histories, in and out."""
