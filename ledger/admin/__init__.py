"""The commands of an operator: inspect and repair what a program keeps. Rules of the ledger must not live here."""

import gc
import sys

from ledger.admin import imports_at_rest
from stream.extras import MissingExtra, needs


def main() -> None:
    """The command `tailfold`."""
    imports_at_rest.begin()
    try:
        with needs("admin", "tailfold"):
            from ledger.admin.app import run_app  # noqa: PLC0415 - the extra may be missing
    except MissingExtra as error:
        sys.stderr.write(f"tailfold: {error}\n")
        sys.exit(2)
    except KeyboardInterrupt:  # before anything was begun
        sys.exit(130)
    code = run_app()
    gc.freeze()  # the interpreter looks once more at its end, which takes longer than most commands
    sys.exit(code)


__all__ = ["main"]
