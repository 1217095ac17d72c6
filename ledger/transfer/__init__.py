"""Conversations in and out: files, histories, exports. Typing and printing must not live here."""
