"""The registry of models: what each one prefers of a history (`llm-models.json`).

`{"models": {"small": {"max_context": 20, "token_budget": 4000}}}`; whatever else a model's entry holds is handed to
plugins as it is.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import msgspec

from projector.context.settings_file import SettingsError, number_of, object_of, read_object
from projector.context.windows import check_limit

if TYPE_CHECKING:
    from collections.abc import Mapping


class UnknownModel(ValueError):
    """The registry has no such model; the message names those that it has."""

    def __init__(self, name: str, known: Mapping[str, ModelConfig]) -> None:
        names = ", ".join(sorted(known)[:20]) or "none at all"
        super().__init__(f"there is no model {name[:60]!r}: there are {names}")
        self.name = name


class ModelConfig(msgspec.Struct, frozen=True):
    """`max_context` in messages and `token_budget` in tokens; None is no preference. Raises `ValueError` below 1."""

    max_context: int | None = None
    token_budget: int | None = None
    entry: dict[str, Any] = {}

    def __post_init__(self) -> None:
        for name in ("max_context", "token_budget"):
            if getattr(self, name) is not None:
                check_limit(name, getattr(self, name))

    def for_plugin(self) -> dict[str, Any]:
        """The entry as a plugin gets it: a copy of its own, without what is not set."""
        known = {"max_context": self.max_context, "token_budget": self.token_budget}
        return deepcopy({name: value for name, value in self.entry.items() if name not in known}) | {
            name: value for name, value in known.items() if value is not None
        }


def read_models(text: str, file: str = "llm-models.json") -> dict[str, ModelConfig]:
    """The models of a registry file by name. Raises `SettingsError` with file and key, or with file and line."""
    values = read_object(text, file)
    if "models" not in values:
        raise SettingsError(file, "the models are missing: an object of one entry a model was expected", key="models")
    models = {}
    entries = object_of(values, "models", file)
    for name in entries:
        entry = object_of(entries, name, file, prefix="models.")
        prefix = f"models.{name}."
        limits = {key: number_of(entry, key, file, default=None, prefix=prefix) for key in ("max_context", "token_budget")}
        models[name] = ModelConfig(**limits, entry=entry)
    return models


def find_model(models: Mapping[str, ModelConfig], name: str) -> ModelConfig:
    """The entry of a model. Raises `UnknownModel`."""
    if name not in models:
        raise UnknownModel(name, models)
    return models[name]
