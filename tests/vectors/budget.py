"""The ops of `budget`: limits, usage, summaries of a path."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from projector.context import budget
from projector.context.tokens import tokens_of
from tests.vectors.delta import message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from projector import Message


def run_budget(given: dict[str, Any]) -> dict[str, Any]:
    _budget(given)
    return {"ok": True}


def run_check(given: dict[str, Any]) -> dict[str, Any]:
    limit = _budget(given)
    return {"checks": [{"reason": limit.reason(used), "remaining": limit.remaining(used)} for used in given["used"]]}


def run_usage(given: dict[str, Any]) -> dict[str, Any]:
    used, limit, checks = budget.Used(), _budget(given), []
    for step in given["steps"]:
        match step["do"]:
            case "estimate":
                used = budget.Used(step["tokens"])
            case "response":
                used = used.respond(step["tokens"], step["messages"])
            case "check":
                checks.append({"used": used.tokens, "real": used.real is not None, "reason": limit.reason(used.tokens)})
            case _:
                used = used.change(step.get("message"), step["estimate"])
    return {"checks": checks}


def run_estimate(given: dict[str, Any]) -> dict[str, Any]:
    return {"tokens": tokens_of([message(entry) for entry in given["messages"]])}


def run_compact(given: dict[str, Any]) -> dict[str, Any]:
    path = [message(entry) for entry in given["messages"]]

    async def summarizer(covered: Sequence[Message]) -> str:
        del covered
        if given["summary"].get("raises"):
            raise RuntimeError("no summary today")
        return str(given["summary"]["returns"])

    role = given.get("role", "assistant")
    work = budget.summarize(path, summarizer, keep=given["keep"], pinned=given["pinned"], role=role)
    made = asyncio.run(work)
    view, used = budget.apply_summaries(path, [] if made is None else [made])
    result: dict[str, Any] = {"changed": made is not None, "ids": _ids(view), "covers": [] if made is None else made.covers}
    return result if used is None else result | {"role": used.role}


def run_view(given: dict[str, Any]) -> dict[str, Any]:
    records = [budget.Summary(tuple(entry["covers"]), entry["summary"]) for entry in given["records"]]
    view, used = budget.apply_summaries([message(entry) for entry in given["path"]], records)
    return {"ids": _ids(view), "summary": None if used is None else used.summary}


OPS: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {
    "budget": run_budget, "check": run_check, "usage": run_usage, "estimate": run_estimate,
    "compact": run_compact, "view": run_view,
}  # fmt: skip


def _budget(given: dict[str, Any]) -> budget.Budget:
    return budget.Budget(**{name: given[name] for name in ("max_tokens", "threshold", "hard_cap") if name in given})


def _ids(view: Sequence[Message]) -> list[str]:
    return ["summary" if found.id.startswith(budget.SUMMARY) else found.id for found in view]
