"""The plugins of a history chain: the three that come with Tailfold, and how one that a user wrote is called."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeVar

from projector.context.tokens import tokens_of
from projector.context.tool_groups import group
from projector.context.windows import window

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from projector.context.model_registry import ModelConfig
    from projector.message import Message

DEFAULT: Final = "plugin_history_default"
"""The plugin that is first in every chain."""
TOKEN_BUDGET: Final = 6000
"""Tokens that `plugin_history_token_budget` leaves where the model's entry names no number."""
TIME_LIMIT_S: Final = 2.0
Returned = TypeVar("Returned")


class PluginFailed(Exception):
    """A plugin did not give a history; the message says why, without quoting any content."""


class Bundled(NamedTuple):
    """A plugin that works on messages as they are: `shape(history, max_ctx, model)` copies none and edits none."""

    name: str
    shape: Callable[[Sequence[Message], int, ModelConfig], list[Message]]


class UserPlugin:
    """A plugin with the contract of the history chain: `process`, maybe `on_model_switch`, both plain functions.

    `name` is what a chain calls it, `strategy` its `NAME`.
    """

    def __init__(
        self,
        name: str,
        process: Callable[..., object],
        on_model_switch: Callable[..., object] | None = None,
        *,
        strategy: str = "",
    ) -> None:
        self.name, self.strategy = name, strategy or name
        self.process, self.on_model_switch = process, on_model_switch
        self._left: list[tuple[threading.Thread, float]] = []  # calls that nobody waits for any more, and since when

    async def call(self, function: Callable[[], Returned], *, time_limit: float = TIME_LIMIT_S) -> Returned:
        """What `function` returns, from a thread of its own, so that it never holds up the event loop.

        Raises `PluginFailed` for whatever it raises, and when `time_limit` seconds are over.
        A thread that hangs can't be ended: it is left behind with copies of everything, and does not keep the process
        alive. While it is there the plugin is not called again, so that such threads do not pile up. Code that never
        lets go of the interpreter's lock (a runaway regular expression) holds up everything; no limit helps there.
        """
        started = time.monotonic()
        self._left = [(thread, since) for thread, since in self._left if thread.is_alive()]
        if any(started - since >= time_limit for _, since in self._left):
            raise PluginFailed("an earlier call of it has not come back yet")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Returned] = loop.create_future()
        thread = threading.Thread(
            target=contextvars.copy_context().run, args=(_work, loop, done, function), name=self.name, daemon=True
        )
        thread.start()
        try:
            async with asyncio.timeout(time_limit):
                returned = await done
        except TimeoutError as error:
            self._left.append((thread, started))
            raise PluginFailed(f"it did not come back within {time_limit:g} s") from error
        except asyncio.CancelledError:
            self._left.append((thread, started))
            raise
        return returned


Plugin = Bundled | UserPlugin


def _work(loop: asyncio.AbstractEventLoop, done: asyncio.Future[Returned], function: Callable[[], Returned]) -> None:
    """Runs in the plugin's thread; never raises, whatever the plugin does."""
    try:
        tell = partial(done.set_result, function())
    except PluginFailed as error:
        tell = partial(done.set_exception, error)
    except BaseException as error:  # noqa: BLE001 - even `sys.exit()` of a plugin must not end the chain
        tell = partial(done.set_exception, PluginFailed(f"it raised {type(error).__name__}"))

    def tell_if_asked() -> None:
        if not done.done():  # else nobody waits any more
            tell()

    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(tell_if_asked)


class Need(NamedTuple):
    """What the newest group of a history takes, and what a plugin that left nothing of it allows."""

    plugin: str
    needed: int
    allowed: int
    unit: Literal["messages", "tokens"] = "messages"


def need_of(plugin: Plugin, newest: Sequence[Message], max_ctx: int, model: ModelConfig) -> Need:
    """Why a plugin left nothing: `allowed` is 0 where no limit of its own says it."""
    if isinstance(plugin, Bundled) and plugin.shape is keep_window:
        return Need(plugin.name, len(newest), max_ctx)
    if isinstance(plugin, Bundled) and plugin.shape is keep_token_budget:
        return Need(plugin.name, tokens_of(newest), _budget(model), "tokens")
    return Need(plugin.name, len(newest), 0)


def keep_window(history: Sequence[Message], max_ctx: int, model: ModelConfig) -> list[Message]:
    """The default: the last messages, as many as the session's window holds."""
    del model
    return window(history, max_ctx)


def keep_token_budget(history: Sequence[Message], max_ctx: int, model: ModelConfig) -> list[Message]:
    """The newest groups that fit the model's `token_budget`; a tool group weighs what its calls and results weigh."""
    del max_ctx
    left = _budget(model)
    kept: list[list[Message]] = []
    for messages in reversed(group(history)):
        left -= tokens_of(messages)
        if left < 0:
            break
        kept.append(messages)
    return [message for messages in reversed(kept) for message in messages]


def keep_role_pairs(history: Sequence[Message], max_ctx: int, model: ModelConfig) -> list[Message]:
    """User and assistant in turns, a user first: of a run of equal roles the newest stays, a tool group is one assistant."""
    del max_ctx, model
    kept: list[list[Message]] = []
    for messages in group(history):
        role = messages[0].role
        if kept and kept[-1][0].role == role:
            kept[-1] = messages
        elif kept or role == "user":
            kept.append(messages)
    return [message for messages in kept for message in messages]


def _budget(model: ModelConfig) -> int:
    return TOKEN_BUDGET if model.token_budget is None else model.token_budget


BUNDLED: Final[Mapping[str, Bundled]] = {
    plugin.name: plugin
    for plugin in (
        Bundled(DEFAULT, keep_window),
        Bundled("plugin_history_token_budget", keep_token_budget),
        Bundled("plugin_history_role_pair_enforcer", keep_role_pairs),
    )
}
