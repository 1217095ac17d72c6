"""The durable transcript: conversations, runs and their messages; commit, recovery, compaction, and the facade.

What lives here joins the log (`stream`) and the translation (`projector`). A second way to commit must not: catch-up
is the only one.
"""

from ledger.context.context import Context
from ledger.erasure import Erased
from ledger.errors import (
    HoldLost,
    ImportDiffers,
    LedgerBehind,
    LedgerDamaged,
    LedgerDiverged,
    LedgerError,
    LogReplaced,
    NoConversation,
    NoSend,
    NothingFits,
    RunEnded,
    RunExists,
    RunLost,
    RunOpen,
    SendOvertaken,
    UnknownConversation,
    UnknownMedia,
    UnknownMessage,
    UnknownRun,
    UnknownToolCall,
)
from ledger.following import OpenRun, Replay
from ledger.ledger import Ledger
from ledger.opening import open_ledger
from ledger.records import ConversationInfo, RunInfo
from ledger.runs.contents import File
from ledger.runs.run import Run
from ledger.runs.start import ACTIVE_LEAF
from ledger.tables.media import Media
from ledger.transcript import Tree
from ledger.transfer.adoption import ImportedLog
from ledger.transfer.file_import import ImportedHistory, ImportReport, RefusedFile
from ledger.transfer.files import FileError
from ledger.transfer.importing import ImportResult

__all__ = [
    "ACTIVE_LEAF",
    "Context",
    "ConversationInfo",
    "Erased",
    "File",
    "FileError",
    "HoldLost",
    "ImportDiffers",
    "ImportReport",
    "ImportResult",
    "ImportedHistory",
    "ImportedLog",
    "Ledger",
    "LedgerBehind",
    "LedgerDamaged",
    "LedgerDiverged",
    "LedgerError",
    "LogReplaced",
    "Media",
    "NoConversation",
    "NoSend",
    "NothingFits",
    "OpenRun",
    "RefusedFile",
    "Replay",
    "Run",
    "RunEnded",
    "RunExists",
    "RunInfo",
    "RunLost",
    "RunOpen",
    "SendOvertaken",
    "Tree",
    "UnknownConversation",
    "UnknownMedia",
    "UnknownMessage",
    "UnknownRun",
    "UnknownToolCall",
    "open_ledger",
]
