"""The ops of `branches`: the tree as a pure function, and whole conversations through a real ledger."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from ledger import ACTIVE_LEAF, Ledger, LedgerError, RunInfo, open_ledger
from projector import Node, fork_points
from projector import events as ev
from projector.tree import follow, resolve, select
from stream import NewEvent
from tests.postgres_server import Shared
from tests.vectors.engines import Engines
from tests.vectors.values import ErrorNames

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


def run_resolve(given: dict[str, Any]) -> dict[str, Any]:
    branch = given["branch"]
    if isinstance(branch, dict) and branch.keys() == {"selections"}:
        branch = branch["selections"]
    if branch == "all":
        return {"ids": [message["id"] for message in given["messages"]]}
    return {"ids": follow(_nodes(given), branch)}


def run_select(given: dict[str, Any]) -> dict[str, Any]:
    nodes = _nodes(given)
    for selected in given["selected"]:
        nodes = select(nodes, selected["message"], selected["seq"])
    return {"ids": resolve(nodes)}


def run_fork_points(given: dict[str, Any]) -> dict[str, Any]:
    points = fork_points(_nodes(given))
    return {"fork_points": [{"parent": p.parent_id or "", "children": list(p.children), "active": p.active} for p in points]}


def run_lifecycle(given: dict[str, Any]) -> dict[str, Any]:
    return _everywhere(lambda url: _live(url, given["steps"]))


def run_thread(given: dict[str, Any]) -> dict[str, Any]:
    return _everywhere(lambda url: _talk(url, given))


OPS: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {
    "resolve": run_resolve, "select": run_select, "fork_points": run_fork_points,
    "lifecycle": run_lifecycle, "thread": run_thread,
}  # fmt: skip


def _everywhere(run: Callable[[str], Coroutine[Any, Any, dict[str, Any]]]) -> dict[str, Any]:
    """In memory, and on a server where servers are asked: the answers are the same."""
    answer = asyncio.run(run("memory:"))
    if "postgres" in Engines.names():
        there = asyncio.run(run(Shared.url()))
        if there != answer:
            raise AssertionError(f"memory gives {answer}, PostgreSQL gives {there}")
    return answer


def _nodes(given: dict[str, Any]) -> list[Node]:
    runs = given["runs"]
    return [
        Node(
            message["id"],
            message["parent"],
            runs[message["run"]]["started"],
            runs[message["run"]]["status"] in ("committed", "superseded", "cancelled"),
        )
        for message in given["messages"]
        if not message.get("off_path")
    ]


async def _live(url: str, steps: list[dict[str, Any]]) -> dict[str, Any]:
    results = []
    async with open_ledger(url) as ledger:
        await ledger.record("c", [NewEvent("custom", b"{}")])
        for number, step in enumerate(steps):
            before, anomalies = await _status(ledger, step["run"]), len(await ledger.anomalies("c"))
            result: dict[str, Any] = {}
            try:
                await _step(ledger, step, f"{number}")
            except LedgerError:
                result["refused"] = True
            status = await _status(ledger, step["run"])
            if status is not None:
                result["status"] = status
            if step["do"] == "recover" and before in ("created", "streaming"):
                result["was"] = before
            if len(await ledger.anomalies("c")) > anomalies:
                result["ignored"] = True
            results.append(result)
    return {"results": results}


async def _step(ledger: Ledger, step: dict[str, Any], number: str) -> None:
    match step["do"]:
        case "begin":
            await ledger.begin_run("c", run_id=step["run"])
        case "event":
            await _record(ledger, *_message(step["run"], f"{step['run']}.{number}", is_finished=True))
        case "finish":
            await _record(ledger, ev.RunFinished(step["run"], step["outcome"]))
        case "recover":
            await ledger.recover("c", step["run"], step["action"])


async def _talk(url: str, given: dict[str, Any]) -> dict[str, Any]:
    errors = []
    async with open_ledger(url) as ledger:
        await ledger.record("c", [NewEvent("custom", b"{}")])
        for number, step in enumerate(given["steps"], start=1):
            try:
                await _say(ledger, step)
            except LedgerError as error:
                told = {name: value for name, value in vars(error).items() if name != "last_event_at"}
                errors.append({"step": number, "error": ErrorNames.of(error)} | told)
        everything = await ledger.transcript("c", branch="all")
        result: dict[str, Any] = {
            "active": [message.id for message in await ledger.transcript("c")],
            "all": [message.id for message in everything],
            "parents": {message.id: message.parent_id for message in everything},
            "partial": [message.id for message in everything if message.status == "partial"],
            "statuses": {run.run_id: run.status async for run in ledger.runs("c")},
            "errors": errors,
        }
        if "selections" in given:
            result["selected"] = [message.id for message in await ledger.transcript("c", selections=given["selections"])]
    return result


async def _say(ledger: Ledger, step: dict[str, Any]) -> None:
    run_id = step.get("run", "")
    if step["do"] in ("begin", "run"):
        await ledger.begin_run("c", run_id=run_id, parent=step.get("parent", ACTIVE_LEAF))
    for message_id in step.get("messages", ()):
        await _record(ledger, *_message(run_id, message_id, is_finished=message_id not in step.get("unfinished", ())))
    match step["do"]:
        case "run" | "finish":
            await _record(ledger, ev.RunFinished(run_id, step.get("outcome", "completed")))
        case "recover":
            await ledger.recover("c", run_id, step["action"], select=step.get("select", False))
        case "select":
            await ledger.select("c", step["message"])


def _message(run_id: str, message_id: str, *, is_finished: bool) -> list[ev.Body]:
    bodies: list[ev.Body] = [
        ev.MessageStarted(run_id, message_id, "user" if message_id.startswith("u") else "assistant"),
        ev.BlockStarted(message_id, 0, "text"),
        ev.BlockDelta(message_id, 0, message_id),
    ]
    return [*bodies, ev.BlockSealed(message_id, 0), ev.MessageFinished(message_id, "complete")] if is_finished else bodies


async def _record(ledger: Ledger, *bodies: ev.Body) -> None:
    await ledger.record("c", [ev.to_event(body) for body in bodies])


async def _status(ledger: Ledger, run_id: str) -> str | None:
    found: list[RunInfo] = [run async for run in ledger.runs("c") if run.run_id == run_id]
    return found[0].status if found else None
