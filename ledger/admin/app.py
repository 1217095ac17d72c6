"""The commands, each a thin shell over `Ledger`."""

from __future__ import annotations

import logging
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import anyio
import structlog
import typer

from ledger.admin.compaction import compact, snapshot
from ledger.admin.context import context
from ledger.admin.demo import run_demo
from ledger.admin.editing import cancel, describe, erase, recover, select
from ledger.admin.exporting import export
from ledger.admin.history import history_app, limits_app
from ledger.admin.importing import import_
from ledger.admin.listing import conversations, events, runs, show
from ledger.admin.long_work import stoppable
from ledger.admin.maintenance import backup, restore, stats, vacuum
from ledger.admin.options import AsJson, ProblemsFound, ReadOnly, Settings, refuse_to_write, with_ledger
from ledger.admin.output import guard_standard_error, make_console, print_line, print_warning
from ledger.admin.play import Playing, play_recording
from ledger.admin.serving import serve
from ledger.admin.sql import sql
from ledger.admin.tree import tree
from ledger.admin.verifying import reconcile, verify
from ledger.errors import LedgerError
from ledger.kinds import check_conversation_id
from ledger.transfer.sources import AUTO, look_through
from projector import InvalidJson
from projector.formats import STREAMS, FormatError
from stream import StreamError

if TYPE_CHECKING:
    from ledger.ledger import Ledger

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def settings(
    context: typer.Context,
    data: Annotated[str, typer.Option(envvar="TAILFOLD_DATA", help="The database: a path or a URL.")] = "tailfold.db",
    log: Annotated[str | None, typer.Option(envvar="TAILFOLD_LOG", help="The log, where it lies elsewhere.")] = None,
    read_only: ReadOnly = False,  # noqa: FBT002 - a flag
) -> None:
    """Tailfold keeps the conversations of AI agents as events: replay them, recover them, repair them."""
    context.obj = Settings(data, log, read_only or None)


@app.command()
def demo(
    context: typer.Context,
    *,
    as_json: AsJson = False,
    keep: Annotated[Path | None, typer.Option(help="Keep the database of the demo in this folder.")] = None,
) -> None:
    """Play a run, kill its process in the middle, recover it, compact it, and prove that nothing was lost."""
    refuse_to_write(context)
    if keep is not None:
        if keep.exists() and not keep.is_dir():
            raise ValueError(f"{keep} is no folder: name another one with --keep")
        keep.mkdir(parents=True, exist_ok=True)
        if (keep / "demo.db").exists():
            raise ValueError(f"{keep / 'demo.db'} exists: name another folder with --keep")
    if not anyio.run(run_demo, make_console(), keep, as_json):
        raise ProblemsFound


@app.command()
def play(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A recorded stream: server-sent events, or one event a line; gzipped or not.")],
    conversation: Annotated[str, typer.Option(help="The conversation to play it into.")],
    format_name: Annotated[str, typer.Option("--format", help=f"Its format: {', '.join(STREAMS)}.")] = AUTO,
    rate: Annotated[float | None, typer.Option(help="Chunks a second; as fast as possible without.", min=0.001)] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Play a recorded stream as a live run, and commit it. `cancel`, Ctrl-C and SIGTERM stop it, and what was said is kept."""
    check_conversation_id(conversation)
    recording = look_through(file, format_name)

    playing = Playing()

    async def job(ledger: Ledger) -> None:
        run = await play_recording(ledger, recording, conversation, rate=rate, as_json=as_json, playing=playing)
        if not as_json:
            print_line(f"run {run.run_id}: {run.outcome}, {run.messages} messages, events {run.seq} to {run.end_seq}")
        if run.outcome != "completed" and playing.stopped_by != "SIGTERM":
            raise ProblemsFound

    with stoppable(lambda: str(playing)):
        with_ledger(context, job, create=True)
    if playing.stopped_by == "SIGTERM":
        raise SystemExit(128 + signal.SIGTERM)


for command in (
    conversations, runs, show, tree, context, events, select, describe, cancel, recover, compact, snapshot, export, import_,
    verify, reconcile, stats, backup, restore, vacuum, erase, sql, serve,
):  # fmt: skip
    app.command(command.__name__.rstrip("_"))(command)
app.add_typer(history_app, name="history")
app.add_typer(limits_app, name="limits")


def run_app() -> int:
    """Runs the command line; returns the exit code: 0 done, 1 found something wrong, 2 could not be done."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.dev.ConsoleRenderer(  # the other formatter shows what variables hold: bodies, tickets
                colors=False, exception_formatter=structlog.dev.plain_traceback
            ),
        ],
        logger_factory=structlog.PrintLoggerFactory(guard_standard_error()),
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
    )
    try:
        app(standalone_mode=True)
    except ProblemsFound:
        return 1
    except BrokenPipeError:
        return 0
    except (StreamError, LedgerError, FormatError, InvalidJson, ValueError, OSError) as error:
        print_warning(f"tailfold: {error}")
        return 2
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 2
    return 0
