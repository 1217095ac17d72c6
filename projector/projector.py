"""A projector: a fold with a name, and how its state is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from stream import Event

S = TypeVar("S")


class Projector(NamedTuple, Generic[S]):
    """How events become a state.

    `fold(state, event)` is pure and never raises on an event; `decode(encode(state)) == state`. `upcast` maps an
    older `version` to what turns the bytes of its state into those of the next version. A changed fold gets a new
    version: a snapshot of another version that can't be brought up is not folded on. `keeps` are types of events, beside
    those of the vocabulary, that the state holds all of: compaction lets them go once a snapshot of it was read back.
    """

    name: str
    version: int
    initial: S
    fold: Callable[[S, Event], S]
    encode: Callable[[S], bytes]
    decode: Callable[[bytes], S]
    upcast: Mapping[int, Callable[[bytes], bytes]] = {}
    keeps: Collection[str] = ()
