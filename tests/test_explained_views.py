"""What a view says of itself: which plugin, tool and policy changed a message, and what each stage did in all."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from projector.context.attribution import policy_words
from projector.context.chain import ChainSession
from projector.context.model_registry import ModelConfig
from projector.context.pipeline import Pipeline
from projector.context.plugins import DEFAULT, Bundled, UserPlugin, keep_token_budget, keep_window
from projector.context.policies import Action, ExpirationPolicy, PolicyRegistry
from projector.context.report import Change, StageSum, sum_up
from projector.context.result_stages import Expiration, NearDuplicates
from tests.ledger_commands import fill
from tests.test_commands import Shell
from tests.test_context_results import FIRST, LONG, expiring, look
from tests.test_message_being_sent import ask

if TYPE_CHECKING:
    from pathlib import Path

    from ledger import Ledger
    from projector.context.pipeline import View

pytestmark = pytest.mark.anyio


def by_of(view: View) -> dict[str, str]:
    return {change.message_id: change.by for change in view.changes}


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (ExpirationPolicy(2, "remove"), "remove after 2 turns"),
        (ExpirationPolicy(1, "remove"), "remove after 1 turn"),
        (FIRST, "compact after 1 turn (first_n_chars, 100 characters)"),
        (ExpirationPolicy(0, "compact", "ai_summary", None, "short"), "compact after 0 turns (ai_summary, prompt short)"),
    ],
)
def test_a_policy_is_said_in_a_few_words(policy: ExpirationPolicy, words: str) -> None:
    assert policy_words(policy) == words


async def test_a_result_names_its_tool_and_its_policy(ledger: Ledger) -> None:
    name = await look(ledger, "t1")
    view = (await ledger.context("c", pipeline=expiring(FIRST), turn=5)).view
    assert by_of(view) == {name: "tool look: compact after 1 turn (first_n_chars, 100 characters)"}
    await ledger.recover_overflow(await ledger.context("c", turn=9), 10)
    recorded = (await ledger.context("c", turn=9)).view
    assert by_of(recorded)[name] == "tool look: as it was recorded"


async def test_a_message_that_is_no_tool_s_names_its_policy(ledger: Ledger) -> None:
    async with ledger.run("c") as run:
        name = await run.message("user", LONG)
    pipeline = Pipeline(expiration=Expiration(policies={name: ExpirationPolicy(0, "remove")}))
    assert by_of((await ledger.context("c", pipeline=pipeline, turn=5)).view) == {name: "remove after 0 turns"}


async def test_an_optional_stage_names_the_tool(ledger: Ledger) -> None:
    old, _ = await look(ledger, "t1"), await look(ledger, "t2")
    view = (await ledger.context("c", pipeline=Pipeline(optional=(NearDuplicates(),)))).view
    assert by_of(view) == {old: "tool look: near-duplicates"}


async def test_an_addition_whose_time_is_over_names_its_plugin(ledger: Ledger) -> None:
    for number in range(3):
        await ask(ledger, number, keeps=2)
    view = (await ledger.context("c")).view
    assert by_of(view) == {"m0": "plugin P: kept for 2 messages"}


async def test_of_a_chain_each_plugin_is_named_that_left_something_out_or_added_it(ledger: Ledger) -> None:
    for number in range(6):
        async with ledger.run("c") as run:
            await run.message("user", f"question {number} " * 10)
    ids = [message.id for message in await ledger.transcript("c")]
    added = UserPlugin(
        "plugin_history_adds", lambda history, *_: [{"id": "own", "role": "user", "content": "hi"}, *history[1:]]
    )
    chain = (Bundled(DEFAULT, keep_window), Bundled("plugin_history_token_budget", keep_token_budget), added)
    session = ChainSession(config=ModelConfig(token_budget=90), max_ctx=4)
    view = (await ledger.context("c", pipeline=Pipeline(chain=chain, session=session))).view
    assert by_of(view) == {
        ids[0]: DEFAULT, ids[1]: DEFAULT, ids[2]: "plugin_history_token_budget", ids[3]: "plugin_history_adds",
        "own": "plugin_history_adds",
    }  # fmt: skip


def test_the_stages_are_summed_up_in_their_order() -> None:
    changes = [
        Change("b", "1", None, "left_out", "", 5),
        Change("a", "1", 0, "shortened", "", 7),
        Change("b", "2", None, "added", "", -2),
        Change("b", "3", None, "left_out", "", 1),
    ]
    assert sum_up(changes) == [StageSum("b", left_out=2, added=1, saved=4), StageSum("a", shortened=1, saved=7)]
    assert sum_up([]) == []


def test_the_command_explains_by_whom_and_sums_up(tmp_path: Path) -> None:
    shell, policies = Shell(tmp_path), tmp_path / "policies.json"
    fill(shell, lambda ledger: look(ledger, "t1"))
    policies.write_text(json.dumps({"actions": {"look": {"turns": 0, "mode": "remove"}}}))
    words = ("context", "c", "--policies", str(policies), "--turn", "5", "--max-ctx", "3")
    shown = shell.read(*words)
    assert {change["by"] for change in shown["changes"]} == {"tool look: remove after 0 turns", DEFAULT}
    assert [(one["stage"], one["saved"] > 0) for one in shown["stages"]] == [("expiration", True), ("chain", True)]
    assert sum(one["saved"] for one in shown["stages"]) == shown["tokens_of_path"] - shown["tokens"]
    told = " ".join(shell.run(*words, "--explain").split())
    assert "By stage" in told
    assert "left out" in told


def test_a_registry_of_actions_is_what_names_them() -> None:
    registry = PolicyRegistry({"look": Action(FIRST)})
    found = registry.policy_for("look")
    assert found is not None
    assert policy_words(found).startswith("compact after 1 turn")
