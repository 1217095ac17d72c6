"""Opens a store by its URL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar, get_args
from urllib.parse import unquote

from stream.checks import check_choice, check_flag, check_text
from stream.errors import StoreElsewhere, StoreUnusable
from stream.memory import MemoryStore
from stream.sqlite.database import Durability, open_database
from stream.sqlite.store import SqliteStore
from stream.tasks import finish_anyway
from stream.urls import is_meant_as_server, is_nats, is_postgres, shown_url

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator
    from types import TracebackType
    from typing import Protocol

    from stream.nats import NatsStore
    from stream.postgres import PostgresStore

    class Closable(Protocol):
        """What can be opened can be closed."""

        async def close(self) -> None:
            """Closes it."""


S = TypeVar("S", bound="Closable")
MEMORY: Final = "memory:"


def open_store(
    url: str, *, create: bool = True, durability: Durability = "full"
) -> Opening[MemoryStore | SqliteStore | PostgresStore | NatsStore]:
    """Opens the log at `url`: `memory:`, `sqlite:///path` (four slashes if absolute), a path, `postgresql://…`, `nats://…`.

    `async with open_store(url) as store` closes it at the end; `await open_store(url)` leaves that to you. With
    `create=False` a missing file is an error. `durability="normal"` may lose the newest appends to a power cut.
    The store works in the event loop that opens it. Raises `StoreUnusable`, also for a file of several names (hard
    links), one beside the write-ahead log of another, and one that was open in the process that this was forked from.

    On PostgreSQL (extra `postgres`) the tables lie in the schema `tailfold`, or in that of `?schema=name`; behind a pooler
    that lets nobody listen say `?wake=poll`; `?dialect=portable` asks for nothing that only PostgreSQL has. All else of the URL
    is the driver's. Raises `StoreUnreachable`, too.

    On NATS JetStream (extra `nats`; 2.12 or newer) the log lies in JetStream streams `NAME_0` to `NAME_{N-1}`:
    `nats://host:port,host2:port?stream=NAME&replicas=3&shards=N`; both numbers are fixed when it is made. Each server must
    run with `sync_interval: always`, which is looked for on its monitor (`&monitor=8222`), asked of all by a user of the
    system account (`&system=user:password`), or taken from `&sync=trusted`.
    An append holds what one message does there, see `EventStore.limits`.
    """
    check_text("url", url)
    check_flag("create", create)
    check_choice("durability", durability, get_args(Durability))

    async def make() -> MemoryStore | SqliteStore | PostgresStore | NatsStore:
        if url == MEMORY:
            return MemoryStore()
        if is_postgres(url):
            return await _open_postgres(url, create=create, durability=durability)
        if is_nats(url):
            from stream.nats import open_nats  # noqa: PLC0415 - an extra

            return await open_nats(url, create=create, durability=durability)
        database = await open_database(sqlite_path(url), create=create, durability=durability)
        try:
            return await SqliteStore.attach(database)
        except BaseException:
            await finish_anyway(database.abandon())
            raise

    return Opening(make)


async def _open_postgres(url: str, *, create: bool, durability: Durability) -> PostgresStore:
    from stream.postgres import PostgresStore, open_postgres  # noqa: PLC0415 - an extra

    database = await open_postgres(url, create=create, durability=durability)
    try:
        return await PostgresStore.attach(database)
    except BaseException:
        await finish_anyway(database.abandon())
        raise


def sqlite_path(url: str) -> str:
    """The path in a `sqlite:///` URL or a bare path; raises `StoreUnusable` for other URLs."""
    if not isinstance(url, str):
        raise StoreUnusable(repr(url), "a place is named by a str: use str(path)")
    if url.startswith("sqlite:///"):
        path = url.removeprefix("sqlite:///")
        if "?" in path or "#" in path:
            raise StoreUnusable(url, "a URL takes no options: leave out what begins with ? or #, in a name write %3F and %23")
        return unquote(path)
    if "://" in url or url == MEMORY or is_meant_as_server(url):
        kinds = "a path, sqlite:///path, postgresql://…, nats://… or memory:"
        raise StoreUnusable(shown_url(url), f"{url.partition(':')[0]}: is no kind of store: use {kinds}")
    if not url:
        raise StoreUnusable("''", "an empty path names no database: use a path, sqlite:///path or memory:")
    return url


class Opening(Generic[S]):
    """Something that is opened by `await`, or by `async with`, which also closes it."""

    def __init__(self, make: Callable[[], Awaitable[S]]) -> None:
        self._make = make
        self._made: S | None = None

    def __await__(self) -> Generator[None, None, S]:
        return self._make().__await__()

    async def __aenter__(self) -> S:
        self._made = await self._make()
        return self._made

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._made is None:
            return
        try:
            await self._made.close()
        except StoreElsewhere:
            if error is None:  # a child that ends within the block of its parent is told what ends it
                raise
