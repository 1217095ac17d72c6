"""The ops of `retention`: what plugins add, and what is pruned from the view."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from projector import Block, Message
from projector.context.retention import POLICY, AdditionalContent, PluginAdditions, check_policy, enrich, policy_of, prune

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def run_enrich(given: dict[str, Any]) -> dict[str, Any]:
    found = enrich(_blocks(given["message"]["content"]), _plugins(given["plugins"]))
    return {
        "display": _content(found.display),
        "persistent": _content(found.persistent),
        "policy": list(found.retention_policy),
    }


def run_check(given: dict[str, Any]) -> dict[str, Any]:
    check_policy(given["content"], given["policy"])
    return {"ok": True}


def run_prune(given: dict[str, Any]) -> dict[str, Any]:
    return {
        "view": [_shown(message) for message in prune([_message(entry, seq) for seq, entry in enumerate(given["history"])])]
    }


def run_turns(given: dict[str, Any]) -> dict[str, Any]:
    history: list[Message] = []
    sent = []
    for turn in given["turns"]:
        found = enrich(_blocks(turn["user"]), _plugins(turn["plugins"]))
        shown = [{"role": message.role, "content": _content(message.blocks)} for message in prune(history)]
        sent.append([*shown, {"role": "user", "content": _content(found.display)}])
        policy = {POLICY: json.dumps(list(found.retention_policy))}
        history.append(Message(f"u{len(history)}", None, "r", "user", "complete", found.persistent, 0, 0, metadata_text=policy))
        if "reply" in turn:
            said = tuple(_blocks([turn["reply"]]))
            history.append(Message(f"a{len(history)}", None, "r", "assistant", "complete", said, 0, 0))
    return {"sent": sent}


OPS: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {
    "enrich": run_enrich, "check": run_check, "prune": run_prune, "turns": run_turns,
}  # fmt: skip


def _plugins(entries: list[dict[str, Any]]) -> list[PluginAdditions]:
    return [
        PluginAdditions(
            entry["label"],
            tuple(
                AdditionalContent(
                    one["display_on_current_message"], one["save_to_chat_history"], tuple(_blocks(one["content"]))
                )
                for one in entry["additions"]
            ),
        )
        for entry in entries
    ]


def _blocks(content: Iterable[Any]) -> list[Block]:
    return [Block("text", text=part) if isinstance(part, str) else Block("data", opaque=json.dumps(part)) for part in content]


def _content(blocks: Iterable[Block]) -> list[Any]:
    return [block.text if block.kind == "text" else json.loads(block.opaque or "") for block in blocks]


def _message(entry: dict[str, Any], seq: int) -> Message:
    metadata = {POLICY: json.dumps(entry["policy"])} if "policy" in entry else {}
    if "provider_payload" in entry:
        metadata["provider_payload"] = json.dumps(entry["provider_payload"])
    if "calls" in entry:
        metadata["calls"] = json.dumps(entry["calls"])
    if entry["role"] == "tool":
        parts = [json.dumps([{"kind": "text", "text": text}]) for text in entry["content"]]
        blocks = [Block("tool_result", tool_call_id=entry["tool_call_id"], parts=part) for part in parts]
    else:
        blocks = _blocks(entry["content"])
    return Message(entry["id"], None, "r", entry["role"], "complete", tuple(blocks), 0, seq, metadata_text=metadata)


def _shown(message: Message) -> dict[str, Any]:
    shown: dict[str, Any] = {"id": message.id, "role": message.role}
    if message.role == "tool":
        shown["tool_call_id"] = message.blocks[0].tool_call_id
        shown["content"] = [json.loads(block.parts or "")[0]["text"] for block in message.blocks]
        shown["stub"] = POLICY not in message.metadata_text
    else:
        shown["content"] = _content(message.blocks)
    policy = policy_of(message)
    if policy is not None:
        shown["policy"] = policy
    for name in ("calls", "provider_payload"):
        if name in message.metadata_text:
            shown[name] = json.loads(message.metadata_text[name])
    return shown
