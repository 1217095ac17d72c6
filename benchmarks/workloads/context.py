"""What the model is sent of a conversation: what a view costs, and how many tokens each stage spares.

Time: a conversation of four messages a turn (asked, a call, its result, an answer), through no stage, through each alone
and through all. `make_view` has the messages and what was recorded at hand; `Ledger.context` reads both from a file that
is warm, and each pipeline has a copy of the file. What a stage has to record was recorded by a context before the first
round. Both are compared with `projector.json_text.encode` of the same messages.

Tokens: real sessions of `--data FOLDER` (`pi-mono`, `tau-bench`), or made up ones. Before each answer of a model the view
of the path is made, with what the views before it recorded; its tokens are added up, and those of the path. Tokens are
estimated, four characters each. The summary of an old part is the first 400 characters of it, which no model would do,
so that only its length counts.
"""

from __future__ import annotations

import functools
import gc
import itertools
import shutil
import statistics
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.measuring import compare, interleave, summarize, timed
from benchmarks.workloads import sessions
from ledger import open_ledger
from projector.context.budget import Budget
from projector.context.chain import ChainSession
from projector.context.model_registry import ModelConfig
from projector.context.pipeline import Pipeline, Summaries, make_view
from projector.context.plugins import BUNDLED, DEFAULT
from projector.context.policies import Override
from projector.context.result_stages import Expiration, NearDuplicates, Relevance
from projector.context.stage import Source
from projector.context.tokens import content_of
from projector.context.windows import MOST
from projector.json_text import encode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.measuring import Bench, Figure, Side
    from ledger import Ledger
    from projector import Message
    from projector.events import Choice


class Sizes(NamedTuple):
    """Messages, few and many, and rounds of each; sessions that are made up where no data is given."""

    messages: tuple[int, int]
    rounds: tuple[int, int]
    sessions: int


FULL: Final = Sizes((1_000, 10_000), (21, 5), 40)
SMOKE: Final = Sizes((40, 200), (2, 2), 2)
_CONVERSATION: Final = "context"
_TURNS: Final = 30  # the longest session that is made up
_SUMMARY: Final = 400  # characters
_ENCODE: Final = ".encode"  # is timed right before each side


async def shorten(messages: Sequence[Message]) -> str:
    """A summary that costs nothing to make."""
    return "\n".join(content_of(message) for message in messages)[:_SUMMARY]


_BARE: Final = functools.partial(Pipeline, retention=False, expiration=None)
_DEFAULT: Final = BUNDLED[DEFAULT]
_FIT: Final = (_DEFAULT, BUNDLED["plugin_history_token_budget"])
_UNLIMITED: Final = ChainSession(config=ModelConfig(token_budget=6_000), max_ctx=MOST)
_LIMITED: Final = ChainSession(config=ModelConfig(token_budget=6_000), max_ctx=50)
_REMOVE: Final = Expiration(override=Override(2, "remove"))
_COMPACT: Final = Expiration(override=Override(2, "compact", "first_n_chars", 500))
_SUMMARIES: Final = Summaries(Budget(8_000), shorten)

TIMED: Final = {
    "nothing": _BARE(),
    "retention": _BARE(retention=True),
    "expiration": _BARE(expiration=_REMOVE),
    "relevance": Pipeline(retention=False, optional=(Relevance(0.1),)),
    "near-duplicates": Pipeline(retention=False, optional=(NearDuplicates(),)),
    "summaries": _BARE(summaries=_SUMMARIES),
    "window": _BARE(chain=(_DEFAULT,), session=_LIMITED),
    "token-budget": _BARE(chain=_FIT, session=_UNLIMITED),
    "all": Pipeline(True, _REMOVE, (Relevance(0.1), NearDuplicates()), _SUMMARIES, _FIT, _LIMITED),
}
"""What is timed. Stages that record something stand behind an expiration, which applies it."""
COUNTED: Final = {
    "nothing but pairing": _BARE(),
    "results removed after 2 turns": _BARE(expiration=_REMOVE),
    "results cut to 500 after 2 turns": _BARE(expiration=_COMPACT),
    "near-duplicates replaced": Pipeline(retention=False, optional=(NearDuplicates(),)),
    "window of 50 messages": _BARE(chain=(_DEFAULT,), session=_LIMITED),
    "token budget of 6,000": _BARE(chain=_FIT, session=_UNLIMITED),
    "summaries at 8,000 tokens": _BARE(summaries=_SUMMARIES),
    "all, results cut to 500": Pipeline(False, _COMPACT, (NearDuplicates(),), _SUMMARIES, _FIT, _LIMITED),
}
"""Whose tokens are counted, by what they do."""


def measure(bench: Bench, sizes: Sizes) -> list[Figure]:
    """Ratios of times, `context.{few,many}.{view,ledger}.STAGE`; parts of tokens, `context.tokens.SOURCE.NUMBER`."""
    figures: list[Figure] = []
    for name, messages, rounds in zip(("few", "many"), sizes.messages, sizes.rounds, strict=True):
        figures += bench.run(_time(bench.folder, name, messages, rounds))
    if bench.data is None:
        lengths = itertools.cycle(range(_TURNS // 3, _TURNS + 1, 4))
        made = [sessions.fold(sessions.make(next(lengths), 100 * at), f"made-{at}") for at in range(sizes.sessions)]
        return figures + bench.run(_count("generated", made))
    for source in sessions.sources_in(bench.data):
        figures += bench.run(_count(source, sessions.read(bench.data, source)))
    return figures


async def _time(folder: Path, name: str, messages: int, rounds: int) -> list[Figure]:
    first = folder / f"context-{name}.db"
    async with open_ledger(str(first)) as ledger:
        await ledger.take_in(_CONVERSATION, sessions.make(messages // sessions.TURN))
    sides: dict[str, Side] = {}
    path: tuple[Message, ...] = ()
    async with AsyncExitStack() as stack:
        for stage, pipeline in TIMED.items():
            copy = folder / f"context-{name}-{stage}.db"
            shutil.copyfile(first, copy)
            ledger = await stack.enter_async_context(open_ledger(str(copy), create=False))
            await ledger.context(_CONVERSATION, pipeline=pipeline)
            context = await ledger.context(_CONVERSATION, pipeline=pipeline)
            assert not context.view.records
            path = path or context.view.source.path
            assert len(path) == messages
            source = replace(context.view.source, path=path)
            sides |= {
                f"view.{stage}{_ENCODE}": functools.partial(_encode, path),
                f"view.{stage}": functools.partial(_view, source, pipeline),
                f"ledger.{stage}{_ENCODE}": functools.partial(_encode, path),
                f"ledger.{stage}": functools.partial(_context, ledger, pipeline),
            }
        await interleave(sides, 1)  # warms up
        del context
        gc.collect()
        gc.freeze()  # no program holds that many conversations: the collector is not to walk through them
        times = await interleave(sides, rounds)
        gc.unfreeze()
    return [_figure(name, side, messages, times) for side in sides if not side.endswith(_ENCODE)]


def _figure(name: str, side: str, messages: int, times: dict[str, list[float]]) -> Figure:
    way, _, stage = side.partition(".")
    what = f"{messages:,} messages, {'make_view' if way == 'view' else 'Ledger.context'}: {stage}"
    ours, encoding = times[side], times[side + _ENCODE]
    beside = {"ms": 1000 * statistics.median(ours), "encode_ms": 1000 * statistics.median(encoding)}
    return compare(f"context.{name}.{side}", what, "one JSON encoding", ours, encoding, beside)


async def _encode(path: Sequence[Message]) -> float:
    async def once() -> None:
        encode(path)

    return await timed(once())


async def _view(source: Source, pipeline: Pipeline) -> float:
    return await timed(make_view(source, pipeline))


async def _context(ledger: Ledger, pipeline: Pipeline) -> float:
    return await timed(ledger.context(_CONVERSATION, pipeline=pipeline))


async def _count(source: str, all_of: Sequence[Sequence[Message]]) -> list[Figure]:
    figures = []
    for number, (what, pipeline) in enumerate(COUNTED.items()):
        counts = [await _tokens(messages, pipeline) for messages in all_of]
        sent, whole, turns = (sum(column) for column in zip(*counts, strict=True))
        beside: dict[str, float] = {"tokens": sent, "path_tokens": whole, "turns": turns, "sessions": len(all_of)}
        figures.append(summarize(f"context.tokens.{source}.{number}", what, "tokens of the path", [sent / whole], beside))
    return figures


async def _tokens(messages: Sequence[Message], pipeline: Pipeline) -> tuple[int, int, int]:
    """Tokens of the views before each answer, tokens of their paths, and how many there were."""
    known = {message.id: message for message in messages}
    choices: list[Choice] = []
    sent = whole = prompts = 0
    for answer in messages:
        if answer.role == "assistant":
            path = _path(known, answer.parent_id)
            turns = list(itertools.accumulate(int(message.role == "assistant") for message in path))
            dated = {message.id: turn for message, turn in zip(path, turns, strict=True)}
            view = await make_view(Source(path, turns[-1] if turns else 0, dated, tuple(choices)), pipeline)
            choices += view.records
            sent, whole, prompts = sent + view.tokens, whole + view.tokens_of_path, prompts + 1
    return sent, whole, prompts


def _path(known: dict[str, Message], leaf: str | None) -> tuple[Message, ...]:
    path: list[Message] = []
    while leaf is not None:
        path.append(known[leaf])
        leaf = known[leaf].parent_id
    return tuple(reversed(path))
