"""The ops of `chain`: the window, the chain and its plugins, settings, commands, sessions, discovery."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ledger.history.discovery import discover
from ledger.history.sessions import SessionRegistry, TooManySessions
from ledger.history.settings import HistorySettings, add_plugin, move_plugin, parse_configuration, remove_plugin
from projector.context import windows
from projector.context.chain import open_session, run_chain, switch_model
from projector.context.model_registry import ModelConfig, UnknownModel
from projector.context.plugin_items import fold_items, unfold_items
from projector.context.plugins import BUNDLED, DEFAULT, UserPlugin, keep_role_pairs, keep_token_budget
from projector.context.runtime_commands import BadCommand, parse_command
from projector.context.settings_file import SettingsError
from projector.context.tool_groups import ids_of, pair
from tests.vectors.delta import message

if TYPE_CHECKING:
    from collections.abc import Callable

    from projector import Message
    from projector.context.chain import Chained
    from projector.context.plugins import Plugin


def run_effective(given: dict[str, Any]) -> dict[str, Any]:
    said = {name: given[name] for name in ("agent_max_ctx", "model_max_context") if name in given}
    return {"effective": windows.effective(**said)}


def run_window(given: dict[str, Any]) -> dict[str, Any]:
    return {"ids": ids_of(windows.window(_messages(given["messages"]), given["n"]))}


def run_process(given: dict[str, Any]) -> dict[str, Any]:
    return _told(_process(_messages(given["history"]), given))


def run_cycle(given: dict[str, Any]) -> dict[str, Any]:
    path, after_each = list(given["history"]), []
    for entry in given["messages"]:
        path.append(entry)
        after_each.append(ids_of(_process(_messages(path), given).messages))
    return {"after_each": after_each}


def run_items(given: dict[str, Any]) -> dict[str, Any]:
    return {"items": fold_items(_messages(given["messages"]))}


def run_plugin(given: dict[str, Any]) -> dict[str, Any]:
    history = _messages(given["messages"])
    items = {item["id"]: item for item in fold_items(history)}
    returned = [items[entry["id"]] if entry.keys() == {"id"} else entry for entry in given["returns"]]
    entries = {entry["id"]: entry for entry in given["messages"]}
    return {"messages": [_shown(found, entries) for found in unfold_items(returned, history, "plugin")]}


def run_switches(given: dict[str, Any]) -> dict[str, Any]:
    models, after_each, now = _models(given), [], None
    for name in given["to"]:
        now = _switch(given, models, now, name)
        after_each.append(ids_of(now.messages))
    return {"after_each": after_each}


def run_model_switch(given: dict[str, Any]) -> dict[str, Any]:
    models = _models(given)
    try:
        done = _switch(given, models, None, given["to"])
    except UnknownModel:
        before = open_session(given["from"], models, agent_max_ctx=given["agent_max_ctx"])
        shown = asyncio.run(run_chain(_messages(given["history"]), _chain(given), before))
        return {"error": True, "model": shown.session.model, "ids": ids_of(shown.messages)}
    return _told(done) | {"model": done.session.model, "removed": done.removed, "kept": done.kept}


def run_role_pairs(given: dict[str, Any]) -> dict[str, Any]:
    return {"ids": ids_of(keep_role_pairs(_messages(given["messages"]), 200, ModelConfig()))}


def run_token_budget(given: dict[str, Any]) -> dict[str, Any]:
    config = ModelConfig(token_budget=given["budget"])
    return {"ids": ids_of(keep_token_budget(_messages(given["messages"]), 200, config))}


def run_tool_pairing(given: dict[str, Any]) -> dict[str, Any]:
    return {"ids": ids_of(pair(_messages(given["messages"])))}


def run_config(given: dict[str, Any]) -> dict[str, Any]:
    try:
        found = parse_configuration(given["text"], given["file"], given["available"])
    except SettingsError as error:
        key = None if error.key is None else error.key.rpartition(".")[2]
        return {"error": {"file": error.file, "key": key, "line": error.line}}
    return {name: value for name, value in msgspec.to_builtins(found).items() if name != "warned" or value}


def run_command(given: dict[str, Any]) -> dict[str, Any]:
    try:
        found = parse_command(given["line"])
    except BadCommand:
        return {"error": True}
    if found is None:
        return {"command": None}
    shown: dict[str, Any] = msgspec.to_builtins(found)
    return shown | {"command": shown.pop("type")}


def run_admin(given: dict[str, Any]) -> dict[str, Any]:
    before = HistorySettings(chain=tuple(given["chain"]))
    changes: dict[str, Callable[..., HistorySettings]] = {
        "chain-add": lambda name: add_plugin(before, name, given["available"]),
        "chain-remove": lambda name: remove_plugin(before, name),
        "chain-move": lambda name, position: move_plugin(before, name, position),
    }
    name, *arguments = given["args"]
    try:
        return {"chain": list(changes[name](*arguments).chain)}
    except ValueError:
        return {"refused": True, "chain": list(before.chain)}


def run_sessions(given: dict[str, Any]) -> dict[str, Any]:
    stored: dict[str, dict[str, Any]] = {}

    async def save(session_id: str, state: dict[str, Any]) -> None:
        stored[session_id] = dict(state)

    async def restore(session_id: str) -> dict[str, Any] | None:
        return stored.get(session_id)

    async def main() -> list[Any]:
        limits = {"max_users": given.get("max_users", 50), "timeout_minutes": given.get("timeout_minutes", 60)}
        registry, results = SessionRegistry(save=save, restore=restore, **limits), list[Any]()
        for step in given["steps"]:
            match step["do"]:
                case "open" | "connect" | "resume":
                    try:
                        await registry.open(step["id"], now=step["now"])
                        results.append("ok")
                    except TooManySessions:
                        results.append("refused")
                case "message":
                    session = registry.touch(step["id"], now=step["now"])
                    session.state["messages"] = [*session.state.get("messages", []), "m"]
                case "close":
                    await registry.close(step["id"])
                case "reap":
                    results.append(await registry.reap(now=step["now"]))
                case "count":
                    results.append(len(registry.get(step["id"]).state.get("messages", [])))
        return results

    return {"results": asyncio.run(main())}


def run_discover(given: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        for file in given["files"]:
            (Path(name) / file).write_text(
                "NAME = 'x'\n\ndef process(history, session, model_cfg):\n    return list(history)\n"
            )
        found = discover(Path(name))
    if "bundled" not in given:
        return {"names": sorted(plugin.name for plugin in found.values() if plugin.origin == "folder")}
    return {"from": {plugin.name: plugin.origin for plugin in found.values()}}


OPS: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {
    "effective": run_effective, "window": run_window, "process": run_process, "cycle": run_cycle, "items": run_items,
    "plugin": run_plugin, "switches": run_switches, "model_switch": run_model_switch, "role_pairs": run_role_pairs,
    "token_budget": run_token_budget, "tool_pairing": run_tool_pairing, "config": run_config, "command": run_command,
    "admin": run_admin, "sessions": run_sessions, "discover": run_discover,
}  # fmt: skip


def _messages(entries: list[dict[str, Any]]) -> list[Message]:
    return [message(entry) for entry in entries]


def _shown(found: Message, entries: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A message as the vectors write it, if it still is what it was made of; as plain text otherwise."""
    entry = entries.get(found.id)
    if entry is not None and message(entry) == found:
        return entry
    return {"id": found.id, "role": found.role, "text": found.text}


def _process(path: list[Message], given: dict[str, Any]) -> Chained:
    session = open_session("m", {"m": ModelConfig(given.get("model_max_context"))}, agent_max_ctx=given["agent_max_ctx"])
    return asyncio.run(run_chain(path, _chain(given), session))


def _switch(given: dict[str, Any], models: dict[str, ModelConfig], now: Chained | None, name: str) -> Chained:
    first = given.get("from", next(iter(models)))
    limit = given["agent_max_ctx"]
    session = open_session(first, models, agent_max_ctx=limit) if now is None else now.session
    return asyncio.run(switch_model(_messages(given["history"]), _chain(given), session, models, name, agent_max_ctx=limit))


def _models(given: dict[str, Any]) -> dict[str, ModelConfig]:
    return {name: ModelConfig(max_context) for name, max_context in given["models"].items()}


def _told(done: Chained) -> dict[str, Any]:
    return {"ids": ids_of(done.messages), "logged": [failure.plugin for failure in done.failures]}


def _chain(given: dict[str, Any]) -> list[Plugin]:
    return [_plugin(entry) for entry in given["chain"]]


def _plugin(entry: dict[str, Any]) -> Plugin:
    if entry["does"] == "default":
        return BUNDLED[DEFAULT]

    def process(history: list[dict[str, Any]], session: dict[str, Any], model_cfg: dict[str, Any]) -> Any:
        del session, model_cfg
        return _do(entry, history)

    def on_model_switch(session: dict[str, Any], *models: Any) -> Any:
        del models
        return _do(entry, session["history"])

    return UserPlugin(entry["name"], process, on_model_switch if entry.get("on_model_switch", True) else None)


def _do(entry: dict[str, Any], history: list[dict[str, Any]]) -> Any:
    match entry["does"]:
        case "drop_first":
            return history[entry["n"] :]
        case "keep_last":
            return history[max(0, len(history) - entry["n"]) :]
        case "drop_role":
            return [item for item in history if item["role"] != entry["role"]]
        case "add_note":
            return [*history, {"id": entry["id"], "role": "user", "content": "note"}]
        case "raise":
            raise RuntimeError("a plugin that raises")
        case "return":
            return entry["value"]
        case "mutate_list":
            history.pop(0)
            return history
        case "mutate_message":
            history[0]["content"] = "edited"
            return list(history)
        case "mutate_list_return_copy":
            copy = list(history)
            history.clear()
            return copy
        case _:
            return list(history)
