"""The translation: the vocabulary of a conversation, folds, canonical messages, and the formats of providers.

What lives here are pure functions of events and messages. Storage must not, beyond the small protocols of `stream`
that `load` and `compact` use.
"""

from projector.compaction import Compaction, compact
from projector.folds import open_runs, transcript
from projector.json import InvalidJson
from projector.loading import Loaded, load
from projector.message import Block, Message, present
from projector.projector import Projector
from projector.settle import End, Settled, settle
from projector.state import State

__all__ = [
    "Block",
    "Compaction",
    "End",
    "InvalidJson",
    "Loaded",
    "Message",
    "Projector",
    "Settled",
    "State",
    "compact",
    "load",
    "open_runs",
    "present",
    "settle",
    "transcript",
]
