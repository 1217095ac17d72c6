"""Block retention: what plugins add is shown now, kept for a while, or both, and never gets out of line (seed 000; CONTEXT A).

The five invariants and the five checks of the seed stand here under their numbers, by `enrich` and `prune` and by
`Ledger.context` on stored messages.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ledger import open_ledger
from projector import Block, Message
from projector.context.pipeline import Pipeline
from projector.context.retention import POLICY, AdditionalContent, PluginAdditions, check_policy, enrich, policy_of, prune
from projector.context.tokens import result_text, tokens_of, weight_of
from projector.context.tool_groups import pair
from projector.formats import READERS, WRITERS
from projector.json_text import encode
from tests.talk import finished, new, said, started

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger import Ledger
    from projector.events import Role
    from stream import NewEvent

pytestmark = pytest.mark.anyio
IMAGE = Block("media", sealed=True, media_type="image/png", provider_ref="file-1", opaque='{"provider":"x","payload":{"a":1}}')
LONG = "a long report of the weather, line by line. " * 5


def words(text: str) -> Block:
    return Block("text", text=text, sealed=True)


def adds(saved: bool | int, *blocks: Block, shown: bool = True) -> AdditionalContent:  # noqa: FBT001 - True is for good
    return AdditionalContent(shown, saved, blocks)


def texts(blocks: Sequence[Block]) -> list[str]:
    return [block.text or block.kind for block in blocks]


def kept(name: str, blocks: Sequence[Block], policy: Sequence[int | None] | str, role: Role = "user") -> Message:
    text = policy if isinstance(policy, str) else json.dumps(list(policy))
    return Message(name, None, "r", role, "complete", tuple(blocks), 0, 0, metadata_text={POLICY: text})


def tool(name: str, call: str, text: str, *more: Block, policy: Sequence[int | None]) -> Message:
    parts = json.dumps([{"kind": "text", "text": text}])
    own = Block("tool_result", sealed=True, tool_call_id=call, parts=parts, opaque='{"provider":"x","payload":"secret"}')
    return kept(name, (own, *more), policy, "tool")


def calling(name: str, *calls: str) -> Message:
    blocks = tuple(Block("tool_call", number, "{}", sealed=True, tool_call_id=call) for number, call in enumerate(calls))
    return Message(name, None, "r", "assistant", "complete", blocks, 0, 0)


async def tell(ledger: Ledger, message_id: str, *blocks: str, role: str = "user", policy: Any = None) -> None:
    """A run with one message of several text blocks, and its policy."""
    run_id = f"run-{message_id}"
    leaf = (await ledger.transcript("c"))[-1:] if (await ledger.store.bounds("c")).head else []
    events: list[NewEvent] = [
        started(run_id, leaf[0].id if leaf else None),
        new("message.started", run_id=run_id, message_id=message_id, role=role),
    ]
    for number, text in enumerate(blocks):
        events.append(new("block.started", message_id=message_id, block=number, kind="text"))
        events.append(new("block.delta", message_id=message_id, block=number, text=text))
        events.append(new("block.sealed", message_id=message_id, block=number))
    events.append(new("message.finished", message_id=message_id, status="complete"))
    await ledger.record("c", [*events, finished(run_id)])
    if policy is not None:
        await ledger.annotate("c", message_id, {POLICY: policy})


# 1. content and policy have the same length

blocks_of = st.lists(st.sampled_from(["", "a", "b", "\n"]).map(words) | st.just(IMAGE), max_size=4)
additions = st.builds(
    AdditionalContent,
    st.booleans(),
    st.booleans() | st.integers(0, 4),
    st.lists(blocks_of, max_size=1).map(lambda x: tuple(*x)),
)
plugins_of = st.lists(st.builds(PluginAdditions, st.sampled_from("PQ"), st.lists(additions, max_size=3).map(tuple)), max_size=3)


@given(blocks_of, plugins_of)
def test_invariant_1_there_is_one_policy_for_each_block_whatever_plugins_add(
    own: list[Block], plugins: list[PluginAdditions]
) -> None:
    found = enrich(own, plugins)
    assert len(found.persistent) == len(found.retention_policy)
    check_policy(found.persistent, found.retention_policy)
    assert all(block.kind != "text" or block.text for block in (*found.display, *found.persistent))


@given(st.lists(st.tuples(blocks_of, plugins_of), max_size=6))
def test_invariant_1_and_4_what_is_pruned_still_has_one_policy_for_each_block(
    turns: list[tuple[list[Block], list[PluginAdditions]]],
) -> None:
    path = []
    for number, (own, plugins) in enumerate(turns):
        found = enrich(own, plugins)
        path.append(kept(f"m{number}", found.persistent, found.retention_policy))
    before = encode(path)
    view = prune(path)
    by_id = {message.id: (place, message) for place, message in enumerate(path)}
    for message in view:
        place, old = by_id[message.id]
        policy = policy_of(message)
        assert policy is not None
        check_policy(message.blocks, policy)
        index = len(path) - 1 - place
        stays = [keep is None or keep > index for keep in policy_of(old) or []]
        assert message.blocks == tuple(block for block, is_there in zip(old.blocks, stays, strict=True) if is_there)
        assert all(keep is None or keep > index for keep in policy)
    assert encode(path) == before
    assert tokens_of(view) <= tokens_of(path)


@pytest.mark.parametrize("policy", [[None], [None, None, None], [None, -1], [None, 1.5], [None, True], [None, "1"]])
async def test_invariant_1_a_stored_policy_that_does_not_fit_is_an_error_that_names_the_message(
    ledger: Ledger, policy: list[Any]
) -> None:
    await tell(ledger, "m1", "one", "two", policy=policy)
    before = encode(await ledger.transcript("c"))
    with pytest.raises(ValueError, match=r"message 'm1'.*annotate"):
        await ledger.context("c")
    assert encode(await ledger.transcript("c")) == before
    assert len((await ledger.context("c", pipeline=Pipeline(retention=False))).messages) == 1
    await ledger.annotate("c", "m1", {POLICY: [None, 1]})  # the way out that the error names
    assert len((await ledger.context("c")).messages[0].blocks) == 2


@pytest.mark.parametrize("policy", [7, "x", {"a": 1}, True])
async def test_a_stored_policy_that_is_no_list_names_the_message_too(ledger: Ledger, policy: Any) -> None:
    await tell(ledger, "m1", "one", policy=policy)
    with pytest.raises(ValueError, match="message 'm1'"):
        await ledger.context("c")


async def test_a_policy_that_was_taken_away_keeps_the_message_for_good(ledger: Ledger) -> None:
    await tell(ledger, "m1", "one", policy=[0])
    await ledger.annotate("c", "m1", {POLICY: None})
    assert texts((await ledger.context("c")).messages[0].blocks) == ["one"]


@pytest.mark.parametrize("text", ["[" * 100_000, "nonsense", "[1e999]", "[NaN]", "[" + "9" * 5_000 + "]"])
def test_a_policy_that_can_not_be_read_is_no_crash(text: str) -> None:
    with pytest.raises(ValueError, match="message 'm'"):
        prune([kept("m", [words("x")], text)])


async def test_a_redaction_takes_the_policy_with_it_and_one_that_does_not_fit_is_told(ledger: Ledger) -> None:
    await tell(ledger, "m1", "one", "two", policy=[None, 3])
    await ledger.redact("c", "m1", [words("gone")])
    assert texts((await ledger.context("c")).messages[0].blocks) == ["gone"]
    await ledger.annotate("c", "m1", {POLICY: [None, 1]})
    with pytest.raises(ValueError, match="1 blocks have 2 retention policies"):
        await ledger.context("c")
    await ledger.annotate("c", "m1", {POLICY: [None]})
    assert texts((await ledger.context("c")).messages[0].blocks) == ["gone"]


# 2. nothing is turned into something that loses a part of it


def test_invariant_2_every_field_of_a_block_outlives_enrichment_and_pruning() -> None:
    found = enrich([IMAGE, words("look")], [PluginAdditions("P", (adds(1, IMAGE),))])
    assert found.persistent[0] is IMAGE
    assert found.persistent[3] is IMAGE
    older = kept("m1", found.persistent, found.retention_policy)
    view = prune([older, kept("m2", [words("x")], [None])])
    assert view[0].blocks == (IMAGE, words("look"))
    assert (view[0].id, view[0].role, view[0].seq, view[0].status) == ("m1", "user", 0, "complete")


# 3. blocks are never merged or put in another order


def test_invariant_3_equal_and_neighbouring_texts_stay_apart() -> None:
    found = enrich([words("a"), words("a"), words("b")], [PluginAdditions("P", (adds(2, words("b"), words("b")),))])
    expected = ["a", "a", "b", "\n### PLUGIN P CONTEXT ###\n", "b", "b", "\n"]
    assert texts(found.persistent) == texts(found.display) == expected
    assert found.retention_policy == (None, None, None, 2, 2, 2, 2)


async def test_invariant_3_of_a_stored_message_the_view_keeps_the_order(ledger: Ledger) -> None:
    await tell(ledger, "m1", "a", "b", "a", "c", policy=[None, 1, None, 1])
    await tell(ledger, "m2", "x", policy=[None])
    context = await ledger.context("c")
    assert texts(context.messages[0].blocks) == ["a", "a"]
    assert [block.number for block in context.messages[0].blocks] == [0, 2]
    assert {(change.stage, change.message_id, change.block, change.what) for change in context.view.changes} == {
        ("retention", "m1", 1, "left_out"),
        ("retention", "m1", 3, "left_out"),
    }
    assert all(change.why for change in context.view.changes)


# 4. content and policy change together


async def test_invariant_4_the_policy_of_what_is_left_is_in_the_view_and_the_stored_one_is_untouched(ledger: Ledger) -> None:
    await tell(ledger, "m1", "a", "b", "c", policy=[1, None, 5])
    await tell(ledger, "m2", "x", policy=[None])
    view = (await ledger.context("c")).messages
    assert (texts(view[0].blocks), policy_of(view[0])) == (["b", "c"], [None, 5])
    stored = (await ledger.transcript("c"))[0]
    assert (texts(stored.blocks), policy_of(stored)) == (["a", "b", "c"], [1, None, 5])


async def test_a_message_without_content_leaves_and_makes_no_older_one_younger(ledger: Ledger) -> None:
    await tell(ledger, "m1", "old", policy=[2])
    await tell(ledger, "m2", "gone soon", policy=[1])
    await tell(ledger, "m3", "new", policy=[1])
    assert [message.id for message in (await ledger.context("c")).messages] == ["m3"]
    await tell(ledger, "m4", "no policy")
    assert [message.id for message in (await ledger.context("c")).messages] == ["m3", "m4"]


@pytest.mark.parametrize("text", [LONG, "ok", ""])
def test_a_tool_s_message_without_content_becomes_a_stub_that_keeps_nothing_and_does_not_grow(text: str) -> None:
    path = [calling("a", "c"), tool("t", "c", text, policy=[1]), kept("m", [words("x")], [None])]
    view = prune(path)
    assert [message.id for message in view] == ["a", "t", "m"]
    [stub] = view[1].blocks
    assert (stub.kind, stub.tool_call_id, stub.opaque) == ("tool_result", "c", None)
    assert not text or text not in result_text(stub)
    assert weight_of(view[1]) <= weight_of(path[1])
    assert pair(view) == view


def test_a_result_that_ends_before_what_a_plugin_added_leaves_a_stub_beside_it() -> None:
    path = [calling("a", "c"), tool("t", "c", LONG, words("note"), policy=[1, None]), kept("m", [words("x")], [None])]
    view = prune(path)
    assert [block.kind for block in view[1].blocks] == ["tool_result", "text"]
    assert view[1].blocks[1].text == "note"
    assert "weather" not in result_text(view[1].blocks[0])
    assert pair(view) == view


# 5. what an assistant said is kept apart, for replay


def replayed() -> Message:
    opaque = '{"provider":"anthropic","payload":{"z":1,"a":[1.0]}}'
    thought = Block("reasoning", 0, "hm", sealed=True, signature="c2ln", opaque=opaque)
    shown = Block("server_tool_result", 1, sealed=True, tool_call_id="s", opaque=opaque, name="search")
    blocks = (thought, shown, Block("text", 2, "so", sealed=True))
    return Message("a", None, "r", "assistant", "complete", blocks, 0, 0, metadata_text={POLICY: "[1]", "payload": '{"id": 1}'})


def test_invariant_5_what_an_assistant_said_is_never_touched_even_with_a_policy() -> None:
    answer = replayed()
    view = prune([answer, kept("m1", [words("x")], [None]), kept("m2", [words("y")], [1])])
    assert view[0] is answer


async def test_invariant_5_a_policy_on_an_assistant_s_message_is_passed_over_and_does_not_count(ledger: Ledger) -> None:
    await tell(ledger, "m1", "asked", policy=[1])
    await tell(ledger, "a1", "said", "more", role="assistant", policy=[1])  # would not fit, either
    assert [texts(message.blocks) for message in (await ledger.context("c")).messages] == [["asked"], ["said", "more"]]


# The validation checklist


def test_checklist_1_what_is_kept_are_the_blocks_themselves_and_no_text_of_them() -> None:
    found = enrich([IMAGE], [PluginAdditions("P", (adds(True, IMAGE, words("w")),))])
    assert all(isinstance(block, Block) for block in found.persistent)
    assert [block.kind for block in found.persistent] == ["media", "text", "media", "text", "text"]


async def test_checklist_2_an_assistant_s_payload_goes_to_its_provider_byte_for_byte_beside_pruned_messages() -> None:
    thinking = [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}, {"type": "text", "text": "so"}]
    payload = {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "asked"}, {"type": "text", "text": "context"}]},
            {"role": "assistant", "content": thinking},
            {"role": "user", "content": [{"type": "text", "text": "and?"}]},
        ]
    }
    async with open_ledger("memory:") as ledger:
        [history] = READERS["anthropic"](json.dumps(payload))
        await ledger.take_in("c", history)
        asked = (await ledger.transcript("c"))[0].id
        await ledger.annotate("c", asked, {POLICY: [None, 0]})
        context = await ledger.context("c")
    sent = WRITERS["anthropic"](context.messages).payload["messages"]
    assert sent[1]["content"] == thinking
    assert "context" not in json.dumps(sent[0])


def test_checklist_3_each_block_goes_by_the_policy_in_its_own_place() -> None:
    policies: list[int | None] = [None, 1, 2, 3, None, 0]
    blocks = [words(str(keep)) for keep in policies]
    path = [kept(f"m{number}", blocks, policies) for number in range(4)]
    expected = [["None", "None"], ["None", "3", "None"], ["None", "2", "3", "None"], ["None", "1", "2", "3", "None"]]
    assert [texts(message.blocks) for message in prune(path)] == expected


async def test_checklist_4_mixed_policies_of_plugins_turn_by_turn(ledger: Ledger) -> None:
    found = enrich(
        [words("question")],
        [
            PluginAdditions("A", (adds(True, words("for good")), adds(1, words("once")))),
            PluginAdditions("B", (adds(2, words("twice")), adds(False, words("now only")), adds(0, words("not kept")))),
            PluginAdditions("C", (adds(1, words("later only"), shown=False), adds(True))),
        ],
    )
    head = {name: f"\n### PLUGIN {name} CONTEXT ###\n" for name in "ABC"}
    assert texts(found.display) == [
        "question", head["A"], "for good", "\n", "once", "\n", head["B"], "twice", "\n", "now only", "\n", "not kept", "\n",
    ]  # fmt: skip
    assert texts(found.persistent) == [
        "question", head["A"], "for good", "\n", "once", "\n", head["B"], "twice", "\n", head["C"], "later only", "\n",
    ]  # fmt: skip
    assert found.retention_policy == (None, None, None, None, 1, 1, 2, 2, 2, 1, 1, 1)
    await tell(ledger, "m1", *texts(found.persistent), policy=list(found.retention_policy))
    shown = [texts((await ledger.context("c")).messages[0].blocks)]
    for number in (2, 3):
        await tell(ledger, f"m{number}", "x", policy=[None])
        shown.append(texts((await ledger.context("c")).messages[0].blocks))
    assert shown == [
        texts(found.persistent),
        ["question", head["A"], "for good", "\n", head["B"], "twice", "\n"],
        ["question", head["A"], "for good", "\n"],
    ]


def test_checklist_5_answers_with_blocks_that_are_no_text_go_through_unchanged() -> None:
    answer = replayed()
    path = [kept("m1", [words("x"), words("y")], [None, 1]), answer, kept("m2", [words("z")], [None])]
    view = prune(path)
    assert encode(view[1]) == encode(answer)
    assert texts(view[0].blocks) == ["x"]


# Limits


@pytest.mark.parametrize("saved", [-1, -(10**30), float("nan"), float("-inf")])
def test_what_is_kept_for_a_negative_number_of_messages_is_refused(saved: Any) -> None:
    with pytest.raises(ValueError, match="save_to_chat_history"):
        AdditionalContent(True, saved, ())


def test_an_addition_of_empty_texts_alone_adds_neither_header_nor_spacing() -> None:
    found = enrich([words(""), words("a")], [PluginAdditions("P", (adds(True, words("")), adds(3)))])
    assert texts(found.display) == texts(found.persistent) == ["a"]


async def test_a_partial_message_and_one_on_another_branch_do_not_shift_the_index(ledger: Ledger) -> None:
    await tell(ledger, "m1", "root", "keep one", policy=[None, 1])
    async with ledger.fork("c", "m1") as run:
        other = await run.message("user", "other branch")
    await ledger.annotate("c", other, {POLICY: [None]})
    assert texts((await ledger.context("c")).messages[0].blocks) == ["root"]
    await ledger.record("c", [started("again", "m1"), *said("again", "m3", "this branch", role="user"), finished("again")])
    await ledger.select("c", "m3")
    context = await ledger.context("c")
    assert [message.id for message in context.messages] == ["m1", "m3"]
    assert texts(context.messages[0].blocks) == ["root", "keep one"]


def test_pruning_leaves_messages_without_policies_as_they_are() -> None:
    plain = [replace(replayed(), metadata_text={}), calling("b", "c")]
    assert all(one is other for one, other in zip(prune(plain), plain, strict=True))
    assert prune([kept("m", [], [])]) == []  # nothing was ever in it
