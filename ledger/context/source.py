"""What a model's view is made of, read from ledger and log, and how that is remembered which a view has decided."""

from __future__ import annotations

from bisect import bisect_left
from contextlib import suppress
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from ledger.errors import UnknownConversation, UnknownRun
from ledger.runs.run import Run
from ledger.transcript import read_transcript
from projector import settle
from projector.context.stage import Source
from projector.events import to_event, validate
from stream import SeqConflict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ledger.engine import Engine
    from projector import Message
    from projector.events import Choice


async def read_source(
    engine: Engine, conversation: str, run: Run | str | None, selections: Mapping[str, str], turn: int | None = None
) -> Source:
    """The path, when prompts went out along it, and what was recorded. Raises `UnknownRun` for a run that is not open."""
    if isinstance(run, Run):
        await run.flush()
        run = run.run_id
    path: list[Message]
    drafts: dict[str, tuple[int, ...]] = {}
    if run is None:
        path = await read_transcript(engine, conversation, selections=selections)
    else:
        draft = (await engine.require(conversation)).state.open.get(run)
        if draft is None:
            raise UnknownRun(run)
        parent = draft.parent_message_id
        path = [] if parent is None else await engine.tables.path(conversation, parent, None)
        path += settle(draft, None).path
        drafts[run] = draft.prompts
    own = dict.fromkeys(message.run_id for message in path) | dict.fromkeys(drafts)
    prompts = await engine.tables.prompts(conversation, path) | drafts
    before = dict(zip(own, accumulate((len(prompts.get(name, ())) for name in own), initial=0), strict=False))
    turns = {message.id: before[message.run_id] + bisect_left(prompts.get(message.run_id, ()), message.seq) for message in path}
    total = sum(len(prompts.get(name, ())) for name in own)
    choices: list[Any] = [choice for _, choice in await engine.tables.choices(conversation)]
    return Source(tuple(path), total if turn is None else turn, turns, tuple(choices))


async def remember(
    engine: Engine, conversation: str, life: int, choose: Callable[[Sequence[Choice]], Sequence[Choice]]
) -> None:
    """Appends what `choose` makes of all that is recorded: again, where somebody has appended in between.

    Raises `UnknownConversation` where it was erased since its log began at `life`, for what is remembered must not
    outlive that.
    """
    while True:
        bounds = await engine.store.bounds(conversation)
        if bounds.origin != life:
            raise UnknownConversation(conversation)
        await engine.catch_up(conversation)
        events = [to_event(one) for one in choose([known for _, known in await engine.tables.choices(conversation)])]
        if not events:
            return
        validate(events)
        with suppress(SeqConflict):
            await engine.store.append(conversation, events, expected_seq=bounds.head)
            break
    await engine.catch_up(conversation)
