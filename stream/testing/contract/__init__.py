"""The contract of an event store, case by case: what a test of a store in another place would have to say again.

A case takes a backend and asserts. Nothing here knows how a store is built; what not every store can do is behind a flag.
"""

from stream.testing.case import CASES
from stream.testing.contract import (
    adopting,
    appending,
    bad_input,
    changing,
    disturbing,
    elsewhere,
    following,
    keeping,
    reading,
    resuming,
    sharing,
)

__all__ = [
    "CASES",
    "adopting",
    "appending",
    "bad_input",
    "changing",
    "disturbing",
    "elsewhere",
    "following",
    "keeping",
    "reading",
    "resuming",
    "sharing",
]
