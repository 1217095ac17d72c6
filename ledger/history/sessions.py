"""The sessions of users: how many there may be, and idle ones saved and let go until they are resumed."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from ledger.errors import LedgerError
from ledger.history.settings import DEFAULT_MAX_USERS, DEFAULT_TIMEOUT_MINUTES
from projector.context.windows import check_limit
from stream.limits import check_id
from stream.logger import Logger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

_LOG: Final = Logger("tailfold.history")


class TooManySessions(LedgerError):
    """As many sessions are open as there may be: close one, wait until an idle one is let go, or raise the limit."""

    def __init__(self, max_users: int) -> None:
        super().__init__(f"{max_users} sessions are open, as many as there may be: close one, or raise max_users")
        self.max_users = max_users


class UnknownSession(LedgerError):
    """No such session is open."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"no session {session_id[:60]!r} is open: open it first")
        self.session_id = session_id


class UserSession:
    """An open session. `state` is what is saved and restored: plain values; `last_active` in Unix seconds.

    `uses` counts how often it was touched.
    """

    def __init__(self, session_id: str, state: dict[str, Any], last_active: float) -> None:
        self.id, self.state, self.last_active = session_id, state, last_active
        self.uses = 0


class SessionRegistry:
    """The open sessions of one process; for the tasks of one event loop.

    `save(session_id, state)` is awaited before a session is let go, `restore(session_id)` when one is opened: it gives
    the state, or None for a new session. Raises `ValueError` for a limit out of range.
    """

    def __init__(
        self,
        *,
        max_users: int = DEFAULT_MAX_USERS,
        timeout_minutes: int = DEFAULT_TIMEOUT_MINUTES,
        save: Callable[[str, dict[str, Any]], Awaitable[None]] | None = None,
        restore: Callable[[str], Awaitable[dict[str, Any] | None]] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.max_users = check_limit("max_users", max_users)
        self.timeout_minutes = check_limit("timeout_minutes", timeout_minutes, least=0)
        self._save, self._restore, self._clock = save, restore, clock
        self._open: dict[str, UserSession] = {}
        self._coming: dict[str, asyncio.Future[None]] = {}  # they count already, or two at once could be one too many
        self._going: dict[str, asyncio.Future[None]] = {}

    def __len__(self) -> int:
        """How many sessions count against the limit."""
        return len(self._open) + len(self._coming)

    def set_max_users(self, max_users: int) -> None:
        """How many there may be from now on; those that are open stay. Raises `ValueError` below 1."""
        self.max_users = check_limit("max_users", max_users)

    def set_timeout(self, minutes: int) -> None:
        """When an idle session is let go from now on; 0 is never. Raises `ValueError` below 0."""
        self.timeout_minutes = check_limit("timeout_minutes", minutes, least=0)

    async def open(self, session_id: str, *, now: float | None = None) -> UserSession:
        """The session, restored where it was saved, new where it was not; the only way in, whatever a client calls it.

        Raises `TooManySessions`, unless it is open; `InvalidId`; and what `restore` raises: it is not open then.
        """
        check_id("session id", session_id)
        while True:
            if session_id in self._going:  # what is being saved must be whole before it is restored
                await asyncio.shield(self._going[session_id])
            elif session_id in self._coming:
                await asyncio.shield(self._coming[session_id])
            elif session_id in self._open:
                return self.touch(session_id, now=now)
            else:
                return await self._make(session_id, now)

    def get(self, session_id: str) -> UserSession:
        """An open session. Raises `UnknownSession`."""
        if session_id not in self._open:
            raise UnknownSession(session_id)
        return self._open[session_id]

    def touch(self, session_id: str, *, now: float | None = None) -> UserSession:
        """An open session, active now. Raises `UnknownSession`."""
        session = self.get(session_id)
        session.last_active = self._clock() if now is None else now
        session.uses += 1
        return session

    async def close(self, session_id: str) -> None:
        """Saves a session and lets it go. Raises `UnknownSession`, and what `save` raises: it is open still then."""
        session = self.get(session_id)
        while self._open.get(session_id) is session:
            if session_id in self._going:
                await asyncio.shield(self._going[session_id])
            else:
                await self._let_go(session)  # again, where it was used while it was saved

    async def reap(self, *, now: float | None = None) -> list[str]:
        """Saves and lets go what has been idle for longer than the timeout; returns the ids.

        A session that is used while it is saved stays. One that can't be saved stays too, and is logged.
        """
        if not self.timeout_minutes:
            return []
        oldest = (self._clock() if now is None else now) - self.timeout_minutes * 60
        reaped = []
        for session in [session for session in self._open.values() if session.last_active < oldest]:
            try:
                if await self._let_go(session):
                    reaped.append(session.id)
            except Exception as error:  # noqa: BLE001 - one that can't be saved must not keep the others
                _LOG.warning("history.session_not_saved", session_id=session.id, why=type(error).__name__)
        return reaped

    @asynccontextmanager
    async def reaping(self, *, every_s: float = 60.0) -> AsyncIterator[None]:
        """Reaps again and again while the block runs."""

        async def work() -> None:
            while True:
                await asyncio.sleep(every_s)
                await self.reap()

        task = asyncio.create_task(work())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _make(self, session_id: str, now: float | None) -> UserSession:
        if len(self) >= self.max_users:
            raise TooManySessions(self.max_users)
        self._coming[session_id] = arrived = asyncio.get_running_loop().create_future()
        try:
            state = None if self._restore is None else await self._restore(session_id)
            session = UserSession(session_id, {} if state is None else state, self._clock() if now is None else now)
            self._open[session_id] = session
        finally:
            del self._coming[session_id]
            arrived.set_result(None)
        return session

    async def _let_go(self, session: UserSession) -> bool:
        """Whether it went: not if it was used while it was saved."""
        if session.id in self._going or self._open.get(session.id) is not session:
            return False
        before = session.uses
        self._going[session.id] = gone = asyncio.get_running_loop().create_future()
        try:
            if self._save is not None:
                await self._save(session.id, session.state)
            if session.uses != before:
                return False
            del self._open[session.id]
        finally:
            del self._going[session.id]
            gone.set_result(None)
        return True
