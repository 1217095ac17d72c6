"""OpenAI Responses: streams and histories, in and out."""
