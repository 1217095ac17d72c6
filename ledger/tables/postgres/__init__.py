"""The ledger's tables as PostgreSQL makes them; what is asked of them is the same text everywhere."""
