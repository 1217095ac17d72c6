"""The history chain: each plugin gets what the one before it left, and what comes out is what a model is shown.

The path is never edited and nothing is lost by a plugin: each pass begins with the whole path again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cached_property
from operator import is_not
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from projector.context.model_registry import ModelConfig, find_model
from projector.context.plugin_items import BadItems, Item, fold_items, unfold_items
from projector.context.plugins import DEFAULT, TIME_LIMIT_S, Bundled, Need, Plugin, PluginFailed, UserPlugin, need_of
from projector.context.switches import Switched, apply_switch, record_switch
from projector.context.tool_groups import group, pair
from projector.context.windows import DEFAULT_MAX_CTX, check_limit, effective, window
from projector.message import Message
from stream.logger import Logger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LOG: Final = Logger("tailfold.history")
_TOLD: Final = ("user", "assistant", "tool")
"""The roles of a history; what the system says stands outside it."""
_Hook = Callable[..., object]
_Prepare = Callable[[list[Item], dict[str, Any]], tuple[_Hook, tuple[Any, ...]]]


class ChainSession(msgspec.Struct, frozen=True):
    """What a chain is told of a session. `max_ctx` is the effective window in messages, `last_active` in Unix seconds.

    `switched` is what plugins made of the history when the model was switched to this one.
    """

    id: str = ""
    model: str = ""
    config: ModelConfig = ModelConfig()
    max_ctx: int = DEFAULT_MAX_CTX
    last_active: float = 0.0
    switched: Switched | None = None

    def __post_init__(self) -> None:
        check_limit("max_ctx", self.max_ctx)


class Failure(msgspec.Struct, frozen=True, gc=False):
    """A plugin that was passed over, and why."""

    plugin: str
    why: str


class Chained(msgspec.Struct, frozen=True):
    """What a chain left of a path, for the session as it is now. `removed` and `kept` count messages of the path.

    `need` says what it would have taken to keep anything, where nothing was left of a history that was not empty.
    """

    messages: tuple[Message, ...]
    session: ChainSession
    removed: int
    kept: int
    failures: tuple[Failure, ...] = ()
    need: Need | None = None


def open_session(
    model: str, models: Mapping[str, ModelConfig], *, agent_max_ctx: int = DEFAULT_MAX_CTX, **known: Any
) -> ChainSession:
    """A session on a model, its window computed. Raises `UnknownModel`."""
    config = find_model(models, model)
    return ChainSession(model=model, config=config, max_ctx=effective(agent_max_ctx, config.max_context), **known)


async def run_chain(
    path: Sequence[Message],
    chain: Sequence[Plugin],
    session: ChainSession,
    *,
    time_limit: float = TIME_LIMIT_S,
    origin: Sequence[Message] | None = None,
) -> Chained:
    """What the chain leaves of a paired path (`pair`): called before each prompt, and after each reply.

    Never more than `session.max_ctx` messages, whatever a plugin adds; what the system says is not of the history: it
    is not counted, no plugin sees it, and it keeps its place, ahead of all where it began the path. It begins with what
    the session's last switch left of the path (`origin`, where `path` is a view of one), and what has come since. A
    plugin that raises, edits its input, returns no history or is not done within `time_limit` seconds, what it returned
    looked through, is logged and passed over. Raises `ValueError` for a chain that does not begin with the default.
    """
    pass_ = _Pass(path, chain, session, session.max_ctx, time_limit)
    if session.switched is not None:
        pass_.begin_with(session.switched, path if origin is None else pair(origin))
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

    A plugin without that hook is left out. One may set `history_max_ctx` of the session to another window, never larger
    than `agent_max_ctx`. That window and what the hooks made of the history stand in the session that comes back, and
    hold until the next switch, which begins with the whole path. Raises `UnknownModel`: nothing has changed then.
    """
    new = open_session(new_model, models, agent_max_ctx=agent_max_ctx, id=session.id, last_active=session.last_active)
    pass_ = _Pass(path, chain, new, agent_max_ctx, time_limit)
    for plugin in chain:
        await pass_.switch(plugin, session)
    return pass_.finish_switch()


class _Called(NamedTuple):
    """What a hook made of a history, looked through."""

    history: list[Message]
    max_ctx: int


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
        self.is_switched = False  # whether a hook made something else of it
        self.need: Need | None = None
        self.failures: list[Failure] = []

    @cached_property
    def ids(self) -> frozenset[str]:
        """Of the path; not known before a plugin needs it, for the default alone is to cost next to nothing."""
        return frozenset(message.id for message in self.path)

    def begin_with(self, switched: Switched, origin: Sequence[Message]) -> None:
        """What was recorded when the model was switched, and all that has come since."""
        self.history = apply_switch(self.whole, switched, [message for message in origin if message.role in _TOLD])
        self.is_pure = False
        if self.whole and not self.history:
            self.need = Need("on_model_switch", len(group(self.whole)[-1]), 0)

    async def process(self, plugin: Plugin) -> None:
        if isinstance(plugin, Bundled):
            self.shape(plugin)
            return
        model = self.session.config.for_plugin()
        await self.call(plugin, lambda items, session: (plugin.process, (_copies(items), session, model)))

    async def switch(self, plugin: Plugin, old: ChainSession) -> None:
        if isinstance(plugin, Bundled):
            self.shape(plugin)
            return
        hook = plugin.on_model_switch
        if hook is None:
            return
        models = old.model, self.session.model, old.config.for_plugin(), self.session.config.for_plugin()
        before = self.history
        await self.call(plugin, lambda _, session: (hook, (session, *models)), may_set_window=True)
        after = self.history
        self.is_switched = self.is_switched or len(before) != len(after) or any(map(is_not, before, after))

    def finish(self) -> Chained:
        """The ceiling is applied again, and what the system says goes back to its place."""
        shown = window(self.history, self.session.max_ctx)
        if shown:
            self.need = None
        elif self.history:
            self.need = Need("the ceiling behind the chain", len(group(self.history)[-1]), self.session.max_ctx)
        kept = len(shown) if self.is_pure else sum(message.id in self.ids for message in shown)
        messages = shown if len(self.whole) == len(self.path) else _with_system(self.path, shown)
        return Chained(tuple(messages), self.session, len(self.whole) - kept, kept, tuple(self.failures), self.need)

    def finish_switch(self) -> Chained:
        """What the hooks made of the history is recorded; where they left it as it was there is nothing to record."""
        if self.is_switched:
            switched = record_switch(self.whole, window(self.history, self.session.max_ctx))
            self.session = replace(self.session, switched=switched)
            self.history = apply_switch(self.whole, switched, self.whole)  # what is shown next, byte for byte
        return self.finish()

    def shape(self, plugin: Bundled) -> None:
        self.become(plugin, plugin.shape(self.history, self.session.max_ctx, self.session.config))

    def become(self, plugin: Plugin, history: list[Message]) -> None:
        """The history after a plugin."""
        if self.history and not history:
            self.need = need_of(plugin, group(self.history)[-1], self.session.max_ctx, self.session.config)
        self.history = history

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

    async def call(self, plugin: UserPlugin, prepare: _Prepare, *, may_set_window: bool = False) -> None:
        """Takes over what a hook returns, all of it or nothing. `prepare` gives the hook, and what it is called with."""
        history, ids, window_now = self.history, self.ids, self.session.max_ctx

        def work() -> _Called:
            """Runs in the plugin's thread: what it is given, and what it returned, may be large."""
            pristine = fold_items(history)
            session = self.told(pristine)
            hook, arguments = prepare(pristine, session)
            returned = hook(*arguments)
            try:
                if inspect.iscoroutine(returned):
                    returned.close()
                    raise BadItems("it is an async function: a plain one was expected")
                if session.get("history") != pristine or (arguments[0] is not session and arguments[0] != pristine):
                    raise BadItems("it changed its input")
                made = unfold_items(returned, history, plugin.name, items=pristine, reserved=ids)
                if not may_set_window:
                    return _Called(made, window_now)
                return _Called(made, min(check_limit("history_max_ctx", session.get("history_max_ctx")), self.ceiling))
            except BadItems as error:
                raise PluginFailed(str(error)) from error
            except Exception as error:  # objects of a plugin may do anything when they are looked at
                raise PluginFailed(f"what it left can't be used ({type(error).__name__})") from error

        try:
            called = await plugin.call(work, time_limit=self.time_limit)
        except PluginFailed as error:
            self.fail(plugin, str(error))
        else:
            self.become(plugin, called.history)
            self.session = replace(self.session, max_ctx=called.max_ctx)

    def fail(self, plugin: UserPlugin, why: str) -> None:
        _LOG.warning("history.plugin_failed", plugin=plugin.name, strategy=plugin.strategy, why=why)
        self.failures.append(Failure(plugin.name, why))


def _copies(items: Sequence[Item]) -> list[Item]:
    return [dict(item) for item in items]


def _with_system(path: Sequence[Message], shown: Sequence[Message]) -> list[Message]:
    """What the system says ahead of the history stays ahead of all, whatever a plugin put there.

    Later words of it stand before the first message shown that they stood before on the path; the others at the end.
    """
    places = {message.id: place for place, message in enumerate(path) if message.role in _TOLD}
    first = min(places.values(), default=len(path))
    system = [(place, message) for place, message in enumerate(path) if message.role not in _TOLD]
    merged = [message for place, message in system if place < first]
    at = len(merged)
    for message in shown:
        if message.role != "tool":  # a group is not taken apart
            place = places.get(message.id, -1)
            while at < len(system) and system[at][0] < place:
                merged.append(system[at][1])
                at += 1
        merged.append(message)
    return merged + [message for _, message in system[at:]]
