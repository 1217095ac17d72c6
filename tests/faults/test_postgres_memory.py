"""What PostgreSQL costs in memory: some times what one call carries, and nothing that grows with a stream."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from stream import NewEvent, open_store
from stream.limits import MAX_PAGE_BYTES
from tests.faults.children import Parent, alone
from tests.postgres_server import Shared

pytestmark = pytest.mark.heavy
MIB: Final = 2**20


class Memory:
    """What this process takes beyond what it took before."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
        self._before = self._look("VmRSS")

    def most_mib(self) -> int:
        return (self._look("VmHWM") - self._before) // 1024

    def _look(self, name: str) -> int:
        [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name)]
        return int(line.split()[1])


async def measure(parent: Parent, url: str) -> dict[str, int]:
    """Each thing that is large, by its most MiB."""
    del parent
    most: dict[str, int] = {}
    async with open_store(url) as store:
        await store.append("warm", [NewEvent("t", b"x")])
        for size, count in ((MIB, 80), (60_000, 1_000)):
            data = bytes(size)
            for _ in range(count):
                await store.append(f"of {size}", [NewEvent("t", data)])
            memory = Memory()
            page = await store.read(f"of {size}", limit=10_000)
            most[f"page of events of {size} bytes"] = memory.most_mib()
            assert sum(len(event.data) for event in page) < MAX_PAGE_BYTES + 2 * size
            del page
        for name, count in (("one event", 1), ("10,000 events", 10_000)):
            events = [NewEvent("t", bytes((64 * MIB - 512) // count - (0 if count == 1 else 200)))] * count
            memory = Memory()
            await store.append(name, events)
            most[f"append of 64 MiB: {name}"] = memory.most_mib()
            memory = Memory()
            read = 0
            while page := await store.read(name, after=read):
                read = page[-1].seq
            del page
            most[f"read of 64 MiB: {name}"] = memory.most_mib()
    return most


def test_what_is_large_costs_some_times_its_size() -> None:
    most = alone(measure, Shared.url())
    print(most)
    for name, mib in most.items():
        if name.startswith("append"):
            assert mib < 6 * 64, name
        elif name.startswith("read"):
            assert mib < 5 * 64, name
        else:
            assert mib < 6 * MAX_PAGE_BYTES // MIB, name
