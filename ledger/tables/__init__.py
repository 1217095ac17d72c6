"""All SQL of the ledger. What a conversation means must not live here."""
