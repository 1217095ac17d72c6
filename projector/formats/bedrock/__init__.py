"""Bedrock Converse: streams and histories, in."""
