"""Conversations that could not be exported among all: told by their names, and no bar to the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ledger.admin.options import ProblemsFound
from ledger.admin.output import print_warning
from ledger.transfer.sinks import whole_or_nothing
from stream import StoreClosed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

T = TypeVar("T")


class Failed(NamedTuple):
    """A conversation that could not be exported."""

    conversation: str
    why: str


async def export_each(
    names: Sequence[str],
    write: Callable[[str], Any],
    one: Callable[[str, Callable[[str], Any]], Awaitable[T]],
    failed: list[Failed],
) -> list[T]:
    """Each conversation whole, or among those that `failed`: one that can't be written does not bar the others."""
    done = []
    for name in names:
        try:
            with whole_or_nothing(write) as take:
                made = await one(name, take)
        except (OSError, StoreClosed):  # there is no place to write to, or nothing to read any more
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is that is odd in there
            failed.append(Failed(name, str(error) or type(error).__name__))
        else:
            done.append(made)
    return done


def as_failed(failed: Sequence[Failed]) -> dict[str, Any]:
    """What is said for programs of conversations that were not exported."""
    return {"failed": [one._asdict() for one in failed]} if failed else {}


def end(failed: Sequence[Failed]) -> None:
    """Says on standard error what was not exported. Raises `ProblemsFound` where there is something."""
    for one in failed:
        print_warning(f"conversation {one.conversation!r} is not in the export: {one.why}")
    if failed:
        raise ProblemsFound
