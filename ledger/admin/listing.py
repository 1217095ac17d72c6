"""The commands that look at conversations: `conversations`, `runs`, `show`, `events`."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads it at run time
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

import typer

from ledger.admin.erased import print_erased, told_of_erased
from ledger.admin.json_shapes import of_conversation, of_run
from ledger.admin.log_events import print_events
from ledger.admin.options import AsJson, Conversation, ProblemsFound, check_text, named_path, with_ledger
from ledger.admin.output import columns_of_terminal, moment, print_json, print_line, print_warning
from ledger.admin.remote import print_remote
from ledger.admin.tables import Rows, print_rows
from ledger.admin.transcripts import OfLog, print_transcript
from ledger.errors import LedgerBehind, LedgerDiverged
from ledger.listings import BEGIN, STATUSES
from ledger.pages import read_cursor, read_page, read_page_of_runs, read_run_cursor
from ledger.tables.conversations import Page
from stream import CorruptEvent
from stream.limits import check_id

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ledger.ledger import Ledger
    from ledger.records import ConversationInfo, RunInfo

T = TypeVar("T")
_A_SCREEN: Final = 50
Status = Literal["open", "created", "streaming", "committed", "superseded", "failed", "cancelled"]

Limit = Annotated[int | None, typer.Option(help="At most so many; all of them without, but 50 on a terminal.", min=1)]
After = Annotated[str | None, typer.Option(help="The next page: what the one before ended with.", metavar="CURSOR")]
Select = Annotated[
    list[str] | None,
    typer.Option(help="Another turn at a fork; no parent for the first message.", metavar="PARENT=CHILD"),
]


def conversations(
    context: typer.Context,
    limit: Limit = None,
    after: After = None,
    prefix: Annotated[str, typer.Option(help="Only ids that begin so.")] = "",
    label: Annotated[str | None, typer.Option(help="Only those with this label.")] = None,
    title: Annotated[str | None, typer.Option(help="Only those with this in their title.", metavar="TEXT")] = None,
    archived: Annotated[bool, typer.Option("--archived", help="Those that are archived, too.")] = False,  # noqa: FBT002 - a flag
    *,
    as_json: AsJson = False,
) -> None:
    """List conversations, newest activity first."""
    begin = None if after is None else _begin(after, read_cursor)
    for name, text in (("--prefix", prefix), ("--label", label), ("--title", title)):
        check_text(name, text)

    async def job(ledger: Ledger) -> None:
        wanted = Page(begin, limit or _a_screen(as_json=as_json), archived, prefix, label, title)
        shown, cursor = await read_page(ledger.engine, wanted)
        if as_json:
            print_json({"conversations": [of_conversation(info) for info in shown], "next": cursor})
            return
        cells = [
            (info.conversation, _title(info), moment(info.active_at), info.runs, info.messages, ", ".join(_marks(info)))
            for info in shown
        ]
        columns = ("conversation", "title", "last active (UTC)", "runs", "messages", "labels")
        print_rows(Rows("", columns, cells, prose=("title", "labels")), without="there are no conversations")
        _print_next(cursor)

    with_ledger(context, job, only_looks=True)


def runs(
    context: typer.Context,
    conversation: Annotated[str | None, typer.Argument(help="Only this conversation.")] = None,
    status: Annotated[Status | None, typer.Option(help=f"Only these: {', '.join(STATUSES)}.", metavar="STATUS")] = None,
    limit: Limit = None,
    after: After = None,
    *,
    as_json: AsJson = False,
) -> None:
    """List runs by conversation and start, open ones too."""
    begin = BEGIN if after is None else _begin(after, read_run_cursor)
    if conversation is not None and begin[0] not in ("", conversation):
        raise ValueError(f"--after goes on behind a run of conversation {begin[0]!r}: name that one, or none, as before")

    async def job(ledger: Ledger) -> None:
        wanted = limit or _a_screen(as_json=as_json)
        found, cursor = await read_page_of_runs(ledger.engine, conversation, status=status, after=begin, limit=wanted)
        if as_json:
            print_json({"runs": [of_run(run) for run in found], "next": cursor})
            return
        await print_erased(ledger, conversation)
        cells = [
            (run.conversation, run.run_id, _state(run), moment(run.started_at), run.model, run.messages, run.seq, run.end_seq)
            for run in found
        ]
        columns = ("conversation", "run", "status", "started (UTC)", "model", "messages", "from event", "to event")
        print_rows(Rows("", columns, cells), without="there are no such runs" if status or after else "there are no runs")
        _print_next(cursor)

    with_ledger(context, job, only_looks=True)


def show(
    context: typer.Context,
    conversation: Conversation,
    branch: Annotated[Literal["active", "all"], typer.Option(help="The active path, or every message there is.")] = "active",
    select: Select = None,
    before: Annotated[str | None, typer.Option(help="Only what comes ahead of this message.", metavar="ID")] = None,
    limit: Annotated[int | None, typer.Option(help="Only the last N messages.", min=0, metavar="N")] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show the transcript of a conversation, and what open runs have said so far."""
    if select and branch == "all":
        raise ValueError("--branch all shows every turn: leave --select out")

    async def job(ledger: Ledger) -> None:
        selections = await read_selections(ledger, conversation, select or ())
        messages = await ledger.transcript(conversation, branch=branch, selections=selections, before=before, limit=limit)
        try:
            of_log = OfLog(await ledger.open_runs(conversation), await ledger.anomalies(conversation))
        except (LedgerBehind, LedgerDiverged, CorruptEvent) as error:  # what is committed can be read all the same
            await print_transcript(ledger, conversation, messages, None, as_json=as_json)
            print_warning(f"tailfold: {error}")
            raise ProblemsFound from error
        await print_transcript(ledger, conversation, messages, of_log, as_json=as_json)

    with_ledger(context, job, only_looks=True)


def events(
    context: typer.Context,
    conversation: Conversation,
    after: Annotated[int, typer.Option(help="Begin after this number.", min=0)] = 0,
    follow: Annotated[bool, typer.Option("--follow", help="Go on waiting for more.")] = False,  # noqa: FBT002 - a flag
    url: Annotated[
        str | None, typer.Option(help="Of `tailfold serve`, in place of --data; with --follow.", metavar="URL")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="Holds the bearer token for --url.", parser=named_path, metavar="PATH")
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Print the events of a conversation, each once, in order; where a part of its log is gone, what there is, and say so."""
    if url is not None:
        if not follow:
            raise ValueError("--url is for following: add --follow")
        print_remote(url, check_id("conversation id", conversation), after=after, token_file=token_file, as_json=as_json)
        return
    if token_file is not None:
        raise ValueError("--token-file is for --url: name the server too")

    async def job(ledger: Ledger) -> None:
        await print_events(ledger, conversation, after=after, follow=follow, as_json=as_json)

    with_ledger(context, job, only_looks=True)


async def read_selections(ledger: Ledger, conversation: str, words: Sequence[str]) -> dict[str, str]:
    """`PARENT=CHILD` as the tree has it, for ids may hold `=` themselves. Raises `ValueError` for what it does not have."""
    parents = {node.id: node.parent_id or "" for node in (await ledger.tree(conversation)).nodes} if words else {}
    found: dict[str, str] = {}
    for word in words:
        cuts = [(word[:at], word[at + 1 :]) for at, sign in enumerate(word) if sign == "="]
        pairs = [(parent, child) for parent, child in cuts if parents.get(child) == parent]
        if not pairs:
            why = "no such message follows another one" if cuts else "PARENT=CHILD was expected"
            raise ValueError(f"--select {word!r}: {why}: `tailfold tree {conversation}` shows the forks")
        found |= dict(pairs)
    return found


def _a_screen(*, as_json: bool) -> int | None:
    """Whoever reads all of it, reads all of it."""
    return _A_SCREEN if columns_of_terminal() is not None and not as_json else None


def _begin(cursor: str, read: Callable[[str], T]) -> T:
    try:
        return read(cursor)
    except ValueError as error:
        raise ValueError(f"--after {error}") from error


def _print_next(cursor: str | None) -> None:
    if cursor is not None:
        print_line("")
        print_line(f"there are more: add --after {cursor}")


def _title(info: ConversationInfo) -> str | None:
    """Of one that was erased, what there was of it."""
    return info.title if info.erased is None else " ".join(filter(None, (info.title, f"({told_of_erased(info.erased)})")))


def _marks(info: ConversationInfo) -> list[str]:
    marks: list[Any] = ["erased"] if info.erased is not None else []
    return [*marks, *(["archived"] if info.archived else []), *info.labels]


def _state(run: RunInfo) -> str:
    """Its status, and why it ended so, where that says more."""
    why = run.finish_reason or (f"recovered by {run.recovered}" if run.recovered else run.outcome)
    return run.status if why in (None, run.status, "completed", "end_turn", "stop") else f"{run.status} ({why})"
