"""What all commands share: options, exit codes, and a ledger that is open while one runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import anyio
import typer

from ledger.opening import open_ledger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ledger.ledger import Ledger

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Conversation = Annotated[str, typer.Argument(help="The conversation's id.")]


class Found(Exception):
    """Something wrong was found and told."""


class Settings(NamedTuple):
    """What the options before the command say."""

    data: str


def with_ledger(context: typer.Context, job: Callable[[Ledger], Awaitable[Any]], *, create: bool = False) -> None:
    """Runs `job(ledger)` on the database of `--data`, which must exist unless `create` is given."""

    async def main() -> None:
        async with open_ledger(context.obj.data, create=create) as ledger:
            await job(ledger)

    anyio.run(main)
