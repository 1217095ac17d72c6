"""Recorded HTTP exchanges: which of them are conversations with a model, what was asked, and which formats they have."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote

from projector.formats.format import FormatError
from projector.formats.recordings.detection import detect
from projector.formats.registry import NAMED, READERS
from projector.formats.shared.fields import text_of_field
from projector.formats.shared.history import Loss
from projector.json_text import split

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from projector.formats.recordings.cassettes import Exchange
    from projector.formats.shared.history import History, HistoryMessage

OK: Final = range(200, 300)
_TRAIL: Final = re.compile(r"[?#]")


class Sent(NamedTuple):
    """An exchange with a model: its format, and what was said before the answer.

    `goes_on_from` is the provider's id of the answer that it goes on from without repeating what was said before.
    """

    name: str
    history: History
    exchange: Exchange
    goes_on_from: str | None = None


class Requests(NamedTuple):
    """The exchanges with a model, in their order, and what is said of the others."""

    sent: tuple[Sent, ...]
    losses: tuple[Loss, ...]


def read_requests(exchanges: Sequence[Exchange], skip: Callable[[FormatError], object] | None = None) -> Requests:
    """What was asked of models; whatever is no conversation with one (files, tokens, caches) is passed over and named.

    Raises `FormatError` for a request that can't be read, unless it is given to `skip`, and where nothing is one.
    """
    sent: list[Sent] = []
    passed: dict[str, list[str]] = {}
    for exchange in exchanges:
        try:
            found = _sent(exchange)
        except FormatError as error:
            if skip is None:
                raise
            skip(error)
            continue
        if isinstance(found, Sent):
            sent.append(found)
        else:
            passed.setdefault(found, []).append(exchange.place.removeprefix("interaction "))
    losses = tuple(Loss(f"interaction {', '.join(numbers)}: {why}") for why, numbers in passed.items())
    if not sent:
        told = "; ".join(loss.what for loss in losses[:3]) + ("; …" if len(losses) > 3 else "")
        raise FormatError("no exchange in it is a conversation with a model that is known" + (f" ({told})" if told else ""))
    return Requests(tuple(sent), losses)


def format_of(uri: str) -> str | None:
    """The format of what is sent to an address; None for one that is no conversation, or that takes several."""
    names = _formats_at(uri)
    return names[0] if len(names) == 1 else None


def read_whole(sent: Sent) -> tuple[HistoryMessage, ...] | None:
    """An answer that came whole and that its stream's adapter does not take."""
    body = sent.exchange.body
    if not NAMED[sent.name].reads_answers or sent.exchange.status not in OK or body.lstrip()[:1] != b"{":
        return None
    try:
        return next(READERS[sent.name](body.decode())).drafts
    except (FormatError, UnicodeDecodeError):
        return None


def _formats_at(uri: str) -> list[str]:
    path = unquote(_TRAIL.split(uri, maxsplit=1)[0])
    return [each.name for each in NAMED.values() if each.endpoint is not None and each.endpoint.search(path)]


def _address(uri: str) -> str:
    """Without what may be secret."""
    scheme, found, rest = _TRAIL.split(uri, maxsplit=1)[0].partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if found else scheme


def _sent(exchange: Exchange) -> Sent | str:
    """The exchange, or why it is passed over. Raises `FormatError` for one that is broken."""
    names, address = _formats_at(exchange.uri), _address(exchange.uri)
    if not names:
        return f"{address} takes no conversation that is known"
    if exchange.request is None:
        return f"what was sent to {address} is no JSON"
    looks = _looks_like(exchange.request)
    if len(names) > 1 and looks not in names:
        return f"what was sent to {address} is of no format that is known"
    name = looks if looks in names and len(names) > 1 else names[0]
    assert name is not None
    try:
        [history] = READERS[name](exchange.request)
    except FormatError as error:
        if looks != name:
            return f"what was sent to {address} is of no format that is known"
        raise FormatError(f"{exchange.place}, its request: {error}") from error
    field = NAMED[name].goes_on_from
    before = None if field is None else text_of_field(split(exchange.request), field)
    return Sent(name, history, exchange, before)


def _looks_like(request: str) -> str | None:
    try:
        return detect(request).name
    except FormatError:
        return None
