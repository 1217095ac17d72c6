"""Where bodies of messages and runs lie: in their rows at first, in compressed pages once their conversation is compacted.

Whoever reads rows reads them and their pages at one moment. A body that is changed leaves its page for its row, and the
page is written anew without it, in the same transaction.
"""

from __future__ import annotations

import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ledger.tables.dictionary import DICTIONARY
from ledger.tables.texts import EVERY, PAGE_ROWS, marks, pieces, rows
from stream.compression import inflate

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from stream.database import Sql

MOST_BODIES: Final = 48
"""How many bodies a page holds; one that is looked up costs unpacking as many."""
MOST_BYTES: Final = 64 * 1024
"""How much the bodies of a page are together, unless it is a single one."""
_SLICE_BYTES: Final = 256 * 1024
_SLICE_ROWS: Final = 128
_PAGES_AT_ONCE: Final = 32
_SLOTS: Final = 64  # a place is a page times this, and which of its bodies
_MOST_UNPACKED: Final = 2**30
_PAGE: Final = msgspec.msgpack.Decoder(list[bytes])
_ENCODER: Final = msgspec.msgpack.Encoder()
_OF_PAGES: Final = "SELECT id, conversation, crc, packed FROM pages WHERE id IN "
_PAGES_OF: Final = "SELECT id FROM pages WHERE conversation = ?1 AND id > ?2 ORDER BY id LIMIT ?3"
_STANDING: Final = "SELECT id, paged_seq, replay_from FROM conversations WHERE stream_id = ?1"
_TO_MOVE: Final = """
SELECT id, seq, length(row_body) FROM {table}
WHERE conversation = ?1 AND seq > ?2 AND seq <= ?3 AND place IS NULL {and_more} ORDER BY seq LIMIT {limit}"""
_BEFORE: Final = """
SELECT place FROM {table} WHERE conversation = ?1 AND seq <= ?2 AND place IS NOT NULL ORDER BY seq DESC LIMIT 1"""
_BODIES: Final = "SELECT id, row_body FROM {table} WHERE conversation = ?1 AND id IN ({marks})"
_INSERT: Final = "INSERT INTO pages (conversation, crc, packed) VALUES (?1, 0, ?2) RETURNING id"
_CHANGED: Final = """
UPDATE conversations SET amended = amended + 1, paged_seq = CASE WHEN paged_seq > ?2 THEN ?2 ELSE paged_seq END
WHERE id = ?1"""
_WRITE: Final = "UPDATE pages SET crc = ?2, packed = ?3 WHERE id = ?1"
_MOVE: Final = """
WITH moved (id, place, crc) AS (VALUES {rows})
UPDATE {table} SET row_body = {empty}, place = moved.place, crc = coalesce({table}.crc, moved.crc) FROM moved
WHERE {table}.conversation = {key} AND {table}.id = moved.id"""
_TABLES: Final = {"messages": "", "runs": "AND status <> 'open'"}  # and which rows of them


async def read_bodies(sql: Sql, text: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The rows of a statement whose last two columns are `row_body` and `place`: with the body in the place of both.

    The body is empty where its page is damaged or not there; none that was stored is. To be called in a `look` or a
    transaction: rows and pages belong to one moment.
    """
    found = await sql(text, parameters)
    return [(*row[:-2], body) for row, body in zip(found, await bodies_of(sql, found), strict=True)]


async def bodies_of(sql: Sql, found: Sequence[Sequence[Any]]) -> list[bytes]:
    """The bodies of rows that end with `row_body` and `place`, as `read_bodies` has them; each page is unpacked once."""
    wanted = {row[-1] for row in found if row[-1] is not None}
    pages = sorted({place // _SLOTS for place in wanted})
    bodies: dict[int, bytes] = {}
    for first in range(0, len(pages), _PAGES_AT_ONCE):  # most of what they hold may be of other branches
        for page, (_, held) in (await _read_pages(sql, pages[first : first + _PAGES_AT_ONCE])).items():
            bodies.update([(place, body) for place, body in enumerate(held, page * _SLOTS) if place in wanted])
    return [row[-2] if row[-1] is None else bodies.get(row[-1], b"") for row in found]


async def move_bodies(sql: Sql, conversation: str) -> bool:
    """Moves some bodies of a conversation into pages, the oldest first; whether more are to be moved.

    Only of what has ended, up to where the ledger need not look at its log any more. To be called in a transaction.
    """
    found = await sql(_STANDING, (conversation,))
    if not found:
        return False
    key, paged, through = found[0]
    left = _SLICE_BYTES
    for table, and_more in _TABLES.items():
        text = _TO_MOVE.format(table=table, and_more=and_more, limit=_SLICE_ROWS)
        rows = await sql(text, (key, paged, through))
        some, left = _first_of(rows, left)
        if some:
            await _move(sql, key, table, some)
        if len(some) < len(rows) or len(rows) == _SLICE_ROWS:
            return True
    await sql("UPDATE conversations SET paged_seq = ?2 WHERE id = ?1 AND paged_seq < ?2", (key, through))
    return False


async def take_out(sql: Sql, key: int, left: Sequence[tuple[int, int | None]]) -> None:
    """Rows (seq, place) were changed or taken away, which is counted for whoever keeps what he has read.

    Their places are emptied: what lay there has gone, or lies in its row until it is moved again. A page that holds nothing
    goes. So does one that can't be read: what else lies in it is damaged already, and what is to go may be in it. A place that
    another row names, or of another conversation, was not theirs: it stays as it is.
    """
    if not left:
        return
    places = [place for _, place in left if place is not None]
    await sql(_CHANGED, (key, min([seq - 1 for seq, place in left if place is not None], default=EVERY)))
    gone: dict[int, set[int]] = {}
    for place in places:
        gone.setdefault(place // _SLOTS, set()).add(place % _SLOTS)
    for some in pieces(places):
        for table in _TABLES:
            text = f"SELECT place FROM {table} WHERE conversation = ?1 AND place IN ({marks(len(some), 2)})"  # noqa: S608
            for (place,) in await sql(text, (key, *some)):
                gone[place // _SLOTS].discard(place % _SLOTS)
    pages = await _read_pages(sql, gone)
    for page, slots in gone.items():
        owner, bodies = pages.get(page, (key, []))
        if owner != key or not slots:
            continue
        await _empty(sql, key, page, bodies, slots)


async def count_unnamed(sql: Sql, key: int) -> int:
    """How many bodies the pages of a conversation hold that no row names: one was deleted by hand, or its place was damaged."""
    return sum(len(slots) for _, _, slots in await _unnamed(sql, key))


async def drop_unnamed(sql: Sql, key: int) -> None:
    """Empties what no row names: nobody would find it to take it out. To be called in a transaction."""
    for page, bodies, slots in await _unnamed(sql, key):
        await _empty(sql, key, page, bodies, slots)


async def start_over(sql: Sql, key: int) -> None:
    """As if all rows were changed: the next compaction looks through all of them again for what is to be moved."""
    await sql(_CHANGED, (key, 0))


def unpack_page(data: bytes) -> list[bytes]:
    """The bodies of a page; those that were taken out are empty. Raises `ValueError` for what is damaged."""
    try:
        return _PAGE.decode(inflate(data, max_bytes=_MOST_UNPACKED, dictionary=DICTIONARY))
    except msgspec.MsgspecError as error:
        raise ValueError(f"it is no page ({error})") from error


async def _unnamed(sql: Sql, key: int) -> list[tuple[int, list[bytes], set[int]]]:
    """Pages that can be read and hold such bodies: their bodies, and which of them."""
    unnamed: list[tuple[int, list[bytes], set[int]]] = []
    after = 0
    while some := [row[0] for row in await sql(_PAGES_OF, (key, after, PAGE_ROWS))]:
        named: set[int] = set()
        for table in _TABLES:
            text = f"SELECT place FROM {table} WHERE conversation = ?1 AND place >= ?2 AND place < ?3"  # noqa: S608 - constants
            found = await sql(text, (key, some[0] * _SLOTS, (some[-1] + 1) * _SLOTS))
            named.update(place for (place,) in found)
        for page, (_, bodies) in (await _read_pages(sql, some)).items():
            slots = {slot for slot, body in enumerate(bodies) if body and page * _SLOTS + slot not in named}
            if slots:
                unnamed.append((page, bodies, slots))
        after = some[-1]
    return unnamed


async def _empty(sql: Sql, key: int, page: int, bodies: Sequence[bytes], slots: Container[int]) -> None:
    rest = [b"" if slot in slots else body for slot, body in enumerate(bodies)]
    if any(rest):
        await _write(sql, key, page, rest)
    else:
        await sql("DELETE FROM pages WHERE id = ?1 AND conversation = ?2", (page, key))


def _first_of(rows: Sequence[Any], left: int) -> tuple[list[tuple[str, int]], int]:
    """As many of the rows (id, seq, length) as go into what is left of a slice, at least one into a whole one; and the rest."""
    some: list[tuple[str, int]] = []
    for row_id, seq, length in rows:
        if length > left < _SLICE_BYTES:
            break
        left -= length
        some.append((row_id, seq))
    return some, left


async def _move(sql: Sql, key: int, table: str, ids: Sequence[tuple[str, int]]) -> None:
    """Moves bodies into the page of what stands before them, as long as it takes them, and into new ones."""
    text = _BODIES.format(table=table, marks=marks(len(ids), 2))
    bodies: dict[str, bytes] = dict(await sql(text, (key, *(row_id for row_id, _ in ids))))
    page, held = await _page_before(sql, key, table, ids[0][1])
    moved: list[object] = []
    for row_id, _ in ids:
        body = bodies[row_id]
        if page is None or len(held) == MOST_BODIES or sum(map(len, held)) + len(body) > MOST_BYTES:
            if page is not None:
                await _write(sql, key, page, held)
            [(page,)] = await sql(_INSERT, (key, b""))
            held = []
        moved += [row_id, page * _SLOTS + len(held), zlib.crc32(body)]
        held.append(body)
    assert page is not None
    await _write(sql, key, page, held)
    values = rows(len(ids), 3)
    await sql(_MOVE.format(table=table, rows=values, key=f"?{len(moved) + 1}", empty=f"?{len(moved) + 2}"), [*moved, key, b""])


async def _page_before(sql: Sql, key: int, table: str, seq: int) -> tuple[int | None, list[bytes]]:
    """The page in which the body before a seq lies; none where that lies in its row, or its page can't be read."""
    found = await sql(_BEFORE.format(table=table), (key, seq))
    if not found:
        return None, []
    page = found[0][0] // _SLOTS
    pages = await _read_pages(sql, [page])
    return (page, list(pages[page][1])) if page in pages and pages[page][0] == key else (None, [])


async def _write(sql: Sql, key: int, page: int, bodies: Sequence[bytes]) -> None:
    packer = zlib.compressobj(zdict=DICTIONARY)
    data = packer.compress(_ENCODER.encode(bodies)) + packer.flush()
    await sql(_WRITE, (page, _checksum(key, page, data), data))


async def _read_pages(sql: Sql, wanted: Iterable[int]) -> dict[int, tuple[int, list[bytes]]]:
    """Of these pages those that are there and whole: whose each is, and its bodies."""
    pages: dict[int, tuple[int, list[bytes]]] = {}
    for some in pieces(sorted(wanted)):
        for page, key, crc, data in await sql(f"{_OF_PAGES}({marks(len(some))})", some):
            with suppress(ValueError):
                if crc == _checksum(key, page, data):
                    pages[page] = key, unpack_page(data)
    return pages


def _checksum(key: int, page: int, data: bytes) -> int:
    """Covers the place too, so that a page under another id or of another conversation does not pass."""
    return zlib.crc32(data, zlib.crc32(f"{page} {key}".encode()))
