"""The history chain: each plugin gets what the one before it left, and what comes out is what a model is shown.

The path is never edited and nothing is lost by a plugin: each pass begins with the whole path again.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog
from msgspec.structs import replace

from projector.context.model_registry import ModelConfig, find_model
from projector.context.plugin_items import BadItems, Item, fold_items, unfold_items
from projector.context.plugins import DEFAULT, TIME_LIMIT_S, Bundled, Plugin, PluginFailed, UserPlugin
from projector.context.windows import DEFAULT_MAX_CTX, check_limit, effective, window
from projector.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_LOG: Final = structlog.get_logger("tailfold.history")
_TOLD: Final = ("user", "assistant", "tool")
"""The roles of a history; what the system says stands outside it."""


class ChainSession(msgspec.Struct, frozen=True):
    """What a chain is told of a session. `max_ctx` is the effective window in messages, `last_active` in Unix seconds."""

    id: str = ""
    model: str = ""
    config: ModelConfig = ModelConfig()
    max_ctx: int = DEFAULT_MAX_CTX
    last_active: float = 0.0

    def __post_init__(self) -> None:
        check_limit("max_ctx", self.max_ctx)


class Failure(msgspec.Struct, frozen=True):
    """A plugin that was passed over, and why."""

    plugin: str
    why: str


class Chained(msgspec.Struct, frozen=True):
    """What a chain left of a path, for the session as it is now. `removed` and `kept` count messages of the path."""

    messages: tuple[Message, ...]
    session: ChainSession
    removed: int
    kept: int
    failures: tuple[Failure, ...] = ()


def open_session(
    model: str, models: Mapping[str, ModelConfig], *, agent_max_ctx: int = DEFAULT_MAX_CTX, **known: Any
) -> ChainSession:
    """A session on a model, its window computed. Raises `UnknownModel`."""
    config = find_model(models, model)
    return ChainSession(model=model, config=config, max_ctx=effective(agent_max_ctx, config.max_context), **known)


async def run_chain(
    path: Sequence[Message], chain: Sequence[Plugin], session: ChainSession, *, time_limit: float = TIME_LIMIT_S
) -> Chained:
    """What the chain leaves of a paired path (`pair`): called before each prompt, and after each reply.

    Never more than `session.max_ctx` messages, whatever a plugin adds; what the system says is not of the history: it
    is not counted, no plugin sees it, and it keeps its place. A plugin that raises, edits its input, returns no history
    or is not done within `time_limit` seconds is logged and passed over. Raises `ValueError` for a chain that does not
    begin with the default plugin.
    """
    pass_ = _Pass(path, chain, session, session.max_ctx, time_limit)
    for plugin in chain:
        await pass_.process(plugin)
    return pass_.finish()


async def switch_model(
    path: Sequence[Message],
    chain: Sequence[Plugin],
    session: ChainSession,
    models: Mapping[str, ModelConfig],
    new_model: str,
    *,
    agent_max_ctx: int = DEFAULT_MAX_CTX,
    time_limit: float = TIME_LIMIT_S,
) -> Chained:
    """The session on another model, and what it is shown of the path at once, by the plugins' `on_model_switch`.

    A plugin without that hook is left out. One may set `history_max_ctx` of the session to another window; it holds
    until the next switch, and is never larger than `agent_max_ctx`. Raises `UnknownModel`: nothing has changed then.
    """
    new = open_session(new_model, models, agent_max_ctx=agent_max_ctx, id=session.id, last_active=session.last_active)
    pass_ = _Pass(path, chain, new, agent_max_ctx, time_limit)
    for plugin in chain:
        await pass_.switch(plugin, session)
    return pass_.finish()


class _Pass:
    """A history on its way through a chain."""

    def __init__(
        self, path: Sequence[Message], chain: Sequence[Plugin], session: ChainSession, ceiling: int, time_limit: float
    ) -> None:
        if not chain or chain[0].name != DEFAULT:
            raise ValueError(f"a history chain begins with {DEFAULT}")
        self.path, self.session, self.ceiling, self.time_limit = path, session, ceiling, time_limit
        self.whole = [message for message in path if message.role in _TOLD]
        self.history = self.whole
        self.is_pure = all(isinstance(plugin, Bundled) for plugin in chain)  # bundled ones add nothing
        self.failures: list[Failure] = []

    @cached_property
    def ids(self) -> frozenset[str]:
        """Of the path; not known before a plugin needs it, for the default alone is to cost next to nothing."""
        return frozenset(message.id for message in self.path)

    async def process(self, plugin: Plugin) -> None:
        if isinstance(plugin, Bundled):
            self.shape(plugin)
            return
        pristine = fold_items(self.history)
        given, session = _copies(pristine), self.told(pristine)
        await self.call(plugin, plugin.process, (given, session, self.session.config.for_plugin()), pristine, session)

    async def switch(self, plugin: Plugin, old: ChainSession) -> None:
        if isinstance(plugin, Bundled):
            self.shape(plugin)
            return
        if plugin.on_model_switch is None:
            return
        pristine = fold_items(self.history)
        session = self.told(pristine)
        arguments = (session, old.model, self.session.model, old.config.for_plugin(), self.session.config.for_plugin())
        await self.call(plugin, plugin.on_model_switch, arguments, pristine, session, may_set_window=True)

    def finish(self) -> Chained:
        """The ceiling is applied again, and what the system says goes back to its place."""
        shown = window(self.history, self.session.max_ctx)
        kept = len(shown) if self.is_pure else sum(message.id in self.ids for message in shown)
        messages = shown if len(self.whole) == len(self.path) else _with_system(self.path, shown)
        return Chained(tuple(messages), self.session, len(self.whole) - kept, kept, tuple(self.failures))

    def shape(self, plugin: Bundled) -> None:
        self.history = plugin.shape(self.history, self.session.max_ctx, self.session.config)

    def told(self, items: Sequence[Item]) -> dict[str, Any]:
        """The session as a plugin gets it, a copy for each."""
        now = self.session
        return {
            "id": now.id,
            "model": now.model,
            "history": _copies(items),
            "history_max_ctx": now.max_ctx,
            "last_active": now.last_active,
        }

    async def call(
        self,
        plugin: UserPlugin,
        hook: Callable[..., object],
        arguments: tuple[Any, ...],
        pristine: list[Item],
        session: dict[str, Any],
        *,
        may_set_window: bool = False,
    ) -> None:
        """Takes over what a hook returns, all of it or nothing."""
        try:
            returned = await plugin.call(hook, *arguments, time_limit=self.time_limit)
            if session.get("history") != pristine or (arguments[0] is not session and arguments[0] != pristine):
                raise BadItems("it changed its input")
            history = unfold_items(returned, self.history, plugin.name, items=pristine, reserved=self.ids)
            max_ctx = self.session.max_ctx
            if may_set_window:
                max_ctx = min(check_limit("history_max_ctx", session.get("history_max_ctx")), self.ceiling)
        except (PluginFailed, BadItems) as error:
            self.fail(plugin, str(error))
        except Exception as error:  # noqa: BLE001 - objects of a plugin may do anything when they are looked at
            self.fail(plugin, f"what it left can't be used ({type(error).__name__})")
        else:
            self.history = history
            self.session = replace(self.session, max_ctx=max_ctx)

    def fail(self, plugin: UserPlugin, why: str) -> None:
        _LOG.warning("history.plugin_failed", plugin=plugin.name, strategy=plugin.strategy, why=why)
        self.failures.append(Failure(plugin.name, why))


def _copies(items: Sequence[Item]) -> list[Item]:
    return [dict(item) for item in items]


def _with_system(path: Sequence[Message], shown: Sequence[Message]) -> list[Message]:
    """Each message of the system before the first one shown that it stood before on the path; the others at the end."""
    places = {message.id: place for place, message in enumerate(path) if message.role in _TOLD}
    system = [(place, message) for place, message in enumerate(path) if message.role not in _TOLD]
    merged: list[Message] = []
    at = 0
    for message in shown:
        if message.role != "tool":  # a group is not taken apart
            place = places.get(message.id, -1)
            while at < len(system) and system[at][0] < place:
                merged.append(system[at][1])
                at += 1
        merged.append(message)
    return merged + [message for _, message in system[at:]]
