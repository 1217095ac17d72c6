"""The commands, each a thin shell over `Ledger`."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import anyio
import msgspec
import structlog
import typer

from ledger.admin.demo import run_demo
from ledger.admin.maintenance import backup, restore, stats, vacuum, verify
from ledger.admin.output import describe_message, event_record, make_console, make_table, print_json
from ledger.admin.play import play_recording
from ledger.admin.recordings import RecordingError, look_through
from ledger.admin.shell import AsJson, Conversation, Found, Settings, with_ledger
from ledger.errors import LedgerError
from projector import InvalidJson, present
from projector.formats import FormatError
from stream import StreamError
from stream import follow as follow_stream
from stream.limits import check_id

if TYPE_CHECKING:
    from ledger.ledger import Ledger

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def settings(
    context: typer.Context,
    data: Annotated[str, typer.Option(envvar="TAILFOLD_DATA", help="The database: a path or a URL.")] = "tailfold.db",
) -> None:
    """Tailfold keeps the conversations of AI agents as events: replay them, recover them, repair them."""
    context.obj = Settings(data)


@app.command()
def demo(
    *,
    as_json: AsJson = False,
    keep: Annotated[Path | None, typer.Option(help="Keep the database of the demo in this folder.")] = None,
) -> None:
    """Play a run, kill its process in the middle, recover it, compact it, and prove that nothing was lost."""
    if keep is not None:
        if keep.exists() and not keep.is_dir():
            raise ValueError(f"{keep} is no folder: name another one with --keep")
        keep.mkdir(parents=True, exist_ok=True)
        if (keep / "demo.db").exists():
            raise ValueError(f"{keep / 'demo.db'} exists: name another folder with --keep")
    if not anyio.run(run_demo, make_console(), keep, as_json):
        raise Found


@app.command()
def play(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A recorded stream: one chunk a line, gzipped or not.")],
    format_name: Annotated[str, typer.Option("--format", help="The provider's format: anthropic.")],
    conversation: Annotated[str, typer.Option(help="The conversation to play it into.")],
    rate: Annotated[float | None, typer.Option(help="Chunks a second; as fast as possible without.", min=0.001)] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Play a recorded stream as a live run, and commit it."""
    check_id("conversation id", conversation)
    recording = look_through(file, format_name)

    async def job(ledger: Ledger) -> None:
        run = await play_recording(ledger, recording, format_name, conversation, rate=rate, as_json=as_json)
        if not as_json:
            make_console().print(f"run {run.run_id}: {run.outcome}, {run.messages} messages, events {run.seq} to {run.end_seq}")
        if run.outcome != "completed":
            raise Found

    with_ledger(context, job, create=True)


@app.command()
def show(context: typer.Context, conversation: Conversation, *, as_json: AsJson = False) -> None:
    """Show the transcript of a conversation, and what open runs have said so far."""

    async def job(ledger: Ledger) -> None:
        messages = await ledger.transcript(conversation)
        open_runs = await ledger.open_runs(conversation)
        anomalies = await ledger.anomalies(conversation)
        if as_json:
            print_json(
                {
                    "conversation": conversation,
                    "messages": [present(message) for message in messages],
                    "open_runs": [
                        {"run_id": run.run_id, "seq": run.seq, "messages": [present(message) for message in run.messages]}
                        for run in open_runs
                    ],
                    "anomalies": [msgspec.to_builtins(anomaly) for anomaly in anomalies],
                }
            )
            return
        console = make_console()
        for message in messages:
            console.print(describe_message(message), soft_wrap=True)
        for run in open_runs:
            console.print(f"open run {run.run_id}, since event {run.seq}: not committed", style="bold red", markup=False)
            for message in run.messages:
                console.print(describe_message(message, note="  (not committed)"), soft_wrap=True)
        for anomaly in anomalies:
            console.print(f"event {anomaly.seq} could not be applied: {anomaly.why}", style="yellow", markup=False)

    with_ledger(context, job)


@app.command()
def events(
    context: typer.Context,
    conversation: Conversation,
    after: Annotated[int, typer.Option(help="Begin after this number.", min=0)] = 0,
    follow: Annotated[bool, typer.Option("--follow", help="Go on waiting for more.")] = False,  # noqa: FBT002 - a flag
    *,
    as_json: AsJson = False,
) -> None:
    """Print the events of a conversation, each once, in order."""

    async def job(ledger: Ledger) -> None:
        head = (await ledger.store.bounds(conversation)).head
        if not follow and after >= head:
            await ledger.open_runs(conversation)  # says so if there is no such conversation
            return
        async for event in follow_stream(ledger.store, conversation, after=after):
            if as_json:
                print_json(event_record(event))
            else:
                record = event_record(event)
                shown = record.get("data") or record["data_base64"]
                make_console().print(f"{event.seq:>8}  {event.type:<20} {shown}", markup=False, soft_wrap=True)
            if not follow and event.seq >= head:
                return

    with_ledger(context, job)


@app.command()
def runs(
    context: typer.Context,
    conversation: Annotated[str | None, typer.Argument(help="Only this conversation.")] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """List runs, open ones too."""

    async def job(ledger: Ledger) -> None:
        found = [run async for run in ledger.runs(conversation)]
        if as_json:
            print_json([msgspec.to_builtins(run) for run in found])
            return
        rows = [
            (run.conversation, run.run_id, run.status, run.outcome, run.messages, run.seq, run.end_seq, run.finish_reason)
            for run in found
        ]
        columns = ("conversation", "run", "status", "outcome", "messages", "from", "to", "reason")
        make_console().print(make_table("Runs", columns, rows))

    with_ledger(context, job)


@app.command()
def recover(
    context: typer.Context,
    run: Annotated[str, typer.Argument(help="The run's id.")],
    action: Annotated[Literal["commit", "fail", "cancel"], typer.Option(help="What becomes of it.")],
    conversation: Annotated[str | None, typer.Option(help="Its conversation, where several have such a run.")] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """End an open run whose writer is lost: keep what it has, its finished messages, or nothing."""
    check_id("run id", run)

    async def job(ledger: Ledger) -> None:
        found = await ledger.recover(conversation or await ledger.find_run(run), run, action)
        if as_json:
            print_json(msgspec.to_builtins(found))
            return
        how = f"recovered by {found.recovered}" if found.recovered else f"had ended as {found.outcome} before"
        make_console().print(f"run {found.run_id}: {found.status}, {how}, {found.messages} messages committed", markup=False)

    with_ledger(context, job)


@app.command()
def compact(
    context: typer.Context,
    conversation: Conversation,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,  # noqa: FBT002 - a flag
    replay_window: Annotated[int, typer.Option(help="Keep the last N events for clients.", min=0)] = 0,
    *,
    as_json: AsJson = False,
) -> None:
    """Let the log go as far as the ledger holds it; the transcript stays."""

    async def job(ledger: Ledger) -> None:
        done = await ledger.compact(conversation, replay_window=replay_window, dry_run=dry_run)
        if as_json:
            print_json({"conversation": conversation, "dry_run": dry_run} | done._asdict())
            return
        verb = "would go" if dry_run else "went"
        why = f", bound by {done.binds}" if done.binds else ""
        make_console().print(
            f"{done.floor - done.floor_before} events {verb}: the log keeps {done.floor + 1} to {done.head}{why}"
            if done.floor < done.head
            else f"{done.floor - done.floor_before} events {verb}: the log keeps none, its numbers go on at {done.head + 1}"
        )

    with_ledger(context, job)


for keeping in (verify, stats, backup, restore, vacuum):
    app.command()(keeping)


def run_app() -> int:
    """Runs the command line; returns the exit code: 0 done, 1 found something wrong, 2 could not be done."""
    structlog.configure(
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
    )
    try:
        app(standalone_mode=True)
    except Found:
        return 1
    except BrokenPipeError:
        return 0
    except (StreamError, LedgerError, FormatError, RecordingError, InvalidJson, ValueError, OSError) as error:
        sys.stderr.write(f"tailfold: {str(error).encode('ascii', 'backslashreplace').decode()}\n")
        return 2
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 2
    return 0
