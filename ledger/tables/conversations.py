"""What is listed of conversations, and how far of each log the ledger reaches."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from ledger.records import ConversationInfo
from ledger.tables.texts import among, is_text, marks, pieces, rows
from projector import events as ev
from projector.json_text import InvalidJson, decode, dump, join_fields, split, text_of
from stream.limits import PROTOCOL_PREFIX

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from projector.effects import ConversationDescribed
    from stream.database import Row, Sql

_NEW: Final = """
INSERT INTO conversations (stream_id) SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM conversations WHERE stream_id = ?1)"""
_ADVANCE: Final = """
UPDATE conversations SET projected_seq = ?3, replay_from = ?4 WHERE stream_id = ?1 AND projected_seq = ?2 AND rewound = ?5
RETURNING id, calls_from"""
_POSITION: Final = """
SELECT projected_seq, replay_from, leaf, messages, orphans, holes, erased, rewound, is_conversation, amended
FROM conversations WHERE stream_id = ?1"""
_WITH_POSITION: Final = f"""
SELECT theirs.*, ours.* FROM (SELECT 1 AS one) AS one LEFT JOIN ({_POSITION}) AS ours ON true
LEFT JOIN ({{text}}) AS theirs ON true"""  # noqa: S608 - a constant
_REWIND: Final = """
UPDATE conversations SET projected_seq = ?2, rewound = rewound + 1,
  replay_from = CASE WHEN replay_from < ?2 THEN replay_from ELSE ?2 END,
  paged_seq = CASE WHEN paged_seq < ?2 THEN paged_seq ELSE ?2 END
WHERE stream_id = ?1 AND projected_seq > ?2"""
_SKIP: Final = """
UPDATE conversations SET projected_seq = ?2, replay_from = ?3, holes = ?4, rewound = rewound + 1 WHERE id = ?1"""
_GROW: Final = """
UPDATE conversations SET runs = runs + ?2, messages = messages + ?3,
  active_at = CASE WHEN active_at < ?4 THEN ?4 ELSE active_at END
WHERE id = ?1 RETURNING leaf, orphans"""
_MARK: Final = """
UPDATE conversations SET is_conversation = 1, active_at = CASE WHEN runs = 0 AND active_at < ?2 THEN ?2 ELSE active_at END
WHERE id = ?1 AND is_conversation = 0"""
_INFO: Final = """
SELECT stream_id, messages, runs, leaf, projected_seq, active_at, archived, title, metadata, erased FROM conversations"""
_LISTED: Final = f"""{_INFO}
WHERE is_conversation = 1 AND substr(stream_id, 1, {len(PROTOCOL_PREFIX)}) <> '{PROTOCOL_PREFIX}'
  AND (?1 = 1 OR archived = 0) AND (?2 = 0 OR (active_at, stream_id) < (?3, ?4))
  AND substr(stream_id, 1, length(?5)) = ?5
  AND (?6 = 0 OR id IN (SELECT conversation FROM labels WHERE {among("label", 1, 7)}))
ORDER BY active_at DESC, stream_id DESC LIMIT ?8"""  # noqa: S608 - constants
_DESCRIBED: Final = """
SELECT id, metadata FROM conversations WHERE id > ?1 AND metadata IS NOT NULL ORDER BY id LIMIT 500"""
_TOLD: Final = ("messages", "runs", "events", "at", "is_done")  # of an erasure


class Position(NamedTuple):
    """How far the ledger holds a conversation; all zero for one it does not know.

    `holes` and `erased` are JSON, see the schema; `rewound` counts repairs that put it back. `is_conversation` tells
    whether something was taken in that a conversation is made of; of other streams only the position is known.
    `amended` counts changes of what was committed.
    """

    projected_seq: int = 0
    replay_from: int = 0
    leaf: str | None = None
    messages: int = 0
    orphans: int = 0
    holes: str | None = None
    erased: str | None = None
    rewound: int = 0
    is_conversation: bool = False
    amended: int = 0

    def is_at(self, other: Position) -> bool:
        """Whether nothing was taken in, put back or erased between the two."""
        return (self.projected_seq, self.rewound, self.erased) == (other.projected_seq, other.rewound, other.erased)


class Page(NamedTuple):
    """Which conversations are listed, newest activity first. `after` is the last one of the page before."""

    after: ConversationInfo | None = None
    limit: int | None = None
    archived: bool = False
    prefix: str = ""
    label: str | None = None
    title: str | None = None


async def key_of(sql: Sql, conversation: str) -> int | None:
    """The key of a conversation that the ledger knows."""
    found = await sql("SELECT id FROM conversations WHERE stream_id = ?1", (conversation,))
    return found[0][0] if found else None


async def make_known(sql: Sql, conversation: str) -> None:
    """From here on the ledger knows the conversation."""
    await sql(_NEW, (conversation,))


async def position(sql: Sql, conversation: str) -> Position:
    """How far this conversation is projected."""
    found = await sql(_POSITION, (conversation,))
    return Position(*found[0]) if found else Position()


async def beside(sql: Sql, text: str, parameters: Sequence[Any]) -> tuple[list[Row], Position]:
    """The rows of a statement about the stream that is its `?1`, in any order, and in the same trip its position.

    A row of nothing but NULL is none.
    """
    rows = await sql(_WITH_POSITION.format(text=text), parameters)
    width = len(Position._fields)
    there = rows[0][-width:]
    found = [row[:-width] for row in rows]
    return [row for row in found if any(value is not None for value in row)], Position(*there) if there[
        0
    ] is not None else Position()


async def positions(sql: Sql, conversations: Collection[str]) -> dict[str, int]:
    """`projected_seq` of each that the ledger knows."""
    known: dict[str, int] = {}
    for some in pieces(list(conversations)):
        text = f"SELECT stream_id, projected_seq FROM conversations WHERE stream_id IN ({marks(len(some))})"  # noqa: S608
        known |= dict(await sql(text, some))
    return known


async def move_on(
    sql: Sql, conversation: str, before: Position, projected_seq: int, replay_from: int
) -> tuple[int, int] | None:
    """Moves the position on from where it was `before`: (key, `calls_from`); None if it is elsewhere by now."""
    if not before.projected_seq:
        await make_known(sql, conversation)
    moved = await sql(_ADVANCE, (conversation, before.projected_seq, projected_seq, replay_from, before.rewound))
    return tuple(moved[0]) if moved else None


async def rewind(sql: Sql, conversation: str, head: int) -> None:
    """Puts the position back to the end of a log that is shorter."""
    await sql(_REWIND, (conversation, head))


async def skip(sql: Sql, conversation: str, hole: tuple[int, int], projected_seq: int, replay_from: int) -> int:
    """Moves the position behind a hole and remembers that; the key."""
    await make_known(sql, conversation)
    [(key, holes)] = await sql("SELECT id, holes FROM conversations WHERE stream_id = ?1", (conversation,))
    await sql(_SKIP, (key, projected_seq, replay_from, json.dumps([*json.loads(holes or "[]"), hole])))
    return key  # type: ignore[no-any-return]


async def grow(sql: Sql, key: int, active_at: int, *, runs: int = 0, messages: int = 0) -> tuple[str | None, int]:
    """Counts what has come, as of `active_at` (ms); the leaf and the number of orphans as they are."""
    [(leaf, orphans)] = await sql(_GROW, (key, runs, messages, active_at))
    return leaf, orphans


async def mark(sql: Sql, key: int, at: int) -> None:
    """From here on the stream is a conversation, active at a time (ms) where no run tells when."""
    await sql(_MARK, (key, at))


async def describe(sql: Sql, key: int, described: ConversationDescribed) -> None:
    """Title, metadata with its labels, and whether a conversation is archived."""
    body = described.body
    if isinstance(body, ev.ConversationCreated):
        await grow(sql, key, described.at)
    if isinstance(body, ev.ConversationArchived):
        await sql("UPDATE conversations SET archived = ?2 WHERE id = ?1", (key, int(body.archived)))
        return
    if body.title is not None:
        await sql("UPDATE conversations SET title = ?2 WHERE id = ?1", (key, dump(body.title)))  # any text is legal
    patch = text_of(body.metadata)
    if patch is not None:
        [(known,)] = await sql("SELECT metadata FROM conversations WHERE id = ?1", (key,))
        said = split(patch)
        merged = (split(known) if known else {}) | said
        kept = {name: value for name, value in merged.items() if value != "null"}
        await sql("UPDATE conversations SET metadata = ?2 WHERE id = ?1", (key, join_fields(kept)))
        if "labels" in said:
            await put_labels(sql, key, labels_of(kept))


async def put_labels(sql: Sql, key: int, labels: Sequence[str]) -> None:
    """The labels of a conversation, in the place of those it had."""
    await sql("DELETE FROM labels WHERE conversation = ?1", (key,))
    for some in pieces(labels, 2):
        values = [value for label in some for value in (key, label)]
        await sql(f"INSERT INTO labels (conversation, label) VALUES {rows(len(some), 2)}", values)  # noqa: S608 - marks


def labels_of(metadata: dict[str, str]) -> list[str]:
    """The labels that can be asked for, each once; a lone surrogate can't."""
    found = decode(metadata.get("labels", "[]"))
    said = found.values() if isinstance(found, dict) else found if isinstance(found, list) else [found]
    texts = dict.fromkeys(label for label in said if isinstance(label, str))
    return [label for label in texts if is_text(label)]


async def fill_labels(sql: Sql) -> None:
    """The labels of all conversations, into a table that has none yet; of metadata that can't be read, none."""
    last = 0
    while found := await sql(_DESCRIBED, (last,)):
        for key, metadata in found:
            last = key
            with suppress(InvalidJson):
                await put_labels(sql, key, labels_of(split(metadata)))


async def rebuild_labels(sql: Sql, key: int) -> None:
    """The labels that the metadata says; of metadata that can't be read, none."""
    if await lacks_labels(sql, key):
        [(metadata,)] = await sql("SELECT metadata FROM conversations WHERE id = ?1", (key,))
        await put_labels(sql, key, labels_of(split(metadata) if metadata else {}))


async def lacks_labels(sql: Sql, key: int) -> bool:
    """Whether the labels that can be asked for are not those of the metadata; of metadata that can't be read, no."""
    [(metadata,)] = await sql("SELECT metadata FROM conversations WHERE id = ?1", (key,))
    try:
        expected = set(labels_of(split(metadata) if metadata else {}))
    except InvalidJson:
        return False
    found: set[str] = set()
    for some in pieces(list(expected)):
        text = f"SELECT label FROM labels WHERE conversation = ?1 AND {among('label', len(some), 2)}"  # noqa: S608 - marks
        found |= {label for (label,) in await sql(text, (key, *some))}
    [(count,)] = await sql("SELECT count(*) FROM labels WHERE conversation = ?1", (key,))
    return found != expected or count != len(expected)


async def names(sql: Sql) -> list[str]:
    """All conversations by name."""
    return [name for (name,) in await sql("SELECT stream_id FROM conversations ORDER BY stream_id")]


async def conversation(sql: Sql, name: str) -> ConversationInfo | None:
    """What is listed of one conversation."""
    found = await sql(f"{_INFO} WHERE stream_id = ?1", (name,))
    return _read(found[0]) if found else None


async def listed(sql: Sql, page: Page, after: ConversationInfo | None, limit: int) -> list[ConversationInfo]:
    """The next conversations of a listing behind `after`, its title aside."""
    place = (0, 0, "") if after is None else (1, after.active_at, after.conversation)
    label = (0, "") if page.label is None else (1, page.label)
    return [_read(row) for row in await sql(_LISTED, (int(page.archived), *place, page.prefix, *label, limit))]


def is_titled(info: ConversationInfo, part: str) -> bool:
    """Whether a title has this part, capital or small letters of ASCII alike."""
    return info.title is not None and _fold(part) in _fold(info.title)


def _fold(text: str) -> str:
    return "".join(character.lower() if character.isascii() else character for character in text)


def _read(row: Sequence[Any]) -> ConversationInfo:
    name, messages, runs, leaf, projected_seq, active_at, archived, title, metadata, erased = row
    return ConversationInfo(
        name,
        messages,
        runs,
        leaf,
        projected_seq,
        active_at,
        bool(archived),
        None if title is None else decode(title),
        split(metadata) if metadata else {},
        None if erased is None else {name: said for name, said in msgspec.json.decode(erased).items() if name in _TOLD},
    )
