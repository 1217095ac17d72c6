"""Structs that are read from bytes are known to msgspec before any thread reads one: learnt by two at once, it crashes."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc, msgspec, ledger, ledger.transfer.jsonl, projector.formats, stream.snapshots

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


def test_what_is_read_from_bytes_is_learnt_when_it_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    known = set(done.stdout.split())
    assert known >= READ, READ - known
    assert "Canary" not in known
