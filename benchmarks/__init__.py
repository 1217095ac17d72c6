"""Measurements of the log and of what stands on it. What asserts something belongs into `tests`."""
