"""The durable transcript."""
