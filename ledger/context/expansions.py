"""What a model asks to see in full again: found in the very view that it was shown, and recorded, or refused with a reason."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from ledger.context.context import Context
from ledger.context.source import read_source, remember
from ledger.errors import UnknownRun
from projector.context.expansion import Refusal, Request, find_message
from projector.context.expansion import expand as expand_message
from projector.context.expiration import Applied
from projector.context.placement import messages_at
from projector.context.provenance import mark, standing
from projector.context.ranges import check_range
from projector.events import ContextExpanded
from projector.formats.registry import NAMED, WRITERS
from stream.checks import check_choice, check_kind, check_list, check_text
from stream.limits import check_position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.engine import Engine
    from projector import Message
    from projector.context.pipeline import View
    from projector.context.stage import Source

_MOST_TOLD: Final = 20


async def expand(
    engine: Engine,
    context: Context,
    request: Request | str,
    *,
    item_range: tuple[int, int] | None,
    reason: str,
    format: str | None,  # noqa: A002 - the word users know
) -> ContextExpanded | Refusal:
    """See `Ledger.expand`."""
    request = _check(context, request, item_range, reason, format)
    names = _find(context.view, request, format)
    if isinstance(names, Refusal):
        return names
    source = await _read_source_behind(engine, context)
    found = [_expand_one(context.view, source, name, request) for name in names]
    expanded = mark([one for one in found if isinstance(one, ContextExpanded)], source.path)
    if not expanded:
        refused = found[0]
        is_by_place = request.message_id is None and isinstance(refused, Refusal)
        return replace(refused, details=_told(context.view)) if is_by_place else refused
    await remember(engine, context.conversation, context.life, lambda _: expanded)
    if context.view.lifecycle is not None:
        for one in expanded:
            context.view.lifecycle.expand(one.message_id, one.turn, one.reason or "it was asked for")
    return expanded[0]


def _check(context: object, request: Request | str, item_range: object, reason: str, format_name: str | None) -> Request:
    check_kind("context", context, Context, "a Context")
    check_text("reason", reason)
    if format_name is not None:
        check_choice("format", format_name, tuple(WRITERS))
    if not isinstance(request, Request):
        check_text("request", request)
        request = Request(message_id=request)
    if item_range is not None and request.item_range is None:
        ends = check_list("item_range", item_range, "two numbers")
        if len(ends) != 2:
            raise ValueError(f"item_range must be a list of two numbers, not of {len(ends)}")
        for end in ends:
            check_position("an end of item_range", end)
        request = replace(request, item_range=check_range(ends))
    return replace(request, reason=request.reason or reason)


def _find(view: View, request: Request, format_name: str | None) -> Sequence[str] | Refusal:
    """The messages that a request means in this view. An index is of what was written of it, in its format."""
    if request.message_id is not None or format_name is None:
        found = find_message(request, view.messages, view_id=view.view_id, current_view_id=view.view_id)
        return replace(found, details=_told(view)) if isinstance(found, Refusal) else [found]
    names, told = _shortened(view), _told(view)

    def write(messages: Sequence[Message]) -> Sequence[Any]:
        payload = WRITERS[format_name](messages).payload
        return (
            payload
            if isinstance(payload, list)
            else next(payload[name] for name in NAMED[format_name].lists if name in payload)
        )

    standing_there = messages_at(-1 if request.index is None else request.index, view.messages, names, write, mark=view.view_id)
    if standing_there is None:
        return Refusal("no such index", told)
    if not standing_there:
        return Refusal("not compacted", told)
    if len(standing_there) > 1 and request.item_range is not None:
        return Refusal(
            "bad range", f"Several results stand at that index, so say which by messageId: {', '.join(standing_there)}."
        )
    return standing_there


def _shortened(view: View) -> list[str]:
    return [] if view.applied is None else [one.id for one in view.messages if one.id in view.applied.states]


def _told(view: View) -> str:
    """What could be asked for, for a model that named something else by its place."""
    return f"Shortened now, by messageId: {', '.join(_shortened(view)[:_MOST_TOLD]) or 'none'}."


def _expand_one(view: View, source: Source, message_id: str, request: Request) -> ContextExpanded | Refusal:
    """The expansion of a message of a view, as long as nothing that was recorded since shows it already."""
    applied, turn = view.applied or Applied(view.messages, {}, view.source.turn), view.source.turn
    state = applied.states.get(message_id)
    if view.choices is not None:
        newer = view.choices.record(standing(source.choices, source.path).choices)
        known = view.choices.expanded.get(message_id) if view.choices.is_whole(message_id, turn) else None
        newest = newer.expanded[message_id] if newer.is_whole(message_id, turn) else None
        is_shown = newest != known or (state is not None and state.is_partial)
        if newest is not None and is_shown and newest.item_range in (None, request.item_range):
            return Refusal("already expanded")
    found = expand_message(view.source.path, applied, message_id, item_range=request.item_range, reason=request.reason)
    if isinstance(found, Refusal) and found.label == "not compacted" and all(one.id != message_id for one in view.messages):
        return Refusal("left out")
    return found


async def _read_source_behind(engine: Engine, context: Context) -> Source:
    """What is recorded now; where the run of a context has ended meanwhile, along the path of the conversation."""
    turn = context.view.source.turn
    if context.run_id is not None:
        with suppress(UnknownRun):
            return (await read_source(engine, context.conversation, context.run_id, context.selections, turn)).source
    return (await read_source(engine, context.conversation, None, context.selections, turn)).source
