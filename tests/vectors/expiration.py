"""The ops of `expiration`: policies, what expires, what is expanded, and recovery."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

from projector import Message
from projector.context import expiration, prompts, similarity, summaries
from projector.context.expansion import REASONS, Refusal, expand
from projector.context.expiration import Applied, Choices, ResultState, apply
from projector.context.lifecycle import Lifecycle, LifecycleEvent
from projector.context.overflow import recover
from projector.context.policies import ExpirationPolicy, Override, resolve, select
from projector.context.ranges import take_range
from projector.context.shortening import first_n, saved, text_of
from projector.context.tokens import estimate
from projector.context.tool_groups import answers
from projector.context.turns import count_prompts, has_expired
from projector.events import ContextCompacted, ContextExpanded
from tests.vectors.delta import message

if TYPE_CHECKING:
    from collections.abc import Callable


def run_policy(given: dict[str, Any]) -> dict[str, Any]:
    ExpirationPolicy(**given["policy"])
    return {"ok": True}


def run_resolve(given: dict[str, Any]) -> dict[str, Any]:
    override = Override(**given["override"]) if given["override"] else None
    action = ExpirationPolicy(**given["action"]) if given["action"] else None
    return _policy(resolve(given["kind"], override, action))


def run_select(given: dict[str, Any]) -> dict[str, Any]:
    return _policy(select([ExpirationPolicy(**entry) for entry in given["policies"]]))


def run_ages(given: dict[str, Any]) -> dict[str, Any]:
    policy = ExpirationPolicy(given["turns"], given["mode"])
    ages = [turn - given["turn_added"] for turn in given["at"]]
    return {"age": ages, "expired": [has_expired(policy, age) for age in ages]}


def run_first_n(given: dict[str, Any]) -> dict[str, Any]:
    before = given["text"]
    text = first_n(before, given["n"])
    return {"text": text, "length": len(text), "was_compacted": text != before, "tokens_saved": saved(before, text)}


def run_summary(given: dict[str, Any]) -> dict[str, Any]:
    known = prompts.Prompts({name: f"the prompt {name}" for name in given["known_prompts"]})
    maker = summaries.SummaryMaker(_summarizer(given["summarizer"]), prompts=known)
    named = [given["prompts"].get(name) for name in ("override", "action", "action_default")]
    work = summaries.shorten_results(given["text"], maker, prompts=named, length=given["compact_length"])
    made = asyncio.run(work)
    text = made.decision.text or ""
    return {"text": text, "length": len(text), "was_compacted": text != given["text"], "prompt": made.prompt}


def run_cache(given: dict[str, Any]) -> dict[str, Any]:
    calls = []

    async def summarizer(instructions: str, text: str) -> str:
        calls.append((instructions, text))
        return "s"

    async def ask() -> None:
        maker = summaries.SummaryMaker(summarizer)
        for entry in given["requests"]:
            await maker.summarize(entry["text"], entry["prompt"], entry["length"])

    asyncio.run(ask())
    return {"calls": len(calls)}


def run_apply(given: dict[str, Any]) -> dict[str, Any]:
    path, choices = _path(given), _choices(given)
    keep = given.get("preserve_original_content", True)
    rules = expiration.ExpirationRules(preserve_original_content=keep, protect_prefix=given.get("protect_prefix", False))
    turn = given["current_turn"]
    if "summarizer" in given:
        maker = summaries.SummaryMaker(_summarizer(given["summarizer"]))
        choices = choices.record(asyncio.run(summaries.plan(path, turn, choices, maker, rules=rules)))
    applied = apply(path, turn, choices, rules=rules)
    life = Lifecycle(_raise if given.get("callback") == "raises" else None, _told(given))
    return {"view": _view(path, applied), "events": _events(life.tell(applied))}


def run_expand(given: dict[str, Any]) -> dict[str, Any]:
    path, choices, turn = _path(given), _choices(given), given["current_turn"]
    view, states = [], dict[str, ResultState]()
    for entry in given["messages"]:
        view.append(message(entry))
        if entry.get("was_compacted"):
            keep, length = entry.get("can_expand", False), entry["original_length"]
            states[entry["id"]] = ResultState("first_n_chars", "", length, entry.get("tokens_saved", 0), keep)
    expanded = frozenset(entry["id"] for entry in given["messages"] if entry.get("expanded"))
    applied = Applied(tuple(view), states, turn, expanded)
    found = expand(path, applied, given["id"])
    if isinstance(found, Refusal):
        assert REASONS[found.label]
        return {"refused": found.label, "view": _view(path, applied)}
    after = choices.record([found])
    again = apply(path, turn, after)
    shown = next(one for one in again.messages if one.id == found.message_id)
    state = again.states.get(found.message_id)
    told = {"id": shown.id, "text": text_of(shown), "turn_added": after.dated(shown.id, turn)}
    flags = {"was_compacted": state is not None, "can_expand": state is not None}
    return {"expanded": told | flags, "events": _events(Lifecycle().expand(shown.id, turn, "asked for"))}


def run_range(given: dict[str, Any]) -> dict[str, Any]:
    original = given["original"]
    part = take_range(original if isinstance(original, str) else json.dumps(original), tuple(given["item_range"]))
    return {"items": part.items, "clamped": part.clamped, "item_count": part.item_count}


def run_turn(given: dict[str, Any]) -> dict[str, Any]:
    return {"current_turn": count_prompts(((step["run"], step["phase"]) for step in given["run_steps"]), given["path_runs"])}


def run_relevance(given: dict[str, Any]) -> dict[str, Any]:
    return {"expired": similarity.irrelevant(given["scores"], given["threshold"])}


def run_duplicates(given: dict[str, Any]) -> dict[str, Any]:
    texts = {entry["text"]: entry["id"] for entry in given["results"]}
    known = {(older, newer): value for older, newer, value in given["similarity"]}

    def alike(older: str, newer: str) -> float:
        return float(known.get((texts[older], texts[newer]), 0))

    options = {"threshold": given["threshold"]} if "threshold" in given else {}
    pairs = [(entry["id"], entry["text"]) for entry in given["results"]]
    return {"replaced": list(similarity.find_duplicates(pairs, similarity=alike, **options))}


def run_tokens(given: dict[str, Any]) -> dict[str, Any]:
    return {"tokens": [estimate(text) for text in given["texts"]]}


def run_timeline(given: dict[str, Any]) -> dict[str, Any]:
    turn, path, choices, life = 0, list[Message](), Choices(), Lifecycle()
    prompts, events, refusals = list[Any](), list[dict[str, Any]](), list[Any]()
    for step in given["steps"]:
        match step["do"]:
            case "add":
                entry = {"role": "user", "turn_added": turn} | step["message"]
                path.append(message(entry))
                new = _choices({"messages": [entry]})
                choices = expiration.Choices(
                    {**choices.policies, **new.policies}, {**choices.turn_added, **new.turn_added},
                    choices.results | new.results, choices.compacted, choices.expanded, choices.is_expanded,
                )  # fmt: skip
                events += _events(life.add([entry["id"]], turn))
            case "prompt":
                applied = apply(path, turn, choices)
                events += _events(life.tell(applied))
                prompts.append([[one.id, len(text_of(one))] for one in applied.messages])
                turn += 1
            case "expand":
                found = expand(path, apply(path, turn, choices), step["id"])
                if isinstance(found, Refusal):
                    refusals.append([step["id"], found.label])
                else:
                    choices = choices.record([found])
                    events += _events(life.expand(step["id"], turn, "asked for"))
            case "resume":
                turn, choices = 0, choices.resume()
    return {"prompts": prompts, "events": events, "refusals": refusals}


def run_overflow(given: dict[str, Any]) -> dict[str, Any]:
    path, choices, turn = _path(given), _choices(given), given["current_turn"]
    found = recover(path, path, turn, choices, limit_tokens=given["limit_tokens"])
    how = {record.covers[0]: "stub" if record.strategy == "stub" else "compacted" for record in found.records}
    again = apply(path, turn, choices.record(found.records))
    assert again.messages == found.messages  # what is recorded makes the same view
    view = [{"id": one.id, "state": how.get(one.id, "kept"), "length": len(text_of(one))} for one in found.messages]
    told = {"stopped_at": found.stopped_at, "fits": found.fits, "tokens": found.tokens}
    return told | {"view": view, "removed": list(found.removed)}


OPS: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {
    "policy": run_policy, "resolve": run_resolve, "select": run_select, "ages": run_ages, "first_n_chars": run_first_n,
    "ai_summary": run_summary, "summary_cache": run_cache, "apply": run_apply, "expand": run_expand,
    "expand_range": run_range, "current_turn": run_turn, "relevance": run_relevance, "near_duplicates": run_duplicates,
    "tokens": run_tokens, "timeline": run_timeline, "overflow": run_overflow,
}  # fmt: skip


def _policy(policy: ExpirationPolicy | None) -> dict[str, Any]:
    if policy is None:
        return {"expires": False}
    return {"expires": True, "policy": {name: getattr(policy, name) for name in policy.__struct_fields__}}


def _summarizer(given: dict[str, Any]) -> summaries.Summarizer:
    async def summarizer(instructions: str, text: str) -> str:
        del instructions, text
        if given.get("raises"):
            raise RuntimeError("no summary today")
        return str(given["returns"])

    return summarizer


def _path(given: dict[str, Any]) -> list[Message]:
    """The messages as they are on the path: with their originals."""
    return [message(entry | {"text": entry.get("original", entry.get("text", ""))}) for entry in given["messages"]]


def _choices(given: dict[str, Any]) -> Choices:
    entries = given["messages"]
    choices = Choices(
        {entry["id"]: ExpirationPolicy(**entry["policy"]) for entry in entries if entry.get("policy")},
        {entry["id"]: entry["turn_added"] for entry in entries if "turn_added" in entry},
        frozenset(entry["id"] for entry in entries if entry.get("kind")),
    )
    known: list[Any] = [ContextExpanded(entry["turn_added"], entry["id"]) for entry in entries if entry.get("expanded")]
    cut = [entry for entry in entries if entry.get("was_compacted")]
    known += [ContextCompacted(0, [entry["id"]], entry["text"], "first_n_chars", 0, 0) for entry in cut]
    return choices.record(known)


def _told(given: dict[str, Any]) -> list[str]:
    return [entry["id"] for entry in given["messages"] if entry.get("was_compacted") or entry.get("stub")]


def _view(path: list[Message], applied: Applied) -> list[dict[str, Any]]:
    originals = {one.id: text_of(one) for one in path}
    shown = []
    for one in applied.messages:
        told: dict[str, Any] = {"id": one.id, "role": one.role, "text": text_of(one)}
        if one.role == "tool":
            told["call"] = answers(one)
        state = applied.states.get(one.id)
        if state is not None and state.strategy == "stub":
            told["stub"] = True
        elif state is not None:
            told |= {"was_compacted": True, "original_length": state.original_length, "tokens_saved": state.tokens_saved}
            told |= {"can_expand": state.can_expand} | ({"original": originals[one.id]} if state.can_expand else {})
        shown.append(told)
    return shown


def _events(events: list[LifecycleEvent]) -> list[dict[str, Any]]:
    return [
        {"type": one.type, "turn": one.turn, "id": one.message_id, "reason": one.reason, "tokens_saved": one.tokens_saved}
        for one in events
    ]


def _raise(event: LifecycleEvent) -> None:
    raise RuntimeError(event.type)
