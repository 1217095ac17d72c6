"""The commands that change a conversation: `select`, `describe`, `cancel`, `recover`, `erase`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
import typer

from ledger.admin.json_shapes import of_conversation, of_run
from ledger.admin.options import (
    AsJson,
    Conversation,
    Home,
    ProblemsFound,
    RunId,
    home_of,
    refuse_to_write,
    require,
    with_ledger,
)
from ledger.admin.output import counted, print_json, print_line, progress
from ledger.errors import UnknownConversation, UnknownRun
from ledger.signs import one_line
from stream.limits import check_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.ledger import Ledger
    from projector import Message

_SHOWN: Final = 5
_SHOWN_CHARACTERS: Final = 40
_LIKE: Final = {"completed": "commit", "incomplete": "commit", "failed": "fail"}
"""The action that does with a run what its own end has done."""


def select(
    context: typer.Context,
    conversation: Conversation,
    message: Annotated[str, typer.Argument(help="A committed message; the path through it becomes the active one.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Follow another turn at the forks of a conversation, until a later one is committed there."""
    check_id("message id", message)

    async def job(ledger: Ledger) -> None:
        await ledger.select(conversation, message)
        leaf = (await ledger.tables.position(conversation)).leaf
        if as_json:
            print_json({"conversation": conversation, "message_id": message, "leaf": leaf})
            return
        print_line(f"{conversation}: the active path goes through {message} and ends at {leaf}")

    with_ledger(context, job)


def describe(
    context: typer.Context,
    conversation: Conversation,
    title: Annotated[str | None, typer.Option(help="Its title.")] = None,
    label: Annotated[list[str] | None, typer.Option(help="Its labels, instead of those it has; '' for none.")] = None,
    archive: Annotated[bool | None, typer.Option(help="Out of the way in listings, or back again.")] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Say what a list of conversations shows of this one."""
    if title is None and not label and archive is None:
        raise ValueError("there is nothing to change: use --title, --label, --archive or --no-archive")
    labels = None if not label else [text for text in label if text]

    async def job(ledger: Ledger) -> None:
        await require(ledger, conversation)
        await ledger.describe(conversation, title=title, labels=labels, archived=archive)
        info = await ledger.tables.conversation(conversation)
        if info is None:
            raise UnknownConversation(conversation)
        if as_json:
            print_json(of_conversation(info))
            return
        state = "archived" if info.archived else "not archived"
        told = f"title {info.title!r}, labels {', '.join(info.labels) or 'none'}, {state}"
        print_line(f"{conversation}: {told}")

    with_ledger(context, job)


def cancel(
    context: typer.Context,
    run: RunId,
    conversation: Home = None,
    by: Annotated[str | None, typer.Option(help="Who asks.")] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Ask the program that writes a run to stop; it ends the run itself."""

    async def job(ledger: Ledger) -> None:
        home = await home_of(ledger, run, conversation)
        is_asked = await ledger.cancel(home, run, by=by)
        found = await ledger.tables.run(home, run)
        if found is None:
            raise UnknownRun(run)
        if as_json:
            print_json({"conversation": home, "run_id": run, "is_asked": is_asked, "outcome": found.outcome})
            return
        how = "is asked to stop" if is_asked else f"had ended as {found.outcome} before"
        print_line(f"run {run}: {how}")

    with_ledger(context, job)


def recover(
    context: typer.Context,
    run: RunId,
    action: Annotated[Literal["commit", "fail", "cancel"], typer.Option(help="What becomes of it.")],
    conversation: Home = None,
    select: Annotated[bool, typer.Option("--select", help="Make its last message the active leaf.")] = False,  # noqa: FBT002 - a flag
    is_sure: Annotated[bool, typer.Option("--yes", help="Do not ask before `cancel`.")] = False,  # noqa: FBT002 - a flag
    *,
    as_json: AsJson = False,
) -> None:
    """End an open run whose writer is lost: keep what it has, its finished messages, or nothing, not the user's either."""
    if action == "cancel" and not is_sure and sys.stdin.isatty():
        _ask_to_take_away(context, run, conversation)

    async def job(ledger: Ledger) -> None:
        home = await home_of(ledger, run, conversation)
        said = await _said_by(ledger, home, run)
        found = await ledger.recover(home, run, action, select=select)
        is_ours = said is not None and found.recovered == action
        if as_json:
            print_json(of_run(found))
        elif is_ours:
            print_line(f"run {run}: {found.status}, recovered by {action}, {counted(found.messages, 'message')} committed")
            if said and action == "cancel":
                print_line(f"not in the transcript any more, but in the log until it is compacted: {_told(said)}")
        else:
            how = f"been recovered by {found.recovered}" if found.recovered else f"ended as {found.outcome}"
            print_line(f"run {run}: had {how} before, {counted(found.messages, 'message')} committed; nothing was changed")
        if not is_ours and action != (found.recovered or _LIKE.get(found.outcome or "")):
            raise ProblemsFound

    with_ledger(context, job)


def _ask_to_take_away(context: typer.Context, run: str, conversation: str | None) -> None:
    """Returns if a person says yes, or there is nothing to take away. Raises `ValueError` otherwise."""
    said: list[Message] = []

    async def look(ledger: Ledger) -> None:
        said.extend(await _said_by(ledger, await home_of(ledger, run, conversation), run) or ())

    with_ledger(context, look)
    if said and not _confirm(f"Take away what run {run!r} has said, {_told(said)}?"):
        raise ValueError(f"run {run!r} is open as before: --action commit keeps what it has said")


async def _said_by(ledger: Ledger, conversation: str, run_id: str) -> list[Message] | None:
    """What a run has said so far; None of one that has ended."""
    return next((run.messages for run in await ledger.open_runs(conversation) if run.run_id == run_id), None)


def _told(messages: Sequence[Message]) -> str:
    """Messages in a line: how many there are, and how the first ones begin."""
    shown = []
    for message in messages[:_SHOWN]:
        text = " ".join(message.text[: 4 * _SHOWN_CHARACTERS].split())
        text = text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"
        shown.append(f"{message.role} {text!r}" if text else f"{message.role} [{', '.join(b.kind for b in message.blocks)}]")
    more = f" and {len(messages) - _SHOWN} more" if len(messages) > _SHOWN else ""
    return f"{len(messages)} message{'s' if len(messages) > 1 else ''} ({'; '.join(shown)}{more})"


def erase(
    context: typer.Context,
    conversations: Annotated[list[str], typer.Argument(metavar="CONVERSATION...", help="Their ids.")],
    is_sure: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,  # noqa: FBT002 - a flag
    *,
    as_json: AsJson = False,
) -> None:
    """Take everything of conversations away for good: log, snapshots, transcript, media. Ids and counts stay.

    All at once write the file anew only once.
    """
    names = list(dict.fromkeys(check_id("conversation id", name) for name in conversations))
    told = ", ".join(map(repr, names))
    if not is_sure and not sys.stdin.isatty():
        raise ValueError(f"to erase {told} for good somebody must say so: use --yes where nobody can be asked")

    refuse_to_write(context)
    if not is_sure:  # not inside the event loop, which would keep Ctrl-C to itself until there is an answer
        _ask(context, names)

    async def job(ledger: Ledger) -> None:
        with progress(f"erasing {told if len(names) == 1 else f'{len(names)} conversations'}"):
            done = [await ledger.erase(names[0])] if len(names) == 1 else await ledger.erase(names[0], names[1], *names[2:])
        if as_json:
            print_json(msgspec.to_builtins(done if len(names) > 1 else done[0]))
        else:
            for one in done:
                said = f"{counted(one.messages, 'message')} in {counted(one.runs, 'run')}"
                print_line(f"{one.conversation}: {said} and {counted(one.events, 'event')} are gone")
        if not done[0].is_proven:  # they share the file
            if not as_json:
                print_line(f"but not from the file yet: {done[0].why}", "bold red")
            raise ProblemsFound
        if done[0].why is not None and not as_json:
            print_line(done[0].why)

    with_ledger(context, job)


def _ask(context: typer.Context, names: Sequence[str]) -> None:
    """Returns if a person says yes. Raises `ValueError` otherwise."""
    told, held = ", ".join(map(repr, names)), [0, 0]

    async def look(ledger: Ledger) -> None:
        for name in names:
            await ledger.transcript(name, limit=0)  # catches up, as far as that goes
            info = await ledger.tables.conversation(name)
            if info is not None:
                held[0] += info.messages
                held[1] += info.runs

    with_ledger(context, look)
    said = f"{counted(held[0], 'message')} in {counted(held[1], 'run')}"
    what = "conversation" if len(names) == 1 else f"{len(names)} conversations"
    if not _confirm(f"Erase {what} {told}, {said}, for good?"):
        raise ValueError(f"nothing of {told} was erased")


def _confirm(question: str) -> bool:
    try:
        return typer.confirm(one_line(question), err=True)
    except typer.Abort:
        return False
