"""Ctrl-C while the command is still imported ends it, and shows nobody what was imported just then.

Whatever is imported here is imported before that. So `_signal`, which is there at once: `signal` makes enums of it.
"""

import _signal as signal  # type: ignore[import-not-found]  # it has no stub
import os
import sys

_SCRIPTS = ("tailfold", "tailfold.exe")
_MODULES = ("ledger", "ledger.admin")


def end_on_interrupt() -> bool:
    """From now on SIGINT ends this process at once, with 130; not, and False, where it is ignored or heard by somebody else.

    An exception would do that, too, but with a traceback, for whatever is imported may not catch it.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    return bool(signal.getsignal(signal.SIGINT) is _end)


def raise_on_interrupt() -> None:
    """From now on SIGINT is a `KeyboardInterrupt` again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def is_command() -> bool:
    """Whether this process was started as the command, and is no program that imports the library."""
    if not sys.argv:
        return False
    if sys.argv[0] == "-m":  # so it stands while Python looks for the module that is to be run
        return sys.orig_argv[-len(sys.argv)].removeprefix("-m") in _MODULES
    return os.path.basename(sys.argv[0]) in _SCRIPTS  # noqa: PTH119 - pathlib is one more import


def _end(*_: object) -> None:
    os._exit(128 + signal.SIGINT)
