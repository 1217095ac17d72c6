"""Structs that are read from bytes are known to msgspec before any thread reads one: learnt by two at once, it crashes."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from ledger.records import ConversationInfo, RunInfo
from ledger.tables.runs import Steps
from projector import Block, Message
from projector.context.chain import Chained, ChainSession
from projector.context.delta import Delta, Full
from projector.context.expiration import Applied, Choices, Decision, ResultState
from projector.context.overflow import Recovery
from projector.context.policies import ExpirationPolicy, PolicyRegistry
from projector.context.report import Change
from projector.context.switches import Switched
from projector.events import Body
from projector.message import Unknown
from projector.run_draft import Anomaly, BlockDraft, MessageDraft, RunDraft, Usage
from projector.settle import End, Settled
from projector.state import EndedRun, State
from stream import Event, NewEvent

if TYPE_CHECKING:
    from collections.abc import Iterator

    import msgspec

PROGRAM = """
import gc, msgspec, ledger.ledger, ledger.context.context, ledger.transfer.jsonl, stream.snapshots
from projector.formats.registry import NAMED

list(NAMED.values())

def under(kind):
    for each in kind.__subclasses__():
        yield each
        yield from under(each)

def is_known(kind):
    return any(type(part).__name__ == "StructInfo" for part in gc.get_referents(kind))

class Canary(msgspec.Struct):
    a: int

print(*sorted(kind.__name__ for kind in under(msgspec.Struct) if is_known(kind)))
"""
READ = {
    "State", "EndedRun", "End", "RunDraft", "MessageDraft", "BlockDraft", "Message", "Block", "Unknown", "Usage", "Anomaly",
    "RunInfo", "Counts", "Snapshot", "Header", "_EventLine", "_MediaLine", "_Kind", "_Call", "_Delta", "_Function",
    "_PlainDelta", "_Text", "RunStarted", "RunFinished", "ContextCompacted",
}  # fmt: skip


WALKED = (Choices, Applied, Full, Delta, ChainSession, Switched, PolicyRegistry, Settled, Chained, Recovery)
"""Made once a view or a run, of what others gave: that the collector walks them costs nothing."""


def under(kind: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for each in kind.__subclasses__():
        yield each
        yield from under(each)


def test_what_there_is_much_of_is_not_walked_by_the_collector() -> None:
    """None can be part of a circle: they are made of text, numbers and each other, and never change."""
    many: set[type[msgspec.Struct]] = {
        Message, Block, Unknown, Usage, Anomaly, RunInfo, ConversationInfo, Steps, Event, NewEvent, Body, Change, Decision,
        ResultState, ExpirationPolicy, End, EndedRun, State, RunDraft, MessageDraft, BlockDraft,
    }  # fmt: skip
    assert not {kind.__name__ for base in many for kind in (base, *under(base)) if kind.__struct_config__.gc}
    assert all(kind.__struct_config__.gc for kind in WALKED)


def test_what_is_read_from_bytes_is_learnt_when_it_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    known = set(done.stdout.split())
    assert known >= READ, READ - known
    assert "Canary" not in known
