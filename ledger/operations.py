"""What a ledger does, one function each, over its `Engine`; each is imported when it is first asked for."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ledger.amendments import add_media, annotate, describe, record, redact, select
    from ledger.context.context import make_context, recover_overflow
    from ledger.context.expansions import expand
    from ledger.context.sends import arrive, begin_send
    from ledger.exports import export
    from ledger.runs.recovery import cancel, recover
    from ledger.transfer.copies import copy_ledger
    from ledger.transfer.file_import import import_file
    from ledger.transfer.importing import import_history
    from ledger.transfer.recorded import Recorded
    from ledger.upkeep.backup import back_up
    from ledger.upkeep.compact import compact, project
    from ledger.upkeep.erase import erase
    from ledger.upkeep.reconcile import reconcile
    from ledger.upkeep.statistics import store_statistics
else:
    from stream.lazy_names import on_demand as _on_demand

    __getattr__, __dir__ = _on_demand(
        __name__,
        {
            "ledger.amendments": "add_media annotate describe record redact select",
            "ledger.context.context": "make_context recover_overflow",
            "ledger.context.expansions": "expand",
            "ledger.context.sends": "arrive begin_send",
            "ledger.exports": "export",
            "ledger.runs.recovery": "cancel recover",
            "ledger.transfer.copies": "copy_ledger",
            "ledger.transfer.file_import": "import_file",
            "ledger.transfer.importing": "import_history",
            "ledger.transfer.recorded": "Recorded",
            "ledger.upkeep.backup": "back_up",
            "ledger.upkeep.compact": "compact project",
            "ledger.upkeep.erase": "erase",
            "ledger.upkeep.reconcile": "reconcile",
            "ledger.upkeep.statistics": "store_statistics",
        },
    )

__all__ = [
    "Recorded",
    "add_media",
    "annotate",
    "arrive",
    "back_up",
    "begin_send",
    "cancel",
    "compact",
    "copy_ledger",
    "describe",
    "erase",
    "expand",
    "export",
    "import_file",
    "import_history",
    "make_context",
    "project",
    "reconcile",
    "record",
    "recover",
    "recover_overflow",
    "redact",
    "select",
    "store_statistics",
]
