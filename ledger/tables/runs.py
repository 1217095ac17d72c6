"""The runs of conversations, open and ended."""

from __future__ import annotations

import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from ledger.errors import LedgerDamaged
from ledger.records import RunInfo
from ledger.tables.bodies import read_bodies, take_out
from ledger.tables.texts import KEY, PAGE_ROWS, marks, pieces
from projector.json_text import InvalidJson, decode, encode, learn
from projector.run_draft import read_usage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from projector.events import RunUsage
    from projector.run_draft import Usage
    from stream.database import Sql

T = TypeVar("T")
_PUT: Final = """
INSERT INTO runs (conversation, id, seq, status, crc, row_body, first) SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7
WHERE NOT EXISTS (SELECT 1 FROM runs WHERE conversation = ?1 AND id = ?2) RETURNING 1"""
_END: Final = """
UPDATE runs SET status = ?4, crc = ?5, row_body = ?6, first = ?7
WHERE conversation = ?1 AND id = ?2 AND seq = ?3 AND status = 'open'
RETURNING 1"""
_FAIL: Final = """
UPDATE runs SET status = 'failed', crc = ?4, row_body = ?5 WHERE conversation = ?1 AND id = ?2 AND seq = ?3 AND status = 'open'
RETURNING 1"""
_NOTE: Final = "UPDATE runs SET crc = ?3, row_body = ?4, place = NULL WHERE conversation = ?1 AND id = ?2"
_IN_ORDER: Final = f"""
SELECT seq, id, crc, row_body, place FROM runs WHERE conversation = {KEY} AND seq > ?2 ORDER BY seq LIMIT ?3"""  # noqa: S608
_STANDING: Final = "SELECT id, crc, row_body, place FROM runs WHERE conversation = ?1 AND id = ?2"
_OPEN: Final = f"SELECT id, crc, row_body, place FROM runs WHERE conversation = {KEY} AND status = 'open' ORDER BY seq"  # noqa: S608
# Not `s.started`, or SQLite goes through all that started later instead of the siblings.
_IS_SUPERSEDED: Final = """CASE WHEN r.status = 'committed' AND EXISTS (
  SELECT 1 FROM messages AS f JOIN messages AS s
    ON s.conversation = f.conversation AND coalesce(s.parent, '') = coalesce(f.parent, '') AND s.on_path = 1
  WHERE f.conversation = r.conversation AND f.id = r.first AND s.is_committed = 1 AND s.started + 0 > f.started)
  THEN 1 ELSE 0 END"""
_ONE: Final = f"""
SELECT {_IS_SUPERSEDED}, r.id, r.crc, r.row_body, r.place FROM runs AS r WHERE r.conversation = {KEY} AND r.id = ?2"""  # noqa: S608
_LISTED: Final = f"""
SELECT c.stream_id, r.seq, {_IS_SUPERSEDED}, r.id, r.crc, r.row_body, r.place
FROM runs AS r JOIN conversations AS c ON c.id = r.conversation WHERE """  # noqa: S608 - constants
_BEHIND: Final = "(c.stream_id, r.seq) > (?1, ?2)"
_BEHIND_IN_ONE: Final = "c.stream_id = ?1 AND r.seq > ?2"  # which the index of a conversation's runs can answer
_ORDER: Final = "ORDER BY c.stream_id, r.seq LIMIT ?3"
_HOMES: Final = """
SELECT c.stream_id FROM runs AS r JOIN conversations AS c ON c.id = r.conversation WHERE r.id = ?1 ORDER BY c.stream_id"""


class Steps(msgspec.Struct, frozen=True, gc=False):
    """Of a `RunInfo` what tells the time along a path: the seqs at which steps began, and how many messages are on the path."""

    messages: int = 0
    prompts: tuple[int, ...] = ()


class _Start(msgspec.Struct, frozen=True, gc=False):
    """Of a `RunInfo` where it started."""

    seq: int


class _Made(msgspec.Struct, frozen=True, gc=False):
    """Of a `RunInfo` what wrote it."""

    model: str | None = None


learn(Steps, _Start, _Made)


async def put(sql: Sql, key: int, info: RunInfo, first: str | None = None) -> bool:
    """A run whose id is new here; False for one that was used before. `first` is its first message on the path."""
    return bool(await sql(_PUT, (key, info.run_id, info.seq, info.status, *_checked(info), first)))


async def end(sql: Sql, key: int, info: RunInfo, first: str | None) -> bool:
    """An open run ends; False where this is none."""
    return bool(await sql(_END, (key, info.run_id, info.seq, info.status, *_checked(info), first)))


async def drop(sql: Sql, key: int, run_id: str) -> None:
    """Takes a run away, to be written anew."""
    places = await sql("SELECT seq, place FROM runs WHERE conversation = ?1 AND id = ?2", (key, run_id))
    await sql("DELETE FROM runs WHERE conversation = ?1 AND id = ?2", (key, run_id))
    await take_out(sql, key, places)


async def list_open(sql: Sql, conversation: str) -> list[RunInfo]:
    """The runs of a conversation that are listed as open, in the order of their start. Raises `LedgerDamaged`."""
    return [read(conversation, *row) for row in await read_bodies(sql, _OPEN, (conversation,))]


async def fail(sql: Sql, key: int, info: RunInfo, error: str) -> bool:
    """Lists a run as failed that is still listed as open, as it was seen; `error` is JSON. False where it is not."""
    told = replace(info, status="failed", outcome="failed", error=error)
    return bool(await sql(_FAIL, (key, info.run_id, info.seq, *_checked(told))))


async def add_usage(sql: Sql, key: int, body: RunUsage) -> bool:
    """Usage of a run that ended; False where there is none, or what is there can't be read."""
    info = await _standing(sql, key, body.run_id)
    if info is None or info.status == "open":
        return False
    await _note(sql, key, replace(info, usage=info.usage | {body.request_id: read_usage(body)}))
    return True


async def put_usage(sql: Sql, key: int, run_id: str, usage: dict[str, Usage]) -> None:
    """All usage of a run that can be read, in the place of what was told of it."""
    info = await _standing(sql, key, run_id)
    if info is not None:
        await _note(sql, key, replace(info, usage=usage))


async def run(sql: Sql, conversation: str, run_id: str) -> RunInfo | None:
    """One run. Raises `LedgerDamaged`."""
    found = await read_bodies(sql, _ONE, (conversation, run_id))
    return _told(conversation, *found[0]) if found else None


async def page(
    sql: Sql, conversation: str | None, after: tuple[str, int], *, only_open: bool
) -> list[tuple[RunInfo, tuple[str, int]]]:
    """The next runs in order of conversation and start, each with its place; those that are open as `open`.

    Raises `LedgerDamaged`.
    """
    behind, name = (_BEHIND, after[0]) if conversation is None else (_BEHIND_IN_ONE, conversation)
    text = f"{_LISTED}{behind} AND r.status = 'open'" if only_open else f"{_LISTED}{behind}"
    found = await read_bodies(sql, f"{text} {_ORDER}", (name, after[1], PAGE_ROWS))
    return [(_told(row[0], *row[2:]), (row[0], row[1])) for row in found]


async def damaged(sql: Sql, conversation: str) -> list[str]:
    """The runs of a conversation that can't be read, or are listed elsewhere than they say, in the order of the list."""
    found: list[str] = []
    after = 0
    while rows := await read_bodies(sql, _IN_ORDER, (conversation, after, PAGE_ROWS)):
        for seq, run_id, crc, body in rows:
            try:
                is_whole = read(conversation, run_id, crc, body).seq == seq
            except LedgerDamaged:
                is_whole = False
            found += [] if is_whole else [run_id]
        after = rows[-1][0]
    return found


async def homes(sql: Sql, run_id: str) -> list[str]:
    """The conversations that have a run of this id."""
    return [name for (name,) in await sql(_HOMES, (run_id,))]


async def steps_of(sql: Sql, conversation: str, run_ids: Iterable[str]) -> dict[str, Steps]:
    """When the steps of these runs began; without those that are not listed. Raises `LedgerDamaged`."""
    return {row[0]: _decode(conversation, row, Steps) for row in await _rows_of(sql, conversation, run_ids)}


async def starts_of(sql: Sql, conversation: str, run_ids: Iterable[str]) -> dict[str, int]:
    """Where these runs started, by what they say; without those that are not listed or can't be read."""
    found: dict[str, int] = {}
    for row in await _rows_of(sql, conversation, run_ids):
        with suppress(LedgerDamaged):
            found[row[0]] = _decode(conversation, row, _Start).seq
    return found


async def models_of(sql: Sql, conversation: str, run_ids: Iterable[str]) -> dict[str, str]:
    """The models of these runs; without those of which none is known, or that can't be read."""
    found: dict[str, str] = {}
    for row in await _rows_of(sql, conversation, run_ids):
        with suppress(LedgerDamaged):
            model = _decode(conversation, row, _Made).model
            found |= {row[0]: model} if model else {}
    return found


def read(conversation: str, run_id: str, crc: int | None, body: bytes) -> RunInfo:
    """A run out of its row. Raises `LedgerDamaged` if its checksum fails, or it is no JSON."""
    return _decode(conversation, (run_id, crc, body), RunInfo)


async def _rows_of(sql: Sql, conversation: str, run_ids: Iterable[str]) -> list[tuple[Any, ...]]:
    """Of these runs those that are listed: id, checksum, body."""
    found: list[tuple[Any, ...]] = []
    for some in pieces(list(run_ids)):
        text = f"SELECT id, crc, row_body, place FROM runs WHERE conversation = {KEY} AND id IN ({marks(len(some), 2)})"  # noqa: S608 - marks
        found += await read_bodies(sql, text, (conversation, *some))
    return found


def _decode(conversation: str, row: tuple[Any, ...], kind: type[T]) -> T:
    run_id, crc, body = row
    if not body or (crc is not None and zlib.crc32(body) != crc):
        raise LedgerDamaged(conversation, run_id, "run")
    try:
        return decode(body, kind)  # type: ignore[no-any-return]
    except InvalidJson as error:  # it was written before there was a checksum
        raise LedgerDamaged(conversation, run_id, "run") from error


async def _standing(sql: Sql, key: int, run_id: str) -> RunInfo | None:
    """What is listed of a run; None also for what can't be read: verify tells."""
    found = await read_bodies(sql, _STANDING, (key, run_id))
    with suppress(LedgerDamaged):
        return read("", *found[0]) if found else None
    return None


async def _note(sql: Sql, key: int, info: RunInfo) -> None:
    """Another form of a run that is there."""
    places = await sql("SELECT seq, place FROM runs WHERE conversation = ?1 AND id = ?2", (key, info.run_id))
    await sql(_NOTE, (key, info.run_id, *_checked(info)))
    await take_out(sql, key, places)


def _checked(info: RunInfo) -> tuple[int, bytes]:
    body = encode(info)
    return zlib.crc32(body), body


def _told(conversation: str, is_superseded: int, run_id: str, crc: int | None, body: bytes) -> RunInfo:
    info = read(conversation, run_id, crc, body)
    return replace(info, status="superseded") if is_superseded else info
