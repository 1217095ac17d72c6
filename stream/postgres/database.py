"""One schema of a PostgreSQL database: jobs as transactions on a few connections, run again where others were in the way.

A job is driven statement by statement, and awaits nothing else. Callers await a task of its own: cancelling them can't leave
a statement half done or a transaction open.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeVar

import anyio
import asyncpg

from stream.errors import StoreBusy, StoreClosed, StoreUnreachable, StoreUnusable, StreamError
from stream.home import Home
from stream.ongoing import OngoingWork
from stream.postgres.address import UNREADABLE, read_address
from stream.postgres.connection import notice_silence
from stream.postgres.dialects import PORTABLE, POSTGRES
from stream.postgres.errors import FAILURES, is_again, is_gone, translate
from stream.postgres.jobs import BEGIN, BEGIN_LOOK, Newer, Run, TakesMore, source
from stream.postgres.listener import Listener
from stream.postgres.own_changes import OwnChanges
from stream.postgres.server import check_server
from stream.postgres.statements import told
from stream.postgres.statements import translate as translate_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from stream.database import Row, Sql
    from stream.postgres.address import Address
    from stream.postgres.connection import Connection

T = TypeVar("T")
Durability = Literal["full", "normal"]
PATIENCE_S: Final = 30.0
_CONNECTIONS: Final = 8
_CONNECT_S: Final = 10.0
_STOPPED_S: Final = 10.0
"""For so long a process that was stopped in a transaction holds up the others; going on, it does the whole of it again."""
_TRIES: Final = 3
"""How often others may be in the way of a transaction before it keeps them out."""
_FASTER: Final = (  # what is told where another opener makes the same, in one moment of that or another
    asyncpg.UniqueViolationError, asyncpg.DuplicateSchemaError, asyncpg.DuplicateTableError, asyncpg.DuplicateObjectError,
)  # fmt: skip
_NOTHING: Final = "there is no Tailfold in schema {!r}, or this user may not see it: open it with create, or import something"
_IS_PORTABLE: Final = """
SELECT EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = current_schema AND table_name = 'streams'
  AND column_name = 'name' AND collation_name IS NULL)"""
"""Whether the tables were made in that dialect: to ask for another order than theirs would leave their indexes aside."""
_NO_SETTING: Final = "an option of the URL is no setting of the server: leave it out, and write & as %26 in a password"
_SHORT_JOBS: Final = 1000  # places in the program, not jobs
_COMPONENTS: Final = "CREATE TABLE IF NOT EXISTS components (name text PRIMARY KEY, version bigint NOT NULL)"


class PostgresDatabase:
    """A schema that is open: `stream.database.Database` on PostgreSQL. Made by `open_postgres`.

    `server` is what may be said to it, known once it is open. `trips` counts round trips to it, `connects` the connections that
    were made. `gate` is a statement that keeps those out who are in the way of transactions again and again. What meets a
    server that is gone waits for it up to `PATIENCE_S` and is tried again, unless its outcome is unknown: then, and behind that
    time, it raises `StoreUnreachable`.
    """

    dialect: ClassVar[Literal["sqlite", "postgres"]] = "postgres"
    is_private_copy: ClassVar[bool] = False
    checks_versions: ClassVar[bool] = True

    def __init__(self, address: Address, durability: Durability) -> None:
        self.path = address.name
        self.trips = self.connects = 0
        self.home = Home(address.name)
        self.address = address
        self.server = POSTGRES
        self._durability = durability
        self.gate: str | None = None
        self.processes: set[int] = set()
        self._hosts = address.hosts
        self._pool: Any = None
        self.ongoing = OngoingWork(self.check)
        self._closing = False
        self.own_changes = OwnChanges()
        self._listener = Listener(self)
        self._installed: dict[str, int] = {}
        self._begin = BEGIN
        self._short: set[object] = set()

    async def transact(self, job: Callable[[Sql], Awaitable[T]]) -> T:
        """See `stream.database.Database`: serializable, and run again from its beginning where others were in the way."""
        return await self.ongoing.run(self._again(job, self._begin))

    async def look(self, job: Callable[[Sql], Awaitable[T]]) -> T:
        """See `stream.database.Database`: one snapshot, which nobody waits for."""
        return await self.ongoing.run(self._look(job))

    async def write(self, job: Callable[[Sql], Awaitable[T]]) -> T:
        """See `stream.database.Database`."""
        return await self.ongoing.run(self._again(job, None))

    async def read(self, text: str, parameters: Sequence[Any] = (), /) -> list[Row]:
        """See `stream.database.Database`."""
        return await self.ongoing.run(self._again(lambda sql: sql(text, parameters), None, only_reads=True))

    def watch(self, watcher: Callable[[], Awaitable[None]]) -> Callable[[], None]:
        """See `stream.database.Database`."""
        self.check()
        return self._listener.add(watcher)

    @property
    def polls(self) -> bool:
        """Whether it is asked for what others have committed, instead of told."""
        return self.address.wake == "poll" or not self.server.tells

    def check(self) -> None:
        """Raises `StoreElsewhere`, and `StoreClosed`; asks nobody."""
        self.home.check()
        if self._closing:
            raise StoreClosed(f"{self.path} is closed")

    async def install(
        self, component: str, scripts: Sequence[str], fill: Mapping[int, Callable[[Sql], Awaitable[None]]] | None = None
    ) -> None:
        """See `stream.database.Database`. Raises `StoreUnusable` for tables that are newer than this program."""

        async def job(sql: Sql) -> None:
            await sql("INSERT INTO components (name, version) VALUES (?, 0) ON CONFLICT (name) DO NOTHING", (component,))
            [(version,)] = await sql("SELECT version FROM components WHERE name = ? FOR UPDATE", (component,))
            if version > len(scripts):
                why = f"its {component} tables have version {version}, this Tailfold knows {len(scripts)}: upgrade Tailfold"
                raise StoreUnusable(self.path, why)
            for number, script in enumerate(scripts[version:], version + 1):
                await sql(self.server.schema(script))
                if fill is not None and number in fill:
                    await fill[number](sql)
            await sql("UPDATE components SET version = ?2 WHERE name = ?1", (component, len(scripts)))

        [(version,)] = await self.read("SELECT coalesce(max(version), 0) FROM components WHERE name = ?", (component,))
        if version != len(scripts):
            await self.ongoing.run(self._again(job, "BEGIN"))
        self._installed[component] = len(scripts)
        self._begin = f"{BEGIN}; {_same_versions(self._installed)}"  # rides along: a trip less for each transaction

    async def close(self) -> None:
        """Finishes what was handed over, then closes; a cancelled caller does not stop it."""
        if self.home.has_ended():
            self._closing = True
            return
        self.home.check()
        self._closing = True
        with anyio.CancelScope(shield=True):
            await self._listener.close()
            await self.ongoing.settled()
            if self._pool is not None:
                with contextlib.suppress(*FAILURES):
                    await asyncio.wait_for(self._pool.close(), _CONNECT_S)
                self._pool.terminate()

    async def abandon(self) -> None:
        """Closes at once: what is under way has an unknown outcome."""
        self._closing = True
        self.ongoing.cancel()
        await self.close()

    async def ask(self, text: str, parameters: Sequence[Any] = (), /) -> list[Row]:
        """As `read`, for what those wait for whom `read` waits for. Raises what the driver raises."""
        async with self.connected() as connection:
            self.trips += 1
            text, given = translate_text(text, parameters, self.server.collation)
            return [told(row) for row in await connection.fetch(text, *given)]

    async def connect(self, dsn: str | None = None, /, **options: Any) -> Connection:
        """A connection of its own, to the first host that is as it must be; the one that was so last is asked first.

        The driver itself would ask none behind one that is silent. Raises what the driver raises.
        """
        del dsn
        failure: BaseException | None = None
        for host in self._hosts:
            try:
                connection = await asyncpg.connect(
                    host, timeout=_CONNECT_S / len(self._hosts), server_settings=self._settings(), **options
                )
            except FAILURES as error:
                failure = failure if isinstance(failure, asyncpg.PostgresError) else error
            else:
                self._hosts = (host, *(other for other in self._hosts if other != host))
                notice_silence(connection)
                self._note_process(connection)
                return connection
        assert failure is not None
        raise failure

    def _note_process(self, connection: Connection) -> None:
        process = connection.get_server_pid()
        self.processes.add(process)
        connection.add_termination_listener(lambda _: self.processes.discard(process))  # somebody else may be called so later

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[Connection]:
        """A connection for as long as the block lasts. Raises what the driver raises.

        What was done with it stays done where it can't be given back.
        """
        if self._pool is None:
            raise StoreClosed(f"{self.path} is closed")
        connection = await self._pool.acquire()
        try:
            yield connection
        finally:
            with contextlib.suppress(*FAILURES):
                await self._pool.release(connection, timeout=_CONNECT_S)

    async def open(self, *, create: bool) -> None:
        """Connects, and looks whether the server is as it must be. Raises `StoreUnusable` and `StoreUnreachable`."""
        try:
            # a least size would have the driver try again by itself while the server is gone, and print a traceback each time
            self._pool = await asyncpg.create_pool(
                self.address.hosts[0], connect=self.connect, min_size=0, max_size=_CONNECTIONS,
                init=self._prepare, reset=_leave,
                **({"statement_cache_size": 0} if self.address.wake == "poll" else {}),
            )  # fmt: skip
            async with self.connected() as connection:
                await self._make_schema(connection, create=create)
        except asyncpg.UndefinedObjectError:  # it names what may be a piece of a password, as below
            raise StoreUnusable(self.path, _NO_SETTING) from None
        except FAILURES as error:
            raise translate(error, self.path) from error
        except ValueError:  # the driver's word on an odd URL, which may be a piece of a password
            raise StoreUnusable(self.path, UNREADABLE) from None

    async def _prepare(self, connection: Connection) -> None:
        """Each connection may lead to another server than the one before; sums are numbers as they are on other databases."""
        self.connects += 1
        address = self.address
        is_durable = self._durability == "full"
        self.server = await check_server(connection, self.path, address.schema, address.dialect, is_durable=is_durable)
        if self.server is POSTGRES and await connection.fetchval(_IS_PORTABLE):
            self.server = PORTABLE
        await connection.set_type_codec("numeric", encoder=str, decoder=int, schema="pg_catalog", format="text")

    def _settings(self) -> dict[str, str]:
        stopped_ms = str(int(_STOPPED_S * 1000))
        settings = {"search_path": self.address.schema, "application_name": "tailfold"}
        settings["idle_in_transaction_session_timeout"] = stopped_ms
        return settings if self._durability == "full" else settings | {"synchronous_commit": "off"}

    async def _make_schema(self, connection: Connection, *, create: bool) -> None:
        if not await connection.fetchval("SELECT to_regclass('components') IS NOT NULL"):
            if not create:
                raise StoreUnusable(self.path, _NOTHING.format(self.address.schema))
            for text in (f'CREATE SCHEMA IF NOT EXISTS "{self.address.schema}"', _COMPONENTS):
                with contextlib.suppress(*_FASTER):
                    await connection.execute(text)

    async def _look(self, job: Callable[[Sql], Awaitable[T]]) -> T:
        """A job that took one statement the last time is tried without a transaction: a statement sees one moment."""
        origin = source(job)
        if origin in self._short:
            try:
                return await self._again(job, None, most=1, only_reads=True)
            except TakesMore:
                self._short.discard(origin)
        return await self._again(job, BEGIN_LOOK, only_reads=True)

    async def _again(
        self, job: Callable[[Sql], Awaitable[T]], begin: str | None, *, most: int | None = None, only_reads: bool = False
    ) -> T:
        """Runs a job until it is through, `begin` its transaction if it is one."""
        deadline, pause_s = time.monotonic() + PATIENCE_S, 0.001
        met = 0
        while True:
            run = Run(self.path, self.server.collation, most=most, only_reads=only_reads)
            script = self._through_gate(begin) if met >= _TRIES else begin
            try:
                async with self.connected() as connection:
                    result = await run.go(connection, job, script)
                if begin == BEGIN_LOOK and run.asked == 1 and len(self._short) < _SHORT_JOBS:
                    self._short.add(source(job))
                return result  # noqa: TRY300 - what follows is for failures
            except Newer:
                raise await self._newer() from None
            except FAILURES as error:
                met += self._meet(error, is_ambiguous=run.is_ambiguous)
                if time.monotonic() > deadline:
                    raise self._give_up(error) from error
            except asyncio.CancelledError:
                if not self._closing:  # its loop is taken down
                    raise
                raise StoreClosed(f"{self.path} was closed while this was done: outcome unknown") from None
            finally:
                self.trips += run.trips
            await asyncio.sleep(random.uniform(0.2, 1) * pause_s)  # noqa: S311 - jitter, no secret
            pause_s = min(pause_s * 2, 0.2)

    def _meet(self, error: BaseException, *, is_ambiguous: bool) -> bool:
        """Whether somebody else was in the way. Raises what is not to be tried again."""
        if is_gone(error):
            if is_ambiguous:
                raise self._unknown() from error
            return False
        if not is_again(error):
            raise translate(error, self.path) from error
        return True

    async def _newer(self) -> StreamError:
        known: dict[str, int] = dict(
            await self._again(lambda sql: sql("SELECT name, version FROM components"), None, only_reads=True)
        )
        for component, version in self._installed.items():
            if known.get(component) != version:
                there = f"its {component} tables have version {known.get(component)}, this Tailfold knows {version}"
                return StoreUnusable(self.path, f"{there}: upgrade Tailfold")
        return StoreBusy(f"{self.path}: its tables were being changed: try again")

    def _through_gate(self, begin: str | None) -> str | None:
        """The same beginning, of a transaction that keeps others out before it sees anything."""
        if begin is None or self.gate is None or not begin.startswith(BEGIN):
            return begin
        return begin.replace(BEGIN, f"{BEGIN}; {self.gate}", 1)

    def _unknown(self) -> StreamError:
        why = "the connection was lost during the commit, and whether it took place is not known: look, and do it again"
        return StoreUnreachable(self.path, why)

    def _give_up(self, error: BaseException) -> StreamError:
        if is_again(error):
            return StoreBusy(f"{self.path}: others were in the way for {PATIENCE_S:.0f} s: try again")
        return translate(error, self.path)


async def _leave(connection: Connection) -> None:
    """Spares the trip that the driver would make each time: nothing of ours changes a session, and it rolls back before."""
    del connection


def _same_versions(installed: Mapping[str, int]) -> str:
    """A statement that divides by zero where the tables are others."""
    wanted = " OR ".join(f"(name = '{name}' AND version = {version})" for name, version in installed.items())
    return f"SELECT 1 / (count(*) = {len(installed)})::int FROM components WHERE {wanted}"  # noqa: S608 - our own names


async def open_postgres(url: str, *, create: bool, durability: Durability = "full") -> PostgresDatabase:
    """Opens the schema at a `postgresql://` URL; with `create` it is made where there is none.

    Raises `StoreUnusable` for a server that is not as it must be, `StoreUnreachable` where there is none.
    """
    database = PostgresDatabase(read_address(url), durability)
    try:
        await database.open(create=create)
    except BaseException:
        await database.abandon()
        raise
    return database
