"""Recorded HTTP exchanges as conversations: what was sent to a model last, and what it answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from projector.formats.format import FormatError
from projector.formats.registry import FORMATS, NAMED, READERS
from projector.json_text import dump

if TYPE_CHECKING:
    from collections.abc import Sequence

    from projector.formats.recordings.cassettes import Exchange
    from projector.formats.shared.history import History, HistoryMessage

_OK: Final = range(200, 300)


class _Sent(NamedTuple):
    """A request, what it said before the answer, and the answer."""

    history: History
    said: tuple[str, ...]
    name: str
    exchange: Exchange


def read_exchanges(exchanges: Sequence[Exchange]) -> list[tuple[History, list[tuple[str, bytes, str]]]]:
    """The conversations in exchanges: each history that no later request goes on from, with its answers.

    An answer is its format, its body and its place; several answers to the same history are branches of it. Whatever is
    no conversation (files, tokens, caches) is passed over. Raises `FormatError` where nothing is one.
    """
    sent = [made for exchange in exchanges if (made := _sent(exchange)) is not None]
    if not sent:
        raise FormatError("no exchange in it is a conversation with a model that is known")
    found: list[tuple[_Sent, list[_Sent]]] = []
    for at, one in enumerate(sent):
        if any(len(later.said) > len(one.said) and later.said[: len(one.said)] == one.said for later in sent[at + 1 :]):
            continue
        same = next((answers for first, answers in found if first.said == one.said and first.name == one.name), None)
        if same is None:
            found.append((one, [one]))
        else:
            same.append(one)
    return [_conversation(first, answers) for first, answers in found]


def format_of(uri: str) -> str | None:
    """The format of what is sent to an address; None for one that is no conversation."""
    path = uri.partition("?")[0]
    return next((each.name for each in FORMATS if each.endpoint is not None and each.endpoint.search(path)), None)


def _sent(exchange: Exchange) -> _Sent | None:
    name = format_of(exchange.uri)
    if name is None or exchange.request is None:
        return None
    try:
        [history] = READERS[name](exchange.request)
    except FormatError as error:
        raise FormatError(f"{exchange.place}, its request: {error}") from error
    return _Sent(history, tuple(map(_key, history.drafts)), name, exchange)


def _key(draft: HistoryMessage) -> str:
    """What makes a message the same one in a later request; marks of caching do not."""
    return dump([draft.role, *([block.kind, block.text, block.tool_call_id, block.parts] for block in draft.blocks)])


def _conversation(first: _Sent, answers: Sequence[_Sent]) -> tuple[History, list[tuple[str, bytes, str]]]:
    """The history with its answers; one that came whole as a message is part of it, several are branches behind it."""
    drafts = list(first.history.drafts)
    bodies = []
    for one in answers:
        whole = _whole_answer(one)
        if whole is None:
            bodies += [(one.name, one.exchange.body, one.exchange.place)] if one.exchange.body.strip() else []
        else:
            behind = len(first.history.drafts) - 1
            drafts += [replace(draft, parent=behind if behind >= 0 else None) for draft in whole[:1]] + list(whole[1:])
    return replace(first.history, drafts=tuple(drafts)), bodies


def _whole_answer(sent: _Sent) -> tuple[HistoryMessage, ...] | None:
    """An answer that came whole and that its stream's adapter does not take."""
    body = sent.exchange.body
    if not NAMED[sent.name].reads_answers or sent.exchange.status not in _OK or body[:1] != b"{":
        return None
    try:
        return next(READERS[sent.name](body.decode())).drafts
    except (FormatError, UnicodeDecodeError):
        return None
