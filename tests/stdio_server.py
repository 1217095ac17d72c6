"""A server that talks on its standard output, as those of the Model Context Protocol do: a line more there breaks it."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

from ledger import LedgerError, RunOpen, open_ledger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ledger import Ledger


async def remember(ledger: Ledger, text: str) -> str:
    async with ledger.run("notes") as run:
        await run.message("user", text)
        await run.text("noted")
    return run.run_id


async def break_off(ledger: Ledger, why: str) -> str:
    """A tool that fails in the middle of its run, and one whose stream is of another format than was said."""
    try:
        async with ledger.run("notes", format="anthropic") as run:
            await run.feed({"type": "message_start"})
            raise ConnectionError(why)
    except (ConnectionError, ValueError) as error:
        return type(error).__name__


async def recover(ledger: Ledger, text: str) -> str:
    left = await ledger.begin_run("notes")
    await left.text(text)
    await left.flush()
    try:
        await ledger.begin_run("notes")
    except RunOpen:
        await ledger.recover("notes", left.run_id, "commit")
    try:
        await left.text("too late")
        await left.flush()
    except LedgerError as error:
        return type(error).__name__
    return "nothing was refused"


async def tidy(ledger: Ledger, _: str) -> str:
    await ledger.compact("notes")
    await ledger.compact("notes")
    return ", ".join([finding.kind async for finding in ledger.reconcile(repair=True)])


async def forget(ledger: Ledger, conversation: str) -> str:
    return str((await ledger.erase(conversation)).events)


async def read(ledger: Ledger, conversation: str) -> str:
    return " ".join([block.text for message in await ledger.transcript(conversation) for block in message.blocks])


TOOLS: dict[str, Callable[[Ledger, str], Awaitable[str]]] = {
    "remember": remember, "break_off": break_off, "recover": recover, "tidy": tidy, "forget": forget, "read": read,
}  # fmt: skip
CALLS = (
    ("remember", "milk"), ("break_off", "the line is dead"), ("recover", "half"), ("read", "notes"), ("tidy", ""),
    ("read", "nowhere"), ("forget", "notes"), ("remember", "bread"), ("unheard", "of"),
)  # fmt: skip


async def answer(ledger: Ledger, request: dict[str, Any]) -> dict[str, Any]:
    name, text = request["params"]["name"], request["params"]["arguments"]["text"]
    told: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
    try:
        return told | {"result": {"content": [{"type": "text", "text": await TOOLS[name](ledger, text)}]}}
    except (KeyError, LedgerError) as error:
        return told | {"error": {"code": -32000, "message": f"{type(error).__name__}: {error}"}}


async def main() -> None:
    async with open_ledger(sys.argv[1]) as ledger:
        for line in sys.stdin:
            sys.stdout.write(json.dumps(await answer(ledger, json.loads(line))) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
