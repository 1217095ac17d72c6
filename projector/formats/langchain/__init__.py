"""LangChain messages, in and out."""
