"""Measurements of the log and of what stands on it: ratios of one interleaved run, never absolute numbers.

Speed depends on the machine, and on what else it does; a ratio of two things that took turns depends on it much less.
`python -m benchmarks` runs the workloads of `benchmarks.workloads` against raw `sqlite3` (`benchmarks.raw`) and other
libraries (`benchmarks.peers`). What asserts something belongs into `tests`.
"""
