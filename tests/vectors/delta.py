"""The ops of `delta`: plans, pairing, and sessions step by step."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from projector import Block, Message
from projector.context import delta
from projector.context.tool_groups import ids_of, pair

if TYPE_CHECKING:
    from collections.abc import Callable

_STATEFUL: Final[dict[str, Any]] = {"session_resumption": True, "history_management": "session-stateful"}


def message(entry: dict[str, Any]) -> Message:
    """A message as the vectors write it."""
    blocks = [Block("text", text=entry["text"], sealed=True)] if entry.get("text") else []
    if entry["role"] == "tool":
        parts = json.dumps([{"kind": "text", "text": entry.get("text", "")}])
        blocks = [Block("tool_result", sealed=True, tool_call_id=entry["call"], parts=parts)]
    blocks += [Block("tool_call", sealed=True, tool_call_id=call) for call in entry.get("calls", ())]
    return Message(entry["id"], None, "r", entry["role"], "complete", tuple(blocks), 0, 0)


def run_plan(given: dict[str, Any]) -> dict[str, Any]:
    path = [message(entry) for entry in given["path"]]
    options = {name: given[name] for name in ("working_directory", "now", "mode") if name in given}
    capabilities = delta.ProviderCapabilities(**given.get("capabilities", _STATEFUL))
    session = _session(given, path) if given["session"] else None
    return _told(delta.plan(path, session, capabilities, system_prompt=given.get("system_prompt", "S"), **options))


def run_order(given: dict[str, Any]) -> dict[str, Any]:
    return {"ids": ids_of(pair([message(entry) for entry in given["path"]]))}


def run_session(given: dict[str, Any]) -> dict[str, Any]:
    path = [message(entry) for entry in given["path"]]
    session: delta.ProviderSession | None = None
    planned: delta.Full | delta.Delta | None = None
    prompt, results = "S", list[Any]()
    for number, step in enumerate(given["steps"]):
        match step["do"]:
            case "plan":
                planned = delta.plan(path, session, delta.ProviderCapabilities(**_STATEFUL), system_prompt=prompt)
                results.append(_told(planned))
            case "send":
                assert planned is not None
                session = delta.begin_send(session, planned, f"s{number}", system_prompt=prompt)
            case "append":
                path = [*path, message(step["message"])]
            case "acknowledge":
                assert session is not None
                session = delta.acknowledge(session, path, step["ids"], step["replies"])
            case "received":
                assert session is not None
                session = delta.received(session, path, step["ids"])
            case "crash":
                planned = None
            case "switch":
                path = [message(entry) for entry in step["path"]]
            case "set_system_prompt":
                prompt = step["to"]
            case "stored":
                assert session is not None
                stored = {"sent_through": session.sent_through, "held": list(session.held), "sending": session.sending}
                results.append(stored)
    return {"results": results}


OPS: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {"plan": run_plan, "order": run_order, "session": run_session}


def _session(given: dict[str, Any], path: list[Message]) -> delta.ProviderSession:
    said = given["session"]
    taken = said.get("fingerprint_of", {})
    before = pair([message(entry) for entry in taken["path"]] if "path" in taken else path)
    ids = ids_of(before)
    reach = ids.index(said["sent_through"]) + 1 if said["sent_through"] in ids else 0
    return delta.ProviderSession(
        said["session_id"],
        said["sent_through"],
        tuple(said.get("held", ())),
        delta.fingerprint(taken.get("system_prompt", given.get("system_prompt", "S"))),
        delta.fingerprint_of(before[:reach]),
        said.get("working_directory"),
        said.get("sending", False),
        said.get("expires_at"),
    )


def _told(planned: delta.Full | delta.Delta) -> dict[str, Any]:
    if isinstance(planned, delta.Delta):
        return {"plan": "delta", "ids": ids_of(planned.messages), "reason": None}
    return {"plan": "full", "ids": ids_of(planned.messages), "reason": planned.reason}
