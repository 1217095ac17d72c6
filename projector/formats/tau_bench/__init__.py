"""Results of tau-bench, in."""
