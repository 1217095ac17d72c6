"""The runs of conversations, open and ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from ledger.records import RunInfo
from ledger.tables.texts import KEY, PAGE_ROWS, marks, pieces
from projector.json_text import decode, encode, learn
from projector.run_draft import read_usage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from projector.events import RunUsage
    from projector.run_draft import Usage
    from stream.sqlite import Sql

_PUT: Final = """
INSERT INTO runs (conversation, id, seq, status, body, first) SELECT ?1, ?2, ?3, ?4, ?5, ?6
WHERE NOT EXISTS (SELECT 1 FROM runs WHERE conversation = ?1 AND id = ?2) RETURNING 1"""
_END: Final = """
UPDATE runs SET status = ?4, body = ?5, first = ?6 WHERE conversation = ?1 AND id = ?2 AND seq = ?3 AND status = 'open'
RETURNING 1"""
_FAIL: Final = """
UPDATE runs SET status = 'failed', body = ?4 WHERE conversation = ?1 AND id = ?2 AND seq = ?3 AND status = 'open'
RETURNING 1"""
_NOTE: Final = "UPDATE runs SET body = ?3 WHERE conversation = ?1 AND id = ?2"
_IS_SUPERSEDED: Final = """CASE WHEN r.status = 'committed' AND EXISTS (
  SELECT 1 FROM messages AS f JOIN messages AS s
    ON s.conversation = f.conversation AND coalesce(s.parent, '') = coalesce(f.parent, '') AND s.on_path = 1
  WHERE f.conversation = r.conversation AND f.id = r.first AND s.is_committed = 1 AND s.started > f.started)
  THEN 1 ELSE 0 END"""
_ONE: Final = f"SELECT r.body, {_IS_SUPERSEDED} FROM runs AS r WHERE r.conversation = {KEY} AND r.id = ?2"  # noqa: S608
_LISTED: Final = f"""
SELECT c.stream_id, r.seq, r.body, {_IS_SUPERSEDED}
FROM runs AS r JOIN conversations AS c ON c.id = r.conversation
WHERE (c.stream_id, r.seq) > (?1, ?2)"""  # noqa: S608 - constants
_ORDER: Final = "ORDER BY c.stream_id, r.seq LIMIT ?3"
_HOMES: Final = """
SELECT c.stream_id FROM runs AS r JOIN conversations AS c ON c.id = r.conversation WHERE r.id = ?1 ORDER BY c.stream_id"""


class Steps(msgspec.Struct, frozen=True, gc=False):
    """Of a `RunInfo` what tells the time along a path: the seqs at which steps began, and how many messages are on the path."""

    messages: int = 0
    prompts: tuple[int, ...] = ()


learn(Steps)


async def put(sql: Sql, key: int, info: RunInfo, first: str | None = None) -> bool:
    """A run whose id is new here; False for one that was used before. `first` is its first message on the path."""
    return bool(await sql(_PUT, (key, info.run_id, info.seq, info.status, encode(info), first)))


async def end(sql: Sql, key: int, info: RunInfo, first: str | None) -> bool:
    """An open run ends; False where this is none."""
    return bool(await sql(_END, (key, info.run_id, info.seq, info.status, encode(info), first)))


async def drop(sql: Sql, key: int, run_id: str) -> None:
    """Takes a run away, to be written anew."""
    await sql("DELETE FROM runs WHERE conversation = ?1 AND id = ?2", (key, run_id))


async def list_open(sql: Sql, key: int) -> list[RunInfo]:
    """The runs of a conversation that are listed as open, in the order of their start."""
    look = "SELECT body FROM runs WHERE conversation = ?1 AND status = 'open' ORDER BY seq"
    return [decode(body, RunInfo) for (body,) in await sql(look, (key,))]


async def fail(sql: Sql, key: int, info: RunInfo, error: str) -> bool:
    """Lists a run as failed that is still listed as open, as it was seen; `error` is JSON. False where it is not."""
    told = replace(info, status="failed", outcome="failed", error=error)
    return bool(await sql(_FAIL, (key, info.run_id, info.seq, encode(told))))


async def add_usage(sql: Sql, key: int, body: RunUsage) -> bool:
    """Usage of a run that ended; False where there is none."""
    look = "SELECT body FROM runs WHERE conversation = ?1 AND id = ?2 AND status <> 'open'"
    found = await sql(look, (key, body.run_id))
    if found:
        info: RunInfo = decode(found[0][0], RunInfo)
        used = replace(info, usage=info.usage | {body.request_id: read_usage(body)})
        await sql(_NOTE, (key, body.run_id, encode(used)))
    return bool(found)


async def put_usage(sql: Sql, key: int, run_id: str, usage: dict[str, Usage]) -> None:
    """All usage of a run, in the place of what was told of it."""
    found = await sql("SELECT body FROM runs WHERE conversation = ?1 AND id = ?2", (key, run_id))
    info: RunInfo = decode(found[0][0], RunInfo)
    await sql(_NOTE, (key, run_id, encode(replace(info, usage=usage))))


async def run(sql: Sql, conversation: str, run_id: str) -> RunInfo | None:
    """One run."""
    found = await sql(_ONE, (conversation, run_id))
    return _read(*found[0]) if found else None


async def page(
    sql: Sql, conversation: str | None, after: tuple[str, int], *, only_open: bool
) -> list[tuple[RunInfo, tuple[str, int]]]:
    """The next runs in order of conversation and start, each with its place; those that are open as `open`."""
    text = f"{_LISTED} AND r.status = 'open'" if only_open else _LISTED
    if conversation is None:
        found = await sql(f"{text} {_ORDER}", (*after, PAGE_ROWS))
    else:
        found = await sql(f"{text} AND c.stream_id = ?4 {_ORDER}", (*after, PAGE_ROWS, conversation))
    return [(_read(*row[2:]), (row[0], row[1])) for row in found]


async def homes(sql: Sql, run_id: str) -> list[str]:
    """The conversations that have a run of this id."""
    return [name for (name,) in await sql(_HOMES, (run_id,))]


async def steps_of(sql: Sql, conversation: str, run_ids: Iterable[str]) -> dict[str, Steps]:
    """When the steps of these runs began; without those that are not listed."""
    found: dict[str, Steps] = {}
    for some in pieces(list(run_ids)):
        text = f"SELECT id, body FROM runs WHERE conversation = {KEY} AND id IN ({marks(len(some), 2)})"  # noqa: S608 - marks
        found |= {run_id: decode(body, Steps) for run_id, body in await sql(text, (conversation, *some))}
    return found


def _read(body: bytes, is_superseded: int) -> RunInfo:
    info: RunInfo = decode(body, RunInfo)
    return replace(info, status="superseded") if is_superseded else info
