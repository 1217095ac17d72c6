"""Who did what to a view: which plugin of a chain, which tool's result by which policy, whose addition for how long."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from projector.context.facts import facts_of
from projector.context.plugins import Bundled
from projector.context.retention import known_policy
from projector.context.tool_groups import ids_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from projector.context.model_registry import ModelConfig
    from projector.context.plugins import Plugin
    from projector.context.policies import ExpirationPolicy
    from projector.message import Message

_HEADER: Final = re.compile(r"\n### PLUGIN (.*) CONTEXT ###\n", re.DOTALL)


class Witness:
    """Sees a history behind each plugin of a chain, and can tell then who left out or added a message."""

    def __init__(self, chain: Iterable[Plugin]) -> None:
        self._seen: list[tuple[str, Sequence[Message]]] = []
        self.chain: list[Plugin] = [one for plugin in chain for one in (plugin, self._behind(plugin.name))]
        """The same chain, with the witness behind each of it."""

    def _behind(self, name: str) -> Bundled:
        def look(history: Sequence[Message], max_ctx: int, model: ModelConfig) -> list[Message]:
            del max_ctx, model
            self._seen.append((name, history))
            return history if isinstance(history, list) else list(history)

        return Bundled(name, look)

    def tell(self, before: Sequence[Message]) -> dict[str, str]:
        """The plugin, by the id of each message that it left out or added."""
        told: dict[str, str] = {}
        earlier = set(ids_of(before))
        for name, history in self._seen:
            now = set(ids_of(history))
            told |= dict.fromkeys(earlier ^ now, name)
            earlier = now
        return told


def policy_words(policy: ExpirationPolicy) -> str:
    """A policy in a few words."""
    turns = f"{policy.turns} turn{'' if policy.turns == 1 else 's'}"
    if policy.mode != "compact":
        return f"{policy.mode} after {turns}"
    how = [str(policy.compact_mode)]
    how += [] if policy.compact_length is None else [f"{policy.compact_length} characters"]
    how += [] if policy.compact_prompt is None else [f"prompt {policy.compact_prompt}"]
    return f"compact after {turns} ({', '.join(how)})"


def tell_results(
    names: Collection[str],
    tools: Mapping[str, str],
    policies: Mapping[str, ExpirationPolicy],
    otherwise: str = "as it was recorded",
) -> dict[str, str]:
    """The tool and the policy, by the id of each message named; what no policy has done was recorded before."""
    return {name: _tool_and_policy(tools.get(name), policies.get(name), otherwise) for name in names}


@lru_cache(256)
def _tool_and_policy(tool: str | None, policy: ExpirationPolicy | None, otherwise: str) -> str:
    """Thousands of results are of the same tool."""
    what = otherwise if policy is None else policy_words(policy)
    return f"tool {tool}: {what}" if tool else what


def tell_additions(before: Sequence[Message], after: Sequence[Message]) -> dict[str, str]:
    """The plugins whose additions to a message are over, and for how many messages they were kept."""
    left = {message.id: message for message in after}
    told = {}
    for message in before:
        now = left.get(message.id)
        if now is message:
            continue
        facts = facts_of(message)
        if facts.additions is None or facts.additions[0] is not now:
            facts.additions = now, _gone(message, now)
        told[message.id] = facts.additions[1]
    return told


def _gone(message: Message, now: Message | None) -> str:
    policy, label = known_policy(message) or (), ""
    kept = {id(block) for block in (now.blocks if now is not None else ())}
    gone: dict[str, None] = {}
    for block, keep in zip(message.blocks, policy, strict=False):
        header = _HEADER.fullmatch(block.text) if block.kind == "text" else None
        label = header[1] if header is not None else label
        if id(block) not in kept and keep is not None and label:
            gone[f"plugin {label}: kept for {keep} message{'' if keep == 1 else 's'}"] = None
    return ", ".join(gone)
