"""A case of the contract: a claim about a store, by the laws it belongs to."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from stream.store import EventStore
    from stream.testing.backend import Backend, Flag

Claim = Callable[..., Awaitable[None]]
Begin = Callable[["Backend"], Awaitable["EventStore"]]


class Case(NamedTuple):
    """`laws` are the numbers of those it belongs to, see `LAWS`; `needs` the flags without which a backend can't be asked."""

    name: str
    laws: tuple[int, ...]
    needs: frozenset[Flag]
    claim: Claim
    begin: Begin
    arguments: Mapping[str, object]

    async def run(self, backend: Backend) -> None:
        """Raises `AssertionError`, or what the store raised, where the claim does not hold."""
        wanted = inspect.signature(self.claim).parameters
        arguments: dict[str, Any] = dict(self.arguments)
        if "store" in wanted:
            arguments["store"] = await self.begin(backend)
        if "backend" in wanted:
            arguments["backend"] = backend
        await self.claim(**arguments)


LAWS: Final[Mapping[int, str]] = {
    1: "what was acknowledged is there; a cancelled call is whole or absent",
    2: "numbers start at 1, have no gaps and are never used again",
    3: "a retry is safe: it is answered, not stored again, and a writer that was replaced is fenced",
    5: "order is by number, never by time, and a snapshot never goes backwards",
    6: "the floor only rises, and nothing depends on how far what lies below it is swept",
    7: "the last base of a truncated stream is never lost",
    8: "a reader that can't go on is told so, it never jumps",
    9: "a follower sees each number once, in order",
    11: "a producer has one order of its own, and one epoch",
    13: "memory does not depend on the length of a stream",
    14: "a payload is kept exactly, or refused by name",
    16: "a store works or refuses at once where it was not opened: in another event loop, in a forked process",
}
"""What the cases speak of, by number."""

CASES: list[Case] = []
"""All cases of the contract, once `stream.testing.contract` is imported."""


async def _open(backend: Backend) -> EventStore:
    return await backend.open()


def case(
    *laws: int,
    needs: AbstractSet[Flag] = frozenset(),
    each: Mapping[str, Sequence[object]] | None = None,
    begin: Begin = _open,
) -> Callable[[Claim], Claim]:
    """Makes a case of a function that takes `store`, `backend`, or both; with `each` one for all combinations."""

    def collect(claim: Claim) -> Claim:
        varied = each or {}
        combinations = list(itertools.product(*varied.values()))
        for number, values in enumerate(combinations):
            name = claim.__name__ if len(combinations) == 1 else f"{claim.__name__}[{number}]"
            CASES.append(Case(name, laws, frozenset(needs), claim, begin, dict(zip(varied, values, strict=True))))
        return claim

    return collect
