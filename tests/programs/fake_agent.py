"""A turn of any agent, recorded: no provider's stream, no key; `python fake_agent.py FILE` may run as often as one likes."""

import asyncio
import sys
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

from ledger import File, open_ledger

PIXEL = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


def model(question: str) -> Iterator[tuple[str, Any]]:
    yield "think", f"They ask: {question} I need the weather and the time."
    yield "call", ("weather", {"city": "Zürich"}, {"celsius": 20, "sky": None})
    yield "call", ("time", {"zone": "CET"}, "12:00")
    yield "say", "It is noon, "
    yield "say", "and 20 degrees."


async def main(path: str) -> None:
    async with open_ledger(path) as ledger, ledger.run("chat", model="fake", on_error="incomplete", wait=True) as run:
        await run.message("user", ["What is it like there?", File(data=PIXEL, media_type="image/png")], name="ada")
        results: list[tuple[str, Any]] = []
        for kind, said in model("What is it like there?"):
            if kind == "think":
                await run.reasoning(said)
            elif kind == "call":
                results.append((await run.tool_call(said[0], said[1]), said[2]))
            else:
                while results:
                    await run.tool_result(*results.pop(0))
                await run.text(said)
        await run.usage(input=120, output=40, reasoning=12)


asyncio.run(main(sys.argv[1]))
