"""The durable transcript: conversations, runs and their messages; commit, recovery, compaction, and the facade.

What lives here joins the log (`stream`) and the translation (`projector`). A second way to commit must not: catch-up
is the only one.
"""

from ledger.errors import (
    LedgerBehind,
    LedgerDamaged,
    LedgerDiverged,
    LedgerError,
    RunEnded,
    RunExists,
    RunLost,
    RunOpen,
    UnknownConversation,
    UnknownMessage,
    UnknownRun,
)
from ledger.ledger import Ledger, OpenRun, open_ledger
from ledger.records import ConversationInfo, RunInfo
from ledger.run import Run

__all__ = [
    "ConversationInfo",
    "Ledger",
    "LedgerBehind",
    "LedgerDamaged",
    "LedgerDiverged",
    "LedgerError",
    "OpenRun",
    "Run",
    "RunEnded",
    "RunExists",
    "RunInfo",
    "RunLost",
    "RunOpen",
    "UnknownConversation",
    "UnknownMessage",
    "UnknownRun",
    "open_ledger",
]
