"""How long a result stays in the view and what becomes of it: policies, overrides, a registry."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import msgspec

from projector.context.settings_file import SettingsError, object_of, read_object
from projector.context.windows import check_limit

if TYPE_CHECKING:
    from collections.abc import Iterable

Kind = Literal["action", "loop", "sub_agent"]
Mode = Literal["none", "remove", "compact"]
CompactMode = Literal["first_n_chars", "ai_summary"]
_FIELDS: Final = ("turns", "mode", "compact_mode", "compact_length", "compact_prompt")


class ExpirationPolicy(msgspec.Struct, frozen=True, gc=False):
    """A result is seen by `turns + 1` prompts, None is no limit; then it is removed or compacted.

    `compact_length` in characters. Raises `ValueError` for negative turns, an unknown mode, `compact` without a
    `compact_mode`, `first_n_chars` without a length, and compact fields of any other mode.
    """

    turns: int | None = None
    mode: Mode = "none"
    compact_mode: CompactMode | None = None
    compact_length: int | None = None
    compact_prompt: str | None = None

    def __post_init__(self) -> None:
        _check_fields(self)
        if self.mode not in get_args(Mode):
            raise ValueError(f"mode must be one of {', '.join(get_args(Mode))}, not {self.mode!r}")
        given = [name for name in _FIELDS[2:] if getattr(self, name) is not None]
        if self.mode != "compact" and given:
            raise ValueError(f"{given[0]} is for the mode compact: leave it out of the mode {self.mode}")
        if self.mode == "compact" and self.compact_mode is None:
            raise ValueError("the mode compact needs a compact_mode")
        if self.compact_mode == "first_n_chars" and self.compact_length is None:
            raise ValueError("first_n_chars needs a compact_length")

    @property
    def expires(self) -> bool:
        """Whether it ever ends."""
        return self.mode != "none" and self.turns is not None


class Override(msgspec.Struct, frozen=True):
    """What a single run wants otherwise; None is "not set". `disable_expiration` beats everything.

    Raises `ValueError` for what no policy could be made of.
    """

    turns: int | None = None
    mode: Mode | None = None
    compact_mode: CompactMode | None = None
    compact_length: int | None = None
    compact_prompt: str | None = None
    disable_expiration: bool = False

    def __post_init__(self) -> None:
        _check_fields(self)
        if self.mode is not None and self.mode not in get_args(Mode):
            raise ValueError(f"mode must be one of {', '.join(get_args(Mode))}, not {self.mode!r}")


def _check_fields(given: ExpirationPolicy | Override) -> None:
    """What holds for a policy and for an override; a struct that is made in code is not checked by its types."""
    if given.turns is not None:
        check_limit("turns", given.turns, least=0)
    if given.compact_length is not None:
        check_limit("compact_length", given.compact_length)
    if given.compact_mode is not None and given.compact_mode not in get_args(CompactMode):
        raise ValueError(f"compact_mode must be one of {', '.join(get_args(CompactMode))}, not {given.compact_mode!r}")
    if not isinstance(given.compact_prompt, str | None):
        raise ValueError(f"compact_prompt must be the name of a prompt, not {given.compact_prompt!r}")  # noqa: TRY004 - of a value


DEFAULTS: Final[dict[Kind, ExpirationPolicy]] = {
    "action": ExpirationPolicy(),
    "loop": ExpirationPolicy(3, "remove"),
    "sub_agent": ExpirationPolicy(3, "remove"),
}
_NOTHING: Final = Override()


def resolve(
    kind: Kind,
    override: Override | None = None,
    configured: ExpirationPolicy | None = None,
    *,
    default_prompt: str | None = None,
) -> ExpirationPolicy | None:
    """The policy of a result: the override's fields, else what is configured for its action, else the default of its kind.

    None where it never expires. `default_prompt` is the action's own prompt, where the policy names none. Raises
    `ValueError` where the fields together make no policy, and for an unknown kind.
    """
    if kind not in DEFAULTS:
        raise ValueError(f"a kind of result is one of {', '.join(DEFAULTS)}, not {kind!r}")
    override = override or _NOTHING
    if override.disable_expiration:
        return None
    base = DEFAULTS[kind] if configured is None else configured
    found: dict[str, Any] = {name: getattr(base if getattr(override, name) is None else override, name) for name in _FIELDS}
    if found["mode"] != "compact":
        found |= dict.fromkeys(_FIELDS[2:])
    elif found["compact_mode"] == "ai_summary" and found["compact_prompt"] is None:
        found["compact_prompt"] = default_prompt
    policy = ExpirationPolicy(**found)
    return policy if policy.expires else None


def select(policies: Iterable[ExpirationPolicy | None]) -> ExpirationPolicy | None:
    """The policy of a message with the results of several actions: the one that ends first, None if none ever ends.

    At equal turns removal comes before compaction, then the smaller length.
    """
    ending = [policy for policy in policies if policy is not None and policy.expires]
    return min(ending, key=_eagerness, default=None)


def _eagerness(policy: ExpirationPolicy) -> tuple[float, bool, float]:
    length = math.inf if policy.compact_length is None else policy.compact_length
    return (policy.turns or 0, policy.mode != "remove", length)


class Action(msgspec.Struct, frozen=True):
    """What is configured for the results of an action: its policy (None: the default of its kind), and its own prompt."""

    policy: ExpirationPolicy | None = None
    kind: Kind = "action"
    default_prompt: str | None = None


class PolicyRegistry(msgspec.Struct, frozen=True):
    """The policies of actions, by name; an action that is not in it has the default of an action."""

    actions: Mapping[str, Action] = {}

    def policy_for(self, name: str, override: Override | None = None, *, kind: Kind | None = None) -> ExpirationPolicy | None:
        """The policy of a result of this action; `kind` where it is no action that the registry knows.

        None where it never expires. Raises `ValueError` as `resolve` does.
        """
        action = self.actions.get(name) or Action(kind=kind or "action")
        return resolve(action.kind, override, action.policy, default_prompt=action.default_prompt)


def read_registry(text: str, file: str) -> PolicyRegistry:
    """The registry in a JSON file: `{"actions": {NAME: {"turns": 2, "mode": "remove", ...}}}`.

    An entry holds the fields of a policy, `kind` and `default_prompt`. Raises `SettingsError`, which names the file and
    the key, for what is no policy and for an unknown key.
    """
    values = read_object(text, file)
    for name in values.keys() - {"actions"}:
        raise SettingsError(file, "this key is not known: only actions is", key=name)
    entries = object_of(values, "actions", file)
    return PolicyRegistry({name: _read_action(entries, name, file) for name in entries})


def _read_action(entries: dict[str, Any], name: str, file: str) -> Action:
    entry, key = object_of(entries, name, file, prefix="actions."), f"actions.{name}"
    known = (*_FIELDS, "kind", "default_prompt")
    for field in entry:
        if field not in known:
            raise SettingsError(file, f"this key is not known: {', '.join(known)} are", key=f"{key}.{field}")
    kind, prompt = entry.get("kind", "action"), entry.get("default_prompt")
    if kind not in get_args(Kind):
        raise SettingsError(file, f"one of {', '.join(get_args(Kind))} was expected", key=f"{key}.kind")
    if not isinstance(prompt, str | None):
        raise SettingsError(file, "the name of a prompt was expected", key=f"{key}.default_prompt")
    fields = {field: entry[field] for field in _FIELDS if field in entry}
    try:
        return Action(ExpirationPolicy(**fields) if fields else None, kind, prompt)
    except ValueError as error:
        raise SettingsError(file, str(error), key=key) from error
