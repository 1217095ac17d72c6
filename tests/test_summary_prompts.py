"""What a prompt for a summary is told, which models it is for, and which answers hold a summary at all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from projector.context.expiration import Choices
from projector.context.policies import ExpirationPolicy
from projector.context.prompts import SYSTEM_PROMPT, Prompt, PromptModel, Prompts, Told
from projector.context.summaries import SummaryMaker, plan, read_summary, shorten_results
from tests.vectors.delta import message

if TYPE_CHECKING:
    from projector import Message
    from projector.context.summaries import Summarizer

TEXT = "x" * 2_000


class Model:
    """Answers with what it was made with, and remembers what it was asked."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def __call__(self, instructions: str, text: str) -> str:
        del text
        self.asked.append(instructions)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[no-any-return]


def ask(prompt: Prompt, default: Model, **models: Summarizer) -> str:
    maker = SummaryMaker(default, prompts=Prompts({SYSTEM_PROMPT: prompt}), models=models, time_limit=1)
    return asyncio.run(shorten_results(TEXT, maker, length=100)).decision.text or ""


# Models by priority

PROMPT = Prompt("shorten it", (PromptModel("second", 2), PromptModel("third", 3), PromptModel("first", 1)))


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({"first": "one", "second": "two"}, "one"),
        ({"first": RuntimeError("down"), "second": "two"}, "two"),
        ({"first": "", "second": '{"summary": ""}', "third": '{"text": "no"}'}, "default"),
        ({"first": '{"summary": 7}', "third": "three"}, "three"),
        ({}, "default"),
        ({"another": "no"}, "default"),
    ],
)
def test_the_models_of_a_prompt_are_asked_by_priority_until_one_gives_a_summary(answers: dict[str, Any], expected: str) -> None:
    default, models = Model("default"), {name: Model(answer) for name, answer in answers.items()}
    assert ask(PROMPT, default, **models).endswith(f"\n\n{expected}")
    assert bool(default.asked) == (expected == "default")


def test_where_all_fail_the_first_characters_are_shown() -> None:
    assert ask(PROMPT, Model(RuntimeError("down")), first=Model(RuntimeError("down"))).startswith("x" * 100 + "...")


def test_models_of_equal_priority_are_asked_in_the_order_they_are_named() -> None:
    prompt = Prompt("p", (PromptModel("b"), PromptModel("a")))
    assert ask(prompt, Model("default"), a=Model("of a"), b=Model("of b")).endswith("of b")
    assert prompt.in_order == ("b", "a")


def test_a_model_that_hangs_gives_way_to_the_next() -> None:
    async def hang(instructions: str, text: str) -> str:
        await asyncio.sleep(60)
        return instructions + text

    maker = SummaryMaker(Model("default"), prompts=Prompts({SYSTEM_PROMPT: PROMPT}), models={"first": hang}, time_limit=0.05)
    assert (asyncio.run(shorten_results(TEXT, maker)).decision.text or "").endswith("default")


# What is filled in


def test_a_prompt_is_filled_in_once_and_keeps_what_else_stands_in_braces() -> None:
    told = Told("action-result", 3)
    prompt = Prompt(
        "{original_length} {{originalLength}} {{ targetLength }} {target_length} {message_type} {{ messageType }} {turn_added} "
        '{{ turnAdded }} {original_content} {"summary": "..."} {unknown} {{ other }} {}'
    )
    assert prompt.fill("a {turn_added}", 9, told) == (
        '14 14 9 9 action-result action-result 3 3 a {turn_added} {"summary": "..."} {unknown} {{ other }} {}'
    )
    assert Prompt("{target_length}").fill("", None, told) == "500"


@pytest.mark.parametrize(
    ("given", "is_result", "expected"),
    [
        ({"role": "user"}, False, "user-input"),
        ({"role": "system"}, False, "system"),
        ({"role": "assistant"}, False, "assistant-message"),
        ({"role": "tool", "call": "c"}, False, "action-result"),
        ({"role": "user"}, "sub_agent", "sub-agent-result"),
        ({"role": "user"}, "loop", "loop-result"),
    ],
)
def test_a_prompt_is_told_the_type_of_a_message_and_the_turn_it_came_in(
    given: dict[str, Any], is_result: Any, expected: str
) -> None:
    one: Message = message({"id": "m", "text": TEXT, **given})
    if is_result:
        one = replace(one, metadata_text={"result": f'"{is_result}"'})
    model = Model("short")
    maker = SummaryMaker(model, prompts=Prompts({SYSTEM_PROMPT: "{message_type} of turn {turn_added}"}))
    choices = Choices({"m": ExpirationPolicy(1, "compact", "ai_summary")}, {"m": 4}, frozenset(["m"] if is_result else []))
    asyncio.run(plan([one], 9, choices, maker))
    assert model.asked == [f"{expected} of turn 4"]


def test_the_built_in_prompt_names_type_and_turn() -> None:
    found = Prompts().find(None)
    assert found is not None
    assert "of the type loop-result, came in turn 7" in found[1].fill(TEXT, None, Told("loop-result", 7))
    assert '{"summary": "..."}' in found[1].fill(TEXT, None, Told())


# What is no summary


@pytest.mark.parametrize(
    "answer",
    [
        '{"text": "no"}', '{"summary": null}', '{"summary": ["a"]}', '{"summary": {"text": "a"}}', '{"summary": " "}', "{}",
        "[]", "7", "null", "true", '```json\n{"error": "too long"}\n```', 'Sorry:\n```json\n{"error": "too long"}\n```',
        '{"summary": "it breaks o', '```json\n{"summary": "it breaks o', {"summary": "no text"}, b"bytes", "```\n```",
    ],
)  # fmt: skip
def test_an_answer_without_a_summary_is_none(answer: Any) -> None:
    assert read_summary(answer) == ""
    made = asyncio.run(shorten_results(TEXT, SummaryMaker(Model(answer)), length=100)).decision
    assert made.strategy == "first_n_chars"
    assert made.why == "the answer held no summary"


@pytest.mark.parametrize(
    ("answer", "summary"),
    [
        ('Here it is:\n```json\n{"summary": "s"}\n```\nAnything else?', "s"),
        ('{"reasoning": {"steps": 2}, "summary": "s"}', "s"),
        ('{"thought": 1}\n{"summary": "s"}', "s"),
        ('{"summary": "two\nlines"}', "two\nlines"),
        ("It has {braces} in it.", "It has {braces} in it."),
        ('The server answered {"error": 1} twice.', 'The server answered {"error": 1} twice.'),
        ("[1] a list of results", "[1] a list of results"),
        ('"quoted"', "quoted"),
    ],
)
def test_a_summary_is_found_among_other_things(answer: str, summary: str) -> None:
    assert read_summary(answer) == summary
