"""The translation: the vocabulary of a conversation, folds, canonical messages, and the formats of providers.

What lives here are pure functions of events and messages. Storage must not, beyond the small protocols of `stream`
that `load` and `compact` use.
"""

from projector.compaction import Compaction, compact
from projector.folds import open_runs, transcript
from projector.json_text import InvalidJson
from projector.loading import Loaded, load
from projector.message import Block, Message, present
from projector.projector import Projector
from projector.settle import End, Settled, settle
from projector.state import State
from projector.tree import ForkPoint, Node, fork_points

__all__ = [
    "Block",
    "Compaction",
    "End",
    "ForkPoint",
    "InvalidJson",
    "Loaded",
    "Message",
    "Node",
    "Projector",
    "Settled",
    "State",
    "compact",
    "fork_points",
    "load",
    "open_runs",
    "present",
    "settle",
    "transcript",
]
