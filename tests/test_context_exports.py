"""What the model is sent of real sessions, at every turn and through every stage, is taken by its provider."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from projector.context.budget import Budget
from projector.context.chain import ChainSession
from projector.context.pipeline import Pipeline, Summaries, make_view
from projector.context.plugins import DEFAULT, Bundled, keep_role_pairs, keep_token_budget, keep_window
from projector.context.stage import Source
from projector.formats import WRITERS
from projector.formats.registry import NAMED
from projector.json_text import encode
from tests.corpus import look
from tests.corpus_parts import files_of
from tests.faults.sizes import FULL
from tests.shared_data import DATA, needs_data

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from projector import Message
    from tests.corpus_parts import Conversation

pytestmark = [pytest.mark.anyio, pytest.mark.slow, needs_data]
SOURCES: Final = (pytest.param("pi-mono", marks=pytest.mark.heavy), "tau-bench")
VALIDATORS: Final = {each.name: each.check for each in NAMED.values() if each.check is not None}
DEFAULTS: Final = (Bundled(DEFAULT, keep_window),)
EVERY: Final = 1 if FULL else 7
MOST: Final = 10_000 if FULL else 12
"""Conversations of a source that are looked at."""


async def shorten(messages: Sequence[Message]) -> str:
    return f"{len(messages)} messages were said."


PIPELINES: Final = {
    "nothing": Pipeline(),
    "window": Pipeline(chain=DEFAULTS, session=ChainSession(max_ctx=9)),
    "small window": Pipeline(chain=DEFAULTS, session=ChainSession(max_ctx=1)),
    "token budget": Pipeline(chain=(*DEFAULTS, Bundled("tokens", keep_token_budget)), session=ChainSession(max_ctx=50)),
    "role pairs": Pipeline(chain=(*DEFAULTS, Bundled("pairs", keep_role_pairs)), session=ChainSession(max_ctx=50)),
    "summaries": Pipeline(summaries=Summaries(Budget(2_000), shorten, keep=2)),
}


def paths(conversation: Conversation) -> Iterator[list[Message]]:
    """What came before each answer of a model, and all of it."""
    messages = conversation.messages
    known = {message.id: message for message in messages}
    for place, message in enumerate(messages):
        if place == len(messages) - 1 or (message.role == "assistant" and place % EVERY == 0):
            path: list[Message] = []
            at: str | None = message.id if place == len(messages) - 1 else message.parent_id
            while at is not None:
                path.append(known[at])
                at = known[at].parent_id
            yield path[::-1]


@pytest.mark.heavy
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", PIPELINES)
async def test_every_turn_of_a_real_session_is_taken_by_every_provider(source: str, name: str) -> None:
    count = 0
    conversations = [one for path in files_of(DATA / source) for one in look(DATA, path).conversations]
    for conversation in conversations[:MOST]:
        for path in paths(conversation):
            before = encode(path)
            view = await make_view(Source(tuple(path)), PIPELINES[name])
            for target, validate in VALIDATORS.items():
                payload = WRITERS[target](view.messages).payload
                sent = payload[NAMED[target].lists[0]] if isinstance(payload, dict) else payload
                assert not sent or validate(payload) == [], f"{conversation.name}, {len(path)} messages, {target}"
            assert encode(path) == before
            assert encode(list((await make_view(Source(tuple(path)), PIPELINES[name])).messages)) == encode(list(view.messages))
            count += 1
    assert count > 20
