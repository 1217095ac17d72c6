"""What all commands share: options, exit codes, and a ledger that is open while one runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from ledger.early_interrupt import end_on_interrupt
from ledger.errors import UnknownConversation, UnknownRun
from stream.checks import check_path
from stream.limits import MAX_RUN_ID_BYTES, check_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from ledger.ledger import Ledger

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Conversation = Annotated[str, typer.Argument(help="The conversation's id.", metavar="CONVERSATION")]
OneOrAll = Annotated[str | None, typer.Argument(help="The conversation's id, or --all.", metavar="[CONVERSATION]")]
All = Annotated[bool, typer.Option("--all", help="Every conversation.")]
ReadOnly = Annotated[bool, typer.Option("--read-only", help="Write nothing, neither to the files nor beside them.")]
RunId = Annotated[str, typer.Argument(help="The run's id.", metavar="RUN")]
Home = Annotated[
    str | None, typer.Option("--conversation", help="Its conversation, where several have such a run.", metavar="CONVERSATION")
]


def named_path(text: str | Path) -> Path:
    """A path of the command line: the empty one, as of a variable that is not set, would be the current folder."""
    try:
        return check_path("it", text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


class ProblemsFound(Exception):
    """Something wrong was found and told."""


class Settings(NamedTuple):
    """What the options of the whole program say."""

    data: str
    log: str | None
    read_only: bool | None = None
    """None: only where this user can't write."""


def with_ledger(
    context: typer.Context,
    job: Callable[[Ledger], Awaitable[Any]],
    *,
    create: bool = False,
    take_over_log: bool = False,
    fast_loop: bool = False,
    only_looks: bool = False,
) -> None:
    """Runs `job(ledger)` on the database of `--data`, which must exist unless `create` is given.

    With `fast_loop` in an event loop of uvloop, where that is installed. A command that `only_looks` leaves the files as they
    are with --read-only, and where they can't be written; any other is refused with --read-only.
    """
    end_on_interrupt()
    from ledger import open_ledger  # noqa: PLC0415 - with the rest of what help does not need
    from ledger.admin.loop import run_in_loop  # noqa: PLC0415
    from ledger.admin.output import leave_pipe  # noqa: PLC0415

    settings: Settings = context.obj
    read_only = is_read_only(settings) if only_looks else refuse_to_write(context)

    async def main() -> None:
        async with open_ledger(
            settings.data, log=settings.log, create=create, take_over_log=take_over_log, read_only=read_only
        ) as ledger:
            await job(ledger)

    try:
        run_in_loop(main, fast=fast_loop)
    except BrokenPipeError:
        leave_pipe()


def is_read_only(settings: Settings) -> bool:
    """Whether a command that looks must leave no trace: it was asked for, or this user can't write what SQLite would."""
    if settings.read_only is not None:
        return settings.read_only
    from stream.opening import MEMORY, sqlite_path  # noqa: PLC0415 - with the rest of what help does not need
    from stream.sqlite.place import can_be_written  # noqa: PLC0415
    from stream.urls import is_server  # noqa: PLC0415

    urls = [url for url in (settings.data, settings.log) if url is not None and url != MEMORY]
    files = [url for url in urls if not is_server(url)]
    return not all(map(can_be_written, map(sqlite_path, files)))


def refuse_to_write(context: typer.Context) -> Literal[False]:
    """For commands that change something. Raises `ValueError` with --read-only."""
    if context.obj.read_only:
        name = context.command_path.partition(" ")[2]
        raise ValueError(f"`{name}` would write, and --read-only is given: leave that out")
    return False


async def require(ledger: Ledger, conversation: str) -> None:
    """Raises `UnknownConversation` for one whose log has no event."""
    if not (await ledger.store.bounds(check_id("conversation id", conversation))).head:
        raise UnknownConversation(conversation)


async def home_of(ledger: Ledger, run_id: str, conversation: str | None) -> str:
    """The conversation of a run: the one that was named, or the only one that has such a run. Raises `UnknownRun`."""
    check_id("run id", run_id, max_bytes=MAX_RUN_ID_BYTES)
    if conversation is not None:
        return check_id("conversation id", conversation)
    try:
        return await ledger.find_run(run_id)
    except UnknownRun:
        homes = await ledger.tables.homes(run_id)
        if len(homes) < 2:
            raise
        named = ", ".join(repr(home) for home in homes[:3]) + (" …" if len(homes) > 3 else "")
        raise ValueError(f"{len(homes)} conversations have a run {run_id!r}: name one with --conversation ({named})") from None


def check_one_or_all(conversation: str | None, *, is_all: bool) -> None:
    """Raises `ValueError` unless one conversation is named, or all of them."""
    if is_all == (conversation is not None):
        raise ValueError(
            "name a conversation, or all of them with --all" if not is_all else "name a conversation or --all, not both"
        )


def check_text(what: str, text: str | None) -> None:
    """Raises `ValueError` for bytes of the command line that are no UTF-8."""
    try:
        (text or "").encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} {str(text)[:40]!r} is no UTF-8 text") from error
