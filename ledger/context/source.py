"""What a model's view is made of, read from ledger and log, and how that is remembered which a view has decided."""

from __future__ import annotations

from bisect import bisect_left
from contextlib import suppress
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from ledger.errors import UnknownConversation, UnknownRun
from ledger.runs.run import Run
from ledger.tables import runs, walks
from ledger.tables.choices import choices as known_choices
from ledger.tables.paths import read_path
from projector import settle
from projector.context.stage import Source
from projector.events import to_event
from projector.validation import validate
from stream import SeqConflict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ledger.engine import Engine
    from projector import Message
    from projector.events import Choice
    from stream.sqlite import Sql


class Found(NamedTuple):
    """What a view is made of; `life` is where the log of the conversation began when it was looked at."""

    source: Source
    life: int


async def read_source(
    engine: Engine, conversation: str, run: Run | str | None, selections: Mapping[str, str], turn: int | None = None
) -> Found:
    """The path, when prompts went out along it, and what was recorded. Raises `UnknownRun` for a run that is not open."""
    if isinstance(run, Run):
        await run.flush()
        run = run.run_id
    parent: str | None = None
    said: tuple[Message, ...] = ()
    drafts: dict[str, tuple[int, ...]] = {}
    if run is None:
        bounds = await engine.read_up(conversation)
    else:
        caught = await engine.require(conversation)
        draft, bounds = caught.state.open.get(run), caught.bounds
        if draft is None:
            raise UnknownRun(run)
        parent, said = draft.parent_message_id, settle(draft, None).path
        drafts[run] = draft.prompts

    async def job(sql: Sql) -> tuple[list[Message], dict[str, tuple[int, ...]], list[Any]]:
        if run is None:
            path = await read_path(sql, conversation, selections)
        else:
            path = [] if parent is None else await walks.path(sql, conversation, parent, None)
            path += said
        prompts = await runs.prompts(sql, conversation, path)
        return path, prompts | drafts, [choice for _, choice in await known_choices(sql, conversation)]

    path, prompts, choices = await engine.tables.look(job)
    own = dict.fromkeys(message.run_id for message in path) | dict.fromkeys(drafts)
    before = dict(zip(own, accumulate((len(prompts.get(name, ())) for name in own), initial=0), strict=False))
    turns = {message.id: before[message.run_id] + bisect_left(prompts.get(message.run_id, ()), message.seq) for message in path}
    total = sum(len(prompts.get(name, ())) for name in own)
    sending = _sending(said, () if run is None else drafts[run])
    source = Source(tuple(path), total if turn is None else turn, turns, tuple(choices), sending=sending)
    return Found(source, bounds.origin)


def _sending(said: Sequence[Message], prompts: Sequence[int]) -> frozenset[str]:
    """What of an open run no prompt has held yet: what came after the last prompt, and after the last answer."""
    last = prompts[-1] if prompts else 0
    new = takewhile(lambda one: one.role != "assistant" and one.seq > last, reversed(said))
    return frozenset(message.id for message in new)


async def remember(
    engine: Engine, conversation: str, life: int, choose: Callable[[Sequence[Choice]], Sequence[Choice]]
) -> None:
    """Appends what `choose` makes of all that is recorded: again, where somebody has appended in between.

    Raises `UnknownConversation` where it was erased since its log began at `life`, for what is remembered must not
    outlive that.
    """
    while True:
        caught = await engine.catch_up(conversation)
        if caught.bounds.origin != life:
            raise UnknownConversation(conversation)
        events = [to_event(one) for one in choose([known for _, known in await engine.tables.choices(conversation)])]
        if not events:
            return
        validate(events)
        with suppress(SeqConflict):
            await engine.store.append(conversation, events, expected_seq=caught.state.last_seq)
            break
    if (await engine.catch_up(conversation)).bounds.origin != life:
        raise UnknownConversation(conversation)
