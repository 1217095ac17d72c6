"""The server's errors in the words of a log, each with the way out."""

from __future__ import annotations

from typing import Final

import asyncpg
from asyncpg import exceptions as raised
from asyncpg.exceptions import _base as client

from stream.errors import StoreBusy, StoreFull, StoreUnreachable, StoreUnusable, StreamError

FAILURES: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
"""What the driver raises; anything else is a fault of our own."""

_GONE: Final = (
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    raised.ConnectionDoesNotExistError,
    raised.ConnectionFailureError,
    raised.ConnectionRejectionError,
    raised.ClientCannotConnectError,
    raised.PostgresConnectionError,
    raised.AdminShutdownError,
    raised.CrashShutdownError,
    raised.CannotConnectNowError,
    raised.TooManyConnectionsError,
    OSError,
    TimeoutError,
)
_REFUSED: Final = (client.DataError, client.ClientConfigurationError)  # the driver's word on what it was given
_AGAIN: Final = (
    raised.SerializationError,
    raised.DeadlockDetectedError,
    raised.UniqueViolationError,
    raised.InvalidCachedStatementError,  # somebody has changed the tables
)
_TOO_LONG: Final = (raised.QueryCanceledError, raised.LockNotAvailableError)
_OF_ONE: Final = ("22", "23", "54", "58", "P0", "XX")  # what is wrong with a value, a row or a page
_WAYS_OUT: Final = (
    (raised.InvalidCatalogNameError, "make it first (createdb), or name another one in the URL"),
    (
        (raised.InvalidPasswordError, raised.InvalidAuthorizationSpecificationError),
        "give user and password in the URL, or in PGUSER and PGPASSWORD",
    ),
    (raised.InsufficientPrivilegeError, "let this user make the schema (GRANT CREATE ON DATABASE …), or make it his own"),
    (
        raised.ReadOnlySQLTransactionError,
        "this is a standby, or was made read-only: name the primary, or several hosts and target_session_attrs=read-write",
    ),
)


def is_gone(error: BaseException) -> bool:
    """Whether the connection is of no more use: what was under way on it has an unknown outcome."""
    if any(isinstance(error, kinds) for kinds, _ in _WAYS_OUT):
        return False
    if isinstance(error, _REFUSED):
        return False
    return isinstance(error, _GONE) or getattr(error, "severity_en", "") in ("FATAL", "PANIC")


def is_again(error: BaseException) -> bool:
    """Whether somebody else was in the way, and the whole of it is to be done again (40001, 40P01, 23505)."""
    return isinstance(error, _AGAIN) and getattr(error, "table_name", None) != "appends"  # there nobody is: it is damage


def is_of_one(error: BaseException) -> bool:
    """Whether it may be the fault of one of those that were in one statement."""
    return str(getattr(error, "sqlstate", None) or "").startswith(_OF_ONE)


def translate(error: BaseException, name: str) -> StreamError:
    """What is told to a caller."""
    why = _first_line(error)
    for kinds, way_out in _WAYS_OUT:
        if isinstance(error, kinds):
            return StoreUnusable(name, f"{why}: {way_out}")
    if is_gone(error):
        return StoreUnreachable(name, f"{why}: see whether the server runs, and whether host and port are right")
    if isinstance(error, _TOO_LONG):
        return StoreBusy(f"{name}: {why}: nothing was stored, try again")
    if isinstance(error, raised.InsufficientResourcesError):
        return StoreFull(f"{name}: {why}")
    return StoreUnusable(name, why)


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0].rstrip(".: ")
