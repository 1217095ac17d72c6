"""What is asked of a database that keeps tables: transactions and looks, each a job that awaits only its statements.

A job is `async def job(sql)`. It may be run again, where another process was in its way: so it changes nothing but
through `sql`, and returns its result. What is logged or remembered of it comes after it has returned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from stream.home import Home

T = TypeVar("T")
Row = tuple[Any, ...]


class Sql(Protocol):
    """Runs one statement of a job, and gives all its rows."""

    def __call__(self, text: str, parameters: Sequence[Any] = (), /) -> Awaitable[list[Row]]:
        """`await sql(text, parameters)`."""
        ...


class Database(Protocol):
    """A database that is open.

    Every operation raises `StoreClosed`, `StoreUnusable`, `StoreFull`, `StoreBusy`, and `StoreElsewhere` in another event
    loop than that of its opening and in a forked process. With `checks_versions` each transaction raises `StoreUnusable` for
    tables that a newer program has changed since they were installed; else that is up to the job. `path` names it, without
    secrets; `trips` counts how often it was asked something.
    """

    path: str
    trips: int
    home: Home
    dialect: ClassVar[Literal["sqlite", "postgres"]]
    is_private_copy: ClassVar[bool]
    checks_versions: ClassVar[bool]

    async def transact(self, job: Callable[[Sql], Awaitable[T]]) -> T:
        """Runs `job(sql)` as one transaction that is whole or absent; a cancelled caller does not cut it.

        Raises what the job raises, with nothing stored, and `RuntimeError` for a job that awaits something else.
        """
        ...

    async def look(self, job: Callable[[Sql], Awaitable[T]]) -> T:
        """Runs `job(sql)`, which only reads: all its statements see one moment, with every commit acknowledged before.

        Raises what the job raises, and `RuntimeError` for a job that awaits something else.
        """
        ...

    async def write(self, job: Callable[[Sql], Awaitable[T]]) -> T:
        """As `transact`, but each statement commits by itself."""
        ...

    async def read(self, text: str, parameters: Sequence[Any] = (), /) -> list[Row]:
        """One statement that only reads; it sees every commit that was acknowledged."""
        ...

    def watch(self, watcher: Callable[[], Awaitable[None]]) -> Callable[[], None]:
        """Awaits `watcher`, which only looks, when another process has committed; returns what ends that."""
        ...

    async def install(
        self, component: str, scripts: Sequence[str], fill: Mapping[int, Callable[[Sql], Awaitable[None]]] | None = None
    ) -> None:
        """Brings the tables of `component` to their newest form: script by script from the one that they have.

        `fill` has jobs by version: each runs behind the script of its version, for what no script can say.
        """
        ...

    async def close(self) -> None:
        """Finishes what was handed over, then closes."""
        ...
