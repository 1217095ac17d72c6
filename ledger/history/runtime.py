"""The history chain of a running program: what each session is shown, and the answers to runtime commands.

Joins the settings, the models, the plugins and the sessions. What a path is comes from the caller, who reads it from
the ledger each time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from ledger.history.discovery import discover, load_chain
from ledger.history.settings import change_configuration, read_configuration
from projector.context.chain import open_session, run_chain, switch_model
from projector.context.model_registry import UnknownModel
from projector.context.plugins import TIME_LIMIT_S
from projector.context.runtime_commands import BadCommand, SetMaxContext, SetMaxUsers, SetModel, parse_command
from projector.context.settings_file import SettingsError
from projector.context.switches import Switched
from stream.logger import Logger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ledger.history.discovery import Found
    from ledger.history.sessions import SessionRegistry, UserSession
    from ledger.history.settings import HistorySettings
    from projector.context.chain import Chained, ChainSession
    from projector.context.model_registry import ModelConfig
    from projector.context.plugins import Plugin
    from projector.context.runtime_commands import Command
    from projector.message import Message

_LOG: Final = Logger("tailfold.history")


class HistoryRuntime:
    """A chain with its settings, as it was when it was opened, and as runtime commands have changed it since.

    A session's state holds `model`, `max_ctx` where a plugin set another window when the model was switched, and
    `switched`, what plugins made of the history then. They survive being saved, and hold until the next switch.
    """

    def __init__(
        self,
        path: Path,
        *,
        configuration: HistorySettings,
        found: Mapping[str, Found],
        chain: Sequence[Plugin],
        models: Mapping[str, ModelConfig],
        sessions: SessionRegistry,
        default_model: str,
        time_limit: float = TIME_LIMIT_S,
    ) -> None:
        self.path, self.configuration, self.found, self.chain = path, configuration, found, chain
        self.models, self.sessions, self.default_model, self.time_limit = models, sessions, default_model, time_limit

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        models: Mapping[str, ModelConfig],
        sessions: SessionRegistry,
        default_model: str,
        folder: Path | None = None,
        time_limit: float = TIME_LIMIT_S,
    ) -> HistoryRuntime:
        """Reads the settings at `path`, loads the plugins of their chain, and gives the sessions their limits.

        Raises `SettingsError`, `BadPlugin`, `UnknownModel` for the default model, and `OSError`.
        """
        open_session(default_model, models)
        found = discover(folder)
        configuration = read_configuration(path, found)
        chain = load_chain(configuration.chain, found)
        sessions.set_max_users(configuration.max_users)
        sessions.set_timeout(configuration.session_idle_timeout_minutes)
        return cls(
            path,
            configuration=configuration,
            found=found,
            chain=chain,
            models=models,
            sessions=sessions,
            default_model=default_model,
            time_limit=time_limit,
        )

    def chain_session(self, session: UserSession) -> ChainSession:
        """What the chain is told of a session, by the settings as they are now; a model that is gone is the default one."""
        model = session.state.get("model")
        known = model if isinstance(model, str) and model in self.models else self.default_model
        limit = self.configuration.agent_max_ctx
        made = open_session(known, self.models, agent_max_ctx=limit, id=session.id, last_active=session.last_active)
        if known != model:
            return made
        own = session.state.get("max_ctx")
        window = min(own, limit) if type(own) is int and own >= 1 else made.max_ctx
        return replace(made, max_ctx=window, switched=_read_switched(session))

    async def show(self, session: UserSession, path: Sequence[Message]) -> Chained:
        """What a session is shown of a paired path: before each prompt and after each reply."""
        return await run_chain(path, self.chain, self.chain_session(session), time_limit=self.time_limit)

    async def obey(self, text: str, session: UserSession, path: Sequence[Message]) -> str | None:
        """Carries out a runtime command and answers it in words; None for a message that is none.

        What can't be done is answered with its reason, and nothing has changed then.
        """
        try:
            command = parse_command(text)
            return None if command is None else await self._carry_out(command, session, path)
        except BadCommand as error:
            return str(error)
        except (UnknownModel, SettingsError, OSError) as error:  # the settings file may be broken, or not be written
            return f"{error}; nothing was changed"

    async def _carry_out(self, command: Command, session: UserSession, path: Sequence[Message]) -> str:
        match command:
            case SetModel(name):
                return await self._set_model(name, session, path)
            case SetMaxContext(n, temp):
                return await self._set_max_ctx(n, session, path, is_temporary=temp)
            case SetMaxUsers(n):
                self.sessions.set_max_users(n)
                return f"the limit of sessions is {n}; open now: {len(self.sessions)}"
            case _:
                self.sessions.set_timeout(command.n)
                return f"an idle session is let go after {command.n} minutes" if command.n else "idle sessions stay"

    async def _set_model(self, name: str, session: UserSession, path: Sequence[Message]) -> str:
        limits: dict[str, Any] = {"agent_max_ctx": self.configuration.agent_max_ctx, "time_limit": self.time_limit}
        done = await switch_model(path, self.chain, self.chain_session(session), self.models, name, **limits)
        session.state["model"] = name
        for choice in ("max_ctx", "switched"):
            session.state.pop(choice, None)
        if done.session.switched is not None:
            session.state["switched"] = msgspec.to_builtins(done.session.switched)
        if done.session.max_ctx != open_session(name, self.models, agent_max_ctx=limits["agent_max_ctx"]).max_ctx:
            session.state["max_ctx"] = done.session.max_ctx
        return f"the model is {name}: {done.removed} removed, {done.kept} kept"

    async def _set_max_ctx(self, n: int, session: UserSession, path: Sequence[Message], *, is_temporary: bool) -> str:
        if not is_temporary:  # in a thread: another program may hold the file
            await asyncio.to_thread(
                change_configuration, self.path, self.found, lambda before: replace(before, agent_max_ctx=n)
            )
        self.configuration = replace(self.configuration, agent_max_ctx=n)
        done = await self.show(session, path)
        how = ", until the program ends" if is_temporary else ""
        return f"at most {n} messages are shown{how}: {done.removed} removed, {done.kept} kept"


def _read_switched(session: UserSession) -> Switched | None:
    """What a session's state says that plugins made of its history; None where it says nothing that can be read."""
    said = session.state.get("switched")
    try:
        return None if said is None else msgspec.convert(said, Switched)
    except msgspec.ValidationError as error:
        _LOG.warning("history.switch_not_read", session_id=session.id, why=str(error))
        return None
