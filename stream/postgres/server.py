"""What a server must be like, looked at whenever one is connected to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from stream.errors import StoreUnusable
from stream.postgres.dialects import DIALECTS, dialect_of

if TYPE_CHECKING:
    from stream.postgres.dialects import ServerDialect

_OLDEST: Final = 130_000
_LOOK: Final = """
SELECT current_setting('server_version_num')::int, current_setting('server_version'), current_setting('fsync', true),
  current_setting('full_page_writes', true), current_setting('synchronous_commit', true), current_setting('server_encoding'),
  pg_is_in_recovery(), current_setting('search_path'), 'B'::text < 'a'::text, version()"""
_ON: Final = ("on", None)  # who is no PostgreSQL may have no such setting


async def check_server(connection: Any, name: str, schema: str, dialect: str, *, is_durable: bool) -> ServerDialect:
    """What it is to be told, by `dialect` or else by its version.

    Raises `StoreUnusable` where what is acknowledged might not be there, or names might be told apart wrongly.
    """
    row = await connection.fetchrow(_LOOK)
    version, shown, fsync, whole_pages, synchronous, encoding, is_standby, path, is_ordered, says = row
    if version < _OLDEST:
        raise StoreUnusable(name, f"the server is PostgreSQL {shown}: 13 or newer is needed")
    if is_standby:
        why = "this server is a standby, which takes nothing: name the primary, or several with target_session_attrs=read-write"
        raise StoreUnusable(name, why)
    if path != schema:
        why = f"search_path is {path!r} in spite of what was asked: a pooler between drops it, and must let it through"
        raise StoreUnusable(name, why)
    if encoding != "UTF8":
        raise StoreUnusable(name, f"the database is in {encoding}: make one with ENCODING 'UTF8' TEMPLATE template0")
    found = DIALECTS.get(dialect) or dialect_of(says)
    if not found.collation and not is_ordered:
        raise StoreUnusable(name, "the database compares texts by a language: make one with LC_COLLATE 'C' TEMPLATE template0")
    if is_durable and (fsync not in _ON or whole_pages not in _ON):
        why = "the server runs with fsync or full_page_writes off and loses what it acknowledged: turn both on"
        raise StoreUnusable(name, why)
    if is_durable and synchronous == "off":
        why = "synchronous_commit is off for this user or database, which loses what was acknowledged: "
        raise StoreUnusable(name, why + "ALTER ROLE … SET synchronous_commit = on, or open it with durability='normal'")
    return found
