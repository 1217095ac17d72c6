"""A process that writes a run slowly into a file and says so: a word every few milliseconds; it may wait for a line."""

from __future__ import annotations

import asyncio
import sys

from ledger import open_ledger


async def produce(path: str, conversation: str, words: int, pause_ms: int, waits_at: int = -1) -> None:
    async with open_ledger(path) as ledger, ledger.run(conversation, run_id="slow", flush_ms=0) as run:
        await run.message("user", "count")
        for number in range(words):
            if number == waits_at:
                await asyncio.to_thread(sys.stdin.readline)
            await run.text(f"word{number} ")
            await run.flush()
            print(number, flush=True)
            await asyncio.sleep(pause_ms / 1000)


if __name__ == "__main__":
    asyncio.run(produce(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])))
