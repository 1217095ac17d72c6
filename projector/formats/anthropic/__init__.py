"""Anthropic Messages: streams and histories, in and out."""
