"""A case of the contract: a claim about a store, by the laws it belongs to."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from stream.store import EventStore
    from stream.testing.backend import Backend, Flag

Claim = Callable[..., Awaitable[None]]
Begin = Callable[["Backend"], Awaitable["EventStore"]]


class Case(NamedTuple):
    """`laws` are those of DESIGN §3; `needs` the flags without which a backend can't be asked."""

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
