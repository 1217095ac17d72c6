"""The history chain as an operator sets it up: its settings file, the plugins there are, and the sessions that use it.

What a chain does with messages is `projector.context`; a rule of that kind must not live here.
"""

from ledger.history.discovery import Found, discover, load_chain
from ledger.history.runtime import HistoryRuntime
from ledger.history.sessions import SessionRegistry, TooManySessions, UserSession
from ledger.history.settings import HistorySettings, change_configuration, read_configuration

Configuration = HistorySettings
"""The name that programs know it by."""

__all__ = [
    "Configuration",
    "Found",
    "HistoryRuntime",
    "HistorySettings",
    "SessionRegistry",
    "TooManySessions",
    "UserSession",
    "change_configuration",
    "discover",
    "load_chain",
    "read_configuration",
]
