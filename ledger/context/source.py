"""What a model's view is made of, read from ledger and log, and how that is remembered which a view has decided."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from ledger.errors import UnknownConversation, UnknownRun
from ledger.runs.run import Run
from ledger.tables import runs
from ledger.tables.choices import choices as known_choices
from ledger.tables.kept_paths import KeptPath
from ledger.tables.paths import read_path, read_path_to
from ledger.tables.timeline import count_turns
from projector import settle
from projector.context.facts import FactTable
from projector.context.stage import Source
from projector.events import to_event
from projector.validation import validate
from stream import SeqConflict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ledger.engine import Engine
    from ledger.tables.paths import Read
    from ledger.tables.runs import Steps
    from projector import Message
    from projector.events import Choice
    from stream.database import Sql


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

    kept = engine.tables.kept.find(conversation)

    async def job(sql: Sql) -> tuple[Read, Mapping[str, Steps], list[Any]]:
        if run is None:
            read = await read_path(sql, conversation, selections, kept)
        else:
            read = await read_path_to(sql, conversation, parent, kept)
        steps = {} if read.path is None else read.path.steps
        own = {message.run_id for message in read.messages}
        lacking = await runs.steps_of(sql, conversation, own - steps.keys())
        choices = [choice for _, choice in await known_choices(sql, conversation)]
        return read, {**steps, **lacking} if lacking else steps, choices

    (committed, kept_path), steps, choices = await engine.tables.look(job)
    path = (*committed, *said)
    known = KeptPath() if kept_path is None else kept_path
    turns, total, timeline = count_turns(path, steps, drafts, known.timeline)
    facts = FactTable()
    if kept_path is not None:
        engine.tables.kept.put(conversation, replace(kept_path, steps=steps, timeline=timeline))
        facts = kept_path.facts
        facts.cover(committed)
    sending = _sending(said, () if run is None else drafts[run])
    source = Source(path, total if turn is None else turn, turns, tuple(choices), sending=sending, facts=facts)
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
