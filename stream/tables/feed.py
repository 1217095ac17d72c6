"""Reads which streams have changed since a place in the feed, and where each of them stood there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from stream.errors import StoreUnusable
from stream.feed import FeedPlace, check_reached
from stream.tables.moves import MARK_GUARD, MARKED_BITS

if TYPE_CHECKING:
    from stream.database import Sql

_KNOWN: Final = "SELECT id, head FROM streams WHERE changed >= ?1 AND changed <= ?2"
_GUARD: Final = MARK_GUARD.format(stream="m.stream", number="m.number", head="m.head")
# 0 for a mark that is damaged: then all of its stream comes again, and nothing is missed.
_HEAD_AT: Final = f"""(SELECT CASE WHEN m.guard = {_GUARD} THEN m.head END FROM marks AS m
  WHERE m.stream = s.id AND m.number > {{number}} ORDER BY m.number LIMIT 1)"""  # noqa: S608 - constants
# `+id`: the index of changes knows the few that changed, while all streams lie in the order of their keys.
_PAGE: Final = f"""
SELECT s.id, s.name, s.changed, s.head, {_HEAD_AT.format(number="?1")},
  CASE WHEN s.changed > ?3 THEN {_HEAD_AT.format(number="?3")} END
FROM (SELECT id FROM streams {{by_change}} WHERE changed > ?1 AND +id > ?2 ORDER BY id LIMIT ?4) AS d
  {{then}} JOIN streams AS s ON s.id = d.id ORDER BY s.id"""  # noqa: S608 - constants
_ALL: Final = f"""
SELECT s.id, s.name, s.changed, s.head, 0, CASE WHEN s.changed > ?3 THEN {_HEAD_AT.format(number="?3")} END
FROM streams AS s WHERE +s.changed > ?1 AND s.id > ?2 ORDER BY s.id LIMIT ?4"""  # noqa: S608 - constants


class FeedTexts:
    """What is asked of a feed: the number of its last change by `last`; `hints` are for a planner that needs them."""

    def __init__(self, last: str, hints: tuple[str, str] = ("", "")) -> None:
        self.last = last
        self.page = _PAGE.format(by_change=hints[0], then=hints[1])
        self.all = _ALL


class FeedPage(NamedTuple):
    """Names and spans of the streams that changed, the place that was gone on from, and the one behind them."""

    streams: list[str]
    spans: list[tuple[int, int]]
    begin: FeedPlace
    end: FeedPlace


async def read_feed(sql: Sql, texts: FeedTexts, path: str, place: FeedPlace, limit: int) -> FeedPage:
    """The next streams, at most `limit`; none only if nothing has changed since the place. To be run in one look.

    Raises `Diverged` for a place behind all that has changed.
    """
    [(last,)] = await sql(texts.last)
    check_reached(place, last)
    while True:
        begin = place if place.through else await _go_through(sql, texts, place)
        changes = await _read(sql, texts, path, begin, limit)
        end = FeedPlace(begin.through, begin.known_through)
        if len(changes) > limit:
            del changes[limit:]
            end = FeedPlace(begin.since, begin.known, begin.through, begin.known_through, changes[-1].key)
        if changes or begin is not place:
            return FeedPage([each.name for each in changes], [(each.after, each.head) for each in changes], begin, end)
        place = end  # nothing was left to go through: what has changed since?


async def read_end(sql: Sql, texts: FeedTexts) -> FeedPlace:
    """The place behind all that has changed."""
    begin = await _go_through(sql, texts, FeedPlace())
    return FeedPlace(begin.through, begin.known_through)


async def _go_through(sql: Sql, texts: FeedTexts, place: FeedPlace) -> FeedPlace:
    """The same place with all that there is now before it."""
    [(last,)] = await sql(texts.last)
    known = await sql(_KNOWN, (last >> MARKED_BITS << MARKED_BITS, last))
    return FeedPlace(place.since, place.known, last, dict(known))


class _Change(NamedTuple):
    key: int
    name: str
    after: int
    head: int


async def _read(sql: Sql, texts: FeedTexts, path: str, place: FeedPlace, limit: int) -> list[_Change]:
    """As many changes, and one more if there is one."""
    text = texts.page if place.since else texts.all
    changes: list[_Change] = []
    key = place.key
    while True:
        rows = await sql(text, (place.since, key, place.through, limit + 1))
        for row in rows:
            key, name, changed, head, marked_since, marked_through = row
            if head == 0:  # nothing was ever in it
                continue
            if not isinstance(name, str) or not isinstance(head, int):
                raise StoreUnusable(path, "its table of streams is damaged: run `tailfold verify`")
            after = place.known.get(key, marked_since or 0) if place.since else 0
            is_later = changed > place.through
            if is_later:
                head = place.known_through.get(key, marked_through or 0)
            if not is_later or after < head:  # or it has moved after that only, and comes in its turn
                changes.append(_Change(key, name, after, head))
        if len(changes) > limit or len(rows) <= limit:
            return changes
