"""What images and files weigh, and what can be known of a shortened message without showing it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from projector import Block, Message
from projector.context.budget import Budget
from projector.context.chain import ChainSession
from projector.context.expansion import Hint, Refusal
from projector.context.expiration import Choices, apply
from projector.context.pipeline import Pipeline, Summaries
from projector.context.plugins import DEFAULT, Bundled, keep_window
from projector.context.policies import ExpirationPolicy
from projector.context.result_stages import Expiration
from projector.context.tokens import FILE_TOKENS, IMAGE_TOKENS, MediaTokenizer, estimate, tokens_of, weight_of
from tests.test_context_results import FIRST, LONG, expiring, look

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger import Ledger
    from projector.events import Role

pytestmark = pytest.mark.anyio


def saying(*blocks: Block, role: Role = "user") -> Message:
    return Message("m", None, "r", role, "complete", blocks, 0, 0)


def picture(media_type: str | None = "image/png", **more: Any) -> Block:
    return Block("media", sealed=True, media_type=media_type, **more)


def result(*parts: dict[str, Any]) -> Message:
    return saying(Block("tool_result", sealed=True, tool_call_id="c", parts=json.dumps(parts)), role="tool")


class Counting:
    """A word is a token, and media weigh what they say."""

    def __call__(self, text: str) -> int:
        return len(text.split())

    def media(self, block: Block) -> int:
        return int(block.fields.get("weight", 7))


# Weights


@pytest.mark.parametrize(
    ("block", "weight"),
    [
        (picture(), IMAGE_TOKENS),
        (picture("image/webp", fields={"url": "https://x"}), IMAGE_TOKENS),
        (picture(None, provider_ref="image_url"), IMAGE_TOKENS),
        (picture(None, provider_ref="input_image"), IMAGE_TOKENS),
        (picture("application/pdf"), FILE_TOKENS),
        (picture("audio/wav"), FILE_TOKENS),
        (picture(None), FILE_TOKENS),
    ],
)
def test_an_image_weighs_so_much_and_a_file_more(block: Block, weight: int) -> None:
    message = saying(Block("text", text="look", sealed=True), block, block)
    assert weight_of(message) == tokens_of([message]) == 1 + 2 * weight


def test_media_in_a_result_weigh_as_much_as_in_a_message() -> None:
    part = {"kind": "media", "media_type": "image/png", "url": "https://x"}
    text = {"kind": "text", "text": "the word media is no picture"}
    assert weight_of(result(text)) == 7
    assert weight_of(result(part, text, part)) > 2 * IMAGE_TOKENS
    assert weight_of(result({"kind": "data", "text": '{"kind": "media"}'})) < IMAGE_TOKENS
    broken = saying(Block("tool_result", sealed=True, tool_call_id="c", parts='"media'), role="tool")
    assert weight_of(broken) < IMAGE_TOKENS


def test_a_tokenizer_says_what_media_weigh() -> None:
    tokenizer: MediaTokenizer = Counting()
    message = saying(Block("text", text="two words", sealed=True), picture(), picture(fields={"weight": "100"}))
    assert weight_of(message, tokenizer) == tokens_of([message], tokenizer) == 2 + 7 + 100
    assert weight_of(result({"kind": "media", "weight": "50"}), tokenizer) == 4 + 50
    plain = saying(picture())
    assert weight_of(plain, lambda text: len(text) * 2) == IMAGE_TOKENS  # one that only counts texts
    assert weight_of(plain, estimate) == IMAGE_TOKENS


async def test_a_budget_notices_images(ledger: Ledger) -> None:
    async def shorten(old: Sequence[Message]) -> str:
        return f"{len(old)} messages"

    async with ledger.run("c") as run:
        shown = await run.message("user", "look")
        await run.message("user", "and?")
    await ledger.redact("c", shown, [picture(fields={"url": "https://x"}), Block("text", text="look")])
    pipeline = Pipeline(summaries=Summaries(Budget(1_000), shorten, keep=1))
    context = await ledger.context("c", pipeline=pipeline)
    assert [message.text for message in context.messages] == ["1 messages", "and?"]
    assert context.view.tokens_of_path > IMAGE_TOKENS > context.view.tokens
    assert sum(change.saved for change in context.view.changes) == context.view.tokens_of_path - context.view.tokens


def test_what_went_with_a_shortened_result_is_saved_too() -> None:
    picture_of = {"kind": "media", "media_type": "image/png", "url": "https://x"}
    message = result({"kind": "text", "text": LONG}, picture_of)
    policies = {"m": ExpirationPolicy(0, "compact", "first_n_chars", 20)}
    applied = apply([message], 1, Choices(policies))
    assert applied.states["m"].tokens_saved > IMAGE_TOKENS
    assert applied.states["m"].tokens_saved == weight_of(message) - weight_of(applied.messages[0])


# Hints


async def test_a_hint_says_what_is_shown_and_how_many_items_there_are(ledger: Ledger) -> None:
    short, items = await look(ledger, "t1"), await look(ledger, "t2", json.dumps(list(range(500))))
    view = (await ledger.context("c", pipeline=expiring(FIRST), turn=9)).view
    first, second = view.hint(short), view.hint(items)
    assert isinstance(first, Hint)
    assert isinstance(second, Hint)
    assert first.summary.startswith(LONG[:50])
    assert (first.item_count, second.item_count) == (101, 500)
    assert await ledger.tables.choices("c") == []


async def test_of_what_is_not_shortened_there_is_no_hint(ledger: Ledger) -> None:
    name = await look(ledger, "t1")
    view = (await ledger.context("c")).view
    assert view.hint(name) == Refusal("not compacted")
    assert view.hint("nobody") == Refusal("unknown id")
    windowed = Pipeline(expiration=None, chain=(Bundled(DEFAULT, keep_window),), session=ChainSession(max_ctx=1))
    assert (await ledger.context("c", pipeline=windowed)).view.hint(name) == Refusal("left out")
    gone = Pipeline(expiration=Expiration(policies={name: ExpirationPolicy(0, "remove")}))
    found = (await ledger.context("c", pipeline=gone, turn=9)).view.hint(name)
    assert isinstance(found, Hint)
    assert found.summary.startswith("[result expired")
