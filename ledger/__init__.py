"""The durable transcript: conversations, runs and their messages; commit, recovery, compaction, and the facade.

What lives here joins the log (`stream`) and the translation (`projector`). A second way to commit must not: catch-up
is the only one.
"""

from ledger.early_interrupt import end_on_interrupt as _end_on_interrupt
from ledger.early_interrupt import is_command as _is_command

if _is_command():  # before all else that is imported
    _end_on_interrupt()

from typing import TYPE_CHECKING

from ledger.name_clashes import check_names as _check_names

_check_names()

if TYPE_CHECKING:
    from ledger.context.context import Context
    from ledger.erasure import Erased
    from ledger.errors import (
        CopyDiffers,
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
    from ledger.transfer.copies import Copied
    from ledger.transfer.file_import import ImportedHistory, ImportReport, RefusedFile
    from ledger.transfer.files import FileError
    from ledger.transfer.importing import ImportResult
else:
    from stream.lazy_names import on_demand as _on_demand

    __getattr__, __dir__ = _on_demand(
        __name__,
        {
            "ledger.context.context": "Context",
            "ledger.erasure": "Erased",
            "ledger.errors": (
                "CopyDiffers HoldLost ImportDiffers LedgerBehind LedgerDamaged LedgerDiverged LedgerError LogReplaced "
                "NoConversation NoSend NothingFits RunEnded RunExists RunLost RunOpen SendOvertaken UnknownConversation "
                "UnknownMedia UnknownMessage UnknownRun UnknownToolCall"
            ),
            "ledger.following": "OpenRun Replay",
            "ledger.ledger": "Ledger",
            "ledger.opening": "open_ledger",
            "ledger.records": "ConversationInfo RunInfo",
            "ledger.runs.contents": "File",
            "ledger.runs.run": "Run",
            "ledger.runs.start": "ACTIVE_LEAF",
            "ledger.tables.media": "Media",
            "ledger.transcript": "Tree",
            "ledger.transfer.adoption": "ImportedLog",
            "ledger.transfer.copies": "Copied",
            "ledger.transfer.file_import": "ImportedHistory ImportReport RefusedFile",
            "ledger.transfer.files": "FileError",
            "ledger.transfer.importing": "ImportResult",
        },
    )

__all__ = [
    "ACTIVE_LEAF",
    "Context",
    "ConversationInfo",
    "Copied",
    "CopyDiffers",
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
