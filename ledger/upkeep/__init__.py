"""Comparing, repairing, verifying and backing up. What a repair writes lives in `ledger.tables`."""
