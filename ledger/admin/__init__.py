"""The commands of an operator: inspect and repair what a program keeps. Rules of the ledger must not live here."""

import gc
import signal
import sys

from ledger.admin import imports_at_rest
from ledger.early_interrupt import end_on_interrupt
from stream.extras import MissingExtra, needs


def main() -> None:
    """The command `tailfold`."""
    end_on_interrupt()
    imports_at_rest.begin()
    try:
        with needs("admin", "tailfold"):
            from ledger.admin.app import run_app  # noqa: PLC0415 - the extra may be missing
    except MissingExtra as error:
        sys.stderr.write(f"tailfold: {error}\n")
        sys.exit(2)
    try:
        code = run_app()
        gc.freeze()  # the interpreter looks once more at its end, which takes longer than most commands
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except RuntimeError as error:  # as which some of what is imported raises it
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        code = 128 + signal.SIGINT
    end_on_interrupt()
    sys.exit(code)


__all__ = ["main"]
