"""Gemini GenerateContent: streams and histories, in."""
