"""The commands, each a thin shell over `Ledger`."""

from __future__ import annotations

from typing import Annotated

import typer

from ledger.admin.commands import Program
from ledger.admin.options import ProblemsFound, ReadOnly, Settings
from ledger.admin.program import NAMES_OF_HELP, Version
from ledger.admin.standard_error import guard_standard_error, print_failure, tell_errors

app = typer.Typer(
    cls=Program,
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help is there at once, and can be searched
    pretty_exceptions_enable=False,
    context_settings=NAMES_OF_HELP,
)


@app.callback()
def settings(
    context: typer.Context,
    data: Annotated[
        str, typer.Option(envvar="TAILFOLD_DATA", help="The database: a path or a URL.", metavar="PATH_OR_URL")
    ] = "tailfold.db",
    log: Annotated[
        str | None, typer.Option(envvar="TAILFOLD_LOG", help="The log, where it lies elsewhere.", metavar="PATH_OR_URL")
    ] = None,
    read_only: ReadOnly = False,  # noqa: FBT002 - a flag
    version: Version = False,  # noqa: ARG001, FBT002 - a flag, whose callback prints
) -> None:
    """Tailfold keeps the conversations of AI agents as events: replay them, recover them, repair them."""
    context.obj = Settings(data, log, read_only or None)


def run_app() -> int:
    """Runs the command line; returns the exit code: 0 done, 1 found something wrong, 2 could not be done."""
    tell_errors(guard_standard_error())
    try:
        app(standalone_mode=True)
    except ProblemsFound:
        return 1
    except BrokenPipeError:
        return 0
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 2
    except _foreseen() as error:
        print_failure(error)
        return 2
    return 0


def _foreseen() -> tuple[type[BaseException], ...]:
    """The errors that say what to do; asked for when there is one, and so what raised it is loaded."""
    from ledger.errors import LedgerError  # noqa: PLC0415
    from projector import InvalidJson  # noqa: PLC0415
    from projector.formats import FormatError  # noqa: PLC0415
    from stream import StreamError  # noqa: PLC0415
    from stream.extras import MissingExtra  # noqa: PLC0415

    return MissingExtra, StreamError, LedgerError, FormatError, InvalidJson, ValueError, OSError
