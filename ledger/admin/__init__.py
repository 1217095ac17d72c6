"""The commands of an operator: inspect and repair what a program keeps. Rules of the ledger must not live here."""

import sys


def main() -> None:
    """The command `tailfold`."""
    try:
        from ledger.admin.app import run_app  # noqa: PLC0415 - the extra may be missing
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.stderr.write(f"tailfold: the commands need {error.name}: pip install 'tailfold[admin]'\n")
        sys.exit(2)
    except KeyboardInterrupt:  # before anything was begun
        sys.exit(130)
    sys.exit(run_app())


__all__ = ["main"]
