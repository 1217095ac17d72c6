"""The commands of an operator: inspect and repair what a program keeps. Rules of the ledger must not live here."""

import gc
import sys

from stream.extras import MissingExtra, needs


def main() -> None:
    """The command `tailfold`."""
    gc.set_threshold(100_000, 50, 100)  # what is imported stays, and need not be looked through again and again
    try:
        with needs("admin", "tailfold"):
            from ledger.admin.app import run_app  # noqa: PLC0415 - the extra may be missing
    except MissingExtra as error:
        sys.stderr.write(f"tailfold: {error}\n")
        sys.exit(2)
    except KeyboardInterrupt:  # before anything was begun
        sys.exit(130)
    code = run_app()
    gc.freeze()  # nor is it at the end, where that takes longer than most commands
    sys.exit(code)


__all__ = ["main"]
