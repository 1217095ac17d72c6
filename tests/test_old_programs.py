"""A program of an older version that has the file open while it is migrated: its statements fail by name, nothing is half."""

from __future__ import annotations

import gzip
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from ledger import open_ledger
from stream.sqlite.driver import connect

pytestmark = pytest.mark.anyio

VERSION_3: Final = Path(__file__).parent / "fixtures" / "version_3.db.gz"
VERSION_5: Final = VERSION_3.with_name("version_5.db.gz")
VERSION_6: Final = VERSION_3.with_name("version_6.db.gz")
LOG_VERSION_2: Final = VERSION_3.with_name("log_version_2.db.gz")
NEW_CONVERSATION: Final = """
INSERT INTO conversations (name) SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM conversations WHERE name = ?1)"""
ADVANCE: Final = """
UPDATE conversations SET projected_seq = ?3, replay_from = ?4 WHERE name = ?1 AND projected_seq = ?2 AND rewound = ?5
RETURNING id"""
LOOK: Final = "SELECT messages, runs, erased FROM conversations WHERE name = ?"
NOTE: Final = "UPDATE conversations SET erased = ?2 WHERE name = ?1"
KEY: Final = "SELECT id FROM conversations WHERE name = ?"
POSITION: Final = """
SELECT projected_seq, replay_from, leaf, messages, orphans, holes, erased, rewound FROM conversations WHERE name = ?"""
# What that program does, statement by statement as it was written, in the order in which it runs them.
ADVANCING: Final = [(NEW_CONVERSATION, ("talk",)), (ADVANCE, ("talk", 67, 68, 68, 0))]
WRITES: Final[dict[str, list[tuple[str, tuple[object, ...]]]]] = {
    "begin": [
        *ADVANCING,
        (
            """
INSERT INTO runs (conversation, id, seq, status, body) SELECT ?1, ?2, ?3, ?4, ?5
WHERE NOT EXISTS (SELECT 1 FROM runs WHERE conversation = ?1 AND id = ?2) RETURNING 1""",
            (1, "late", 68, "open", b"{}"),
        ),
        (
            """
UPDATE conversations SET runs = runs + ?2, messages = messages + ?3, active_at = max(active_at, ?4) WHERE id = ?1""",
            (1, 1, 0, 1),
        ),
    ],
    "commit": [
        *ADVANCING,
        (
            """
UPDATE runs SET status = ?4, body = ?5, first = ?6 WHERE conversation = ?1 AND id = ?2 AND seq = ?3 AND status = 'open'
RETURNING 1""",
            (1, "late", 68, "committed", b"{}", None),
        ),
        (
            """
INSERT INTO messages (conversation, id, run, parent, seq, on_path, started, is_committed, crc, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",  # noqa: E501 - as it was written
            (1, "late.1", "late", None, 68, 1, 68, 1, 0, b"{}"),
        ),
        ("UPDATE conversations SET leaf = ?2 WHERE id = ?1", (1, "late.1")),
    ],
    "amend": [
        *ADVANCING,
        ("UPDATE messages SET crc = ?3, body = ?4 WHERE conversation = ?1 AND id = ?2", (1, "r1.1", 0, b"{}")),
    ],
    "select": [*ADVANCING, ("INSERT INTO selections VALUES (?, ?, ?)", (1, 68, "r1.1"))],
    "choose": [*ADVANCING, ("INSERT INTO choices SELECT ?1, ?2, ?3, ?4, ?5", (1, 68, "context.expanded", 0, b"{}"))],
    "describe": [*ADVANCING, ("UPDATE conversations SET title = ?2 WHERE id = ?1", (1, '"late"'))],
    "media": [
        (NEW_CONVERSATION, ("talk",)),
        ("INSERT INTO media VALUES (?, ?, ?, ?)", ("late", "image/png", 1, b"x")),
    ],
    "begin an erasure": [(NEW_CONVERSATION, ("talk",)), (LOOK, ("talk",)), (NOTE, ("talk", "{}"))],
    "claim an erasure": [(LOOK, ("talk",)), (NOTE, ("talk", "{}"))],
    "wipe": [
        ("SELECT id, erased FROM conversations WHERE name = ?", ("talk",)),
        ("DELETE FROM messages WHERE conversation = ?", (1,)),
    ],
    "rewind": [
        (
            """UPDATE conversations SET projected_seq = ?2, replay_from = min(replay_from, ?2), rewound = rewound + 1
              WHERE name = ?1 AND projected_seq > ?2""",
            ("talk", 1),
        ),
    ],
    "skip a hole": [
        (NEW_CONVERSATION, ("talk",)),
        ("SELECT id, projected_seq, holes FROM conversations WHERE name = ?", ("talk",)),
    ],
    "rewrite": [(KEY, ("talk",)), ("DELETE FROM messages WHERE conversation = ? AND run = ?", (1, "r1"))],
    "hold": [
        ("DELETE FROM holds WHERE id = ? OR until < ?", ("late", 1)),
        ("INSERT INTO holds VALUES (?, ?, ?, ?)", ("late", "talk", 0, 2)),
    ],
    "let go": [("DELETE FROM holds WHERE id = ?", ("held",))],
    "rebuild": [(KEY, ("talk",)), ("UPDATE messages SET selected = 0 WHERE conversation = ? AND selected", (1,))],
}
READS: Final = {
    "position": (POSITION, ("talk",)),
    "message": (
        "SELECT id, crc, body FROM messages WHERE conversation = (SELECT id FROM conversations WHERE name = ?1) AND id = ?2",
        ("talk", "r1.1"),
    ),
    "list": ("SELECT name, messages FROM conversations", ()),
    "held": (
        "SELECT id, through FROM holds WHERE until >= ?2 AND (conversation IS NULL OR conversation = ?1)",
        ("talk", 0),
    ),
}
UNKNOWN: Final = r"no such column: (name|id|body)$|has no column named name$"


def everything(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as raw:
        return list(raw.iterdump())


def run(connection: sqlite3.Connection, statements: list[tuple[str, tuple[Any, ...]]]) -> None:
    """One transaction of the old program: what fails rolls all of it back."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for text, parameters in statements:
            connection.execute(text, parameters).fetchall()
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def lay_file(path: Path) -> None:
    """The file as that program has left it, with a hold in it."""
    path.write_bytes(gzip.decompress(VERSION_3.read_bytes()))
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("INSERT INTO holds VALUES ('held', NULL, 0, 1)")


@pytest.mark.parametrize("operation", WRITES)
async def test_what_an_older_program_writes_after_the_migration_fails_by_name(tmp_path: Path, operation: str) -> None:
    path = tmp_path / "chat.db"
    lay_file(path)
    shutil.copy(path, tmp_path / "before.db")
    statements = WRITES[operation]
    with closing(connect(str(tmp_path / "before.db"))) as raw:
        before = everything(tmp_path / "before.db")
        run(raw, statements)  # it is what the program did
        assert operation == "skip a hole" or everything(tmp_path / "before.db") != before
    with closing(connect(str(path))) as open_before:
        open_before.execute(POSITION, ("talk",)).fetchall()  # prepared, and cached
        async with open_ledger(str(path)):
            pass
        before = everything(path)
        with pytest.raises(sqlite3.OperationalError, match=UNKNOWN):
            run(open_before, statements)
        assert everything(path) == before


@pytest.mark.parametrize("question", READS)
async def test_what_an_older_program_asks_after_the_migration_fails_by_name(tmp_path: Path, question: str) -> None:
    path = tmp_path / "chat.db"
    lay_file(path)
    with closing(connect(str(path))) as open_before:
        assert open_before.execute(*READS[question]).fetchall()
        async with open_ledger(str(path)):
            pass
        with pytest.raises(sqlite3.OperationalError, match=UNKNOWN):
            open_before.execute(*READS[question]).fetchall()


# What a program of version 5 of the ledger does with bodies, which may lie in pages since.
OF_BODIES: Final[dict[str, tuple[str, tuple[object, ...]]]] = {
    "put a message": (
        """INSERT INTO messages (conversation, id, run, parent, seq, on_path, started, is_committed, crc, body)
        VALUES (1, 'new', 'r', NULL, 999, 1, 999, 1, 0, x'00')""",
        (),
    ),
    "change a message": ("UPDATE messages SET crc = ?3, body = ?4 WHERE conversation = ?1 AND id = ?2", (1, "q1", 0, b"{}")),
    "begin a run": (
        "INSERT INTO runs (conversation, id, seq, status, body, first) SELECT ?1, ?2, ?3, ?4, ?5, ?6",
        (1, "new", 999, "open", b"{}", None),
    ),
    "end a run": ("UPDATE runs SET status = ?2, body = ?3, first = ?4 WHERE id = ?1", ("r1", "committed", b"{}", None)),
    "note usage": ("UPDATE runs SET body = ?2 WHERE id = ?1", ("r1", b"{}")),
    "read messages": ("SELECT id, parent, crc, body FROM messages", ()),
    "read runs": ("SELECT body FROM runs", ()),
}


@pytest.mark.parametrize("operation", OF_BODIES)
async def test_a_program_of_version_5_takes_no_empty_row_for_a_body(tmp_path: Path, operation: str) -> None:
    path, copy = tmp_path / "chat.db", tmp_path / "before.db"
    for place in (path, copy):
        place.write_bytes(gzip.decompress(VERSION_5.read_bytes()))
    with closing(connect(str(copy))) as raw:
        run(raw, [OF_BODIES[operation]])  # it is what the program did
    with closing(connect(str(path))) as open_before:
        open_before.execute("SELECT id FROM messages").fetchall()
        async with open_ledger(str(path)):
            before = everything(path)
            with pytest.raises(sqlite3.Error, match=r"no column named body|no such column: body"):
                run(open_before, [OF_BODIES[operation]])
            assert everything(path) == before


# What a program of version 6 of the ledger does with pages, whose form is another since.
OF_PAGES: Final[dict[str, tuple[str, tuple[object, ...]]]] = {
    "read pages": ("SELECT id, conversation, crc, data FROM pages WHERE id IN (?1)", (1,)),
    "begin a page": ("INSERT INTO pages (conversation, crc, data) VALUES (?1, 0, ?2) RETURNING id", (1, b"")),
    "write a page": ("UPDATE pages SET crc = ?2, data = ?3 WHERE id = ?1", (1, 0, b"")),
}


@pytest.mark.parametrize("operation", OF_PAGES)
async def test_a_program_of_version_6_takes_no_new_page_for_a_damaged_one(tmp_path: Path, operation: str) -> None:
    path, copy = tmp_path / "chat.db", tmp_path / "before.db"
    for place in (path, copy):
        place.write_bytes(gzip.decompress(VERSION_6.read_bytes()))
    held = everything(copy)
    with closing(connect(str(copy))) as raw:
        run(raw, [OF_PAGES[operation]])  # it is what the program did
    assert (everything(copy) == held) is (operation == "read pages")
    with closing(connect(str(path))) as open_before:
        assert open_before.execute("SELECT id FROM pages").fetchall()
        async with open_ledger(str(path)) as ledger:
            await ledger.compact("talk")
            before = open_before.execute("SELECT * FROM pages").fetchall()
            with pytest.raises(sqlite3.Error, match=r"no column named data|no such column: data"):
                run(open_before, [OF_PAGES[operation]])
            assert open_before.execute("SELECT * FROM pages").fetchall() == before


# What a program of version 2 of the log does with a stream that it knows.
APPEND: Final = "INSERT INTO appends (stream, last, n, at, aid, producer, epoch, pseq, crc, data) VALUES "
OF_LOG: Final[dict[str, list[tuple[str, tuple[object, ...]]]]] = {
    "append": [(APPEND + "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING aid", (1, 37, 1, 0, b"", None, None, None, 0, b""))],
    "read": [("SELECT last, n, at, aid, crc, data FROM appends WHERE stream = 1 ORDER BY last", ())],
    "truncate": [
        (
            """
UPDATE streams SET floor = max(floor, ?2), guard = guard + 5 * (max(floor, ?2) % 1000003 - floor % 1000003)
WHERE name = ?1 AND ?2 <= head RETURNING floor, head, origin, guard""",
            ("packed", 9),
        ),
    ],
    "delete": [
        (
            """
UPDATE streams SET floor = head, origin = head, guard = guard
  + 5 * (head % 1000003 - floor % 1000003) + 7 * (head % 1000003 - origin % 1000003) WHERE name = ?""",
            ("packed",),
        ),
        ("DELETE FROM snapshots WHERE stream = (SELECT id FROM streams WHERE name = ?)", ("packed",)),
    ],
    "adopt": [
        ("INSERT INTO streams (name) SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM streams WHERE name = ?1)", ("late",)),
        (
            """
UPDATE streams SET head = ?2, floor = ?2, origin = ?3, guard = 8 * (?2 % 1000003) + 7 * (?3 % 1000003) WHERE name = ?1""",
            ("late", 6, 2),
        ),
    ],
}


@pytest.mark.parametrize("operation", OF_LOG)
async def test_what_a_program_of_an_older_log_does_fails_by_name(tmp_path: Path, operation: str) -> None:
    """Or the feed would miss it, or it would miss what lies in batches."""
    path, copy = tmp_path / "chat.db", tmp_path / "before.db"
    for place in (path, copy):
        place.write_bytes(gzip.decompress(LOG_VERSION_2.read_bytes()))
    statements = OF_LOG[operation]
    before = everything(copy)
    with closing(connect(str(copy))) as raw:
        run(raw, statements)  # it is what the program did
    assert (everything(copy) == before) is (operation == "read")
    with closing(connect(str(path))) as open_before:
        open_before.execute("SELECT head FROM streams").fetchall()
        async with open_ledger(str(path)) as ledger:
            token = (await ledger.store.changes()).token
            before = everything(path)
            with pytest.raises(sqlite3.Error, match=r"no column named aid|no such column: aid|each change is numbered"):
                run(open_before, statements)
            assert everything(path) == before
            assert (await ledger.store.changes(after=token)).streams == []
