"""The look at raw bytes finds what is compressed wherever it lies in SQLite's files, and nothing where there is none."""

from __future__ import annotations

import random
import sqlite3
import time
import zlib
from contextlib import closing
from typing import TYPE_CHECKING, Final

import pytest

from ledger.tables.dictionary import DICTIONARY
from tests.raw_bytes import readable, traces

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRET: Final = "the needle 4711 \\u00e9"
PLACES: Final = ("beginning", "middle", "end")
FORMS: Final = tuple((level, dictionary) for level in (1, 3, 6, 9) for dictionary in (b"", DICTIONARY))
WITH_DICTIONARY: Final = [b"", DICTIONARY]


def prose(seed: int, words: int = 9_000) -> str:
    chance = random.Random(seed)
    return " ".join(f"{chance.randrange(40_000):x}" for _ in range(words))


def hidden(place: str, form: tuple[int, bytes] = (6, b""), words: int = 9_000, secret: str = SECRET) -> bytes:
    """A large run with the secret at that place of it, compressed at a level and with a dictionary."""
    ahead, behind = prose(1, words), prose(2, words)
    text = {"beginning": secret + ahead + behind, "middle": ahead + secret + behind, "end": ahead + behind + secret}[place]
    level, dictionary = form
    packer = zlib.compressobj(level, zdict=dictionary)
    return packer.compress(text.encode()) + packer.flush()


@pytest.fixture
def raw(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE pages (id INTEGER PRIMARY KEY, conversation INTEGER, crc INTEGER, data BLOB)")
        for number in range(1, 40):  # neighbours, small and large, compressed and not
            data = prose(number, 300 * (number % 5)).encode()
            put(connection, number, zlib.compress(data) if number % 2 else data)
        yield connection


def put(raw: sqlite3.Connection, number: int, data: bytes) -> None:
    raw.execute("INSERT INTO pages VALUES (?, 7, ?, ?)", (number, zlib.crc32(data), data))


def finds(tmp_path: Path, secret: str = SECRET) -> bool:
    return secret.encode() in readable(tmp_path / "a.db")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("form", FORMS)
def test_it_is_found_in_a_row_that_is_there(
    raw: sqlite3.Connection, tmp_path: Path, place: str, form: tuple[int, bytes]
) -> None:
    data = hidden(place, form)
    assert len(data) > 10 * 4096
    assert SECRET.encode() not in data
    assert not finds(tmp_path)
    put(raw, 50, data)
    assert finds(tmp_path)


@pytest.mark.parametrize("words", [3, 30, 300, 800, 1500])
@pytest.mark.parametrize("dictionary", WITH_DICTIONARY)
@pytest.mark.parametrize("place", PLACES)
def test_it_is_found_in_runs_of_every_size(
    raw: sqlite3.Connection, tmp_path: Path, place: str, dictionary: bytes, words: int
) -> None:
    for shift in range(8):  # so that it begins and goes over the seams at other bytes
        data = hidden(place, (6, dictionary), words=words + shift, secret=f"{SECRET} {shift}")
        put(raw, 60 + shift, data)
        assert finds(tmp_path, f"{SECRET} {shift}")


@pytest.mark.parametrize("dictionary", WITH_DICTIONARY)
@pytest.mark.parametrize("place", PLACES)
def test_it_is_found_in_free_pages(raw: sqlite3.Connection, tmp_path: Path, place: str, dictionary: bytes) -> None:
    put(raw, 49, prose(3, 2_000).encode())
    put(raw, 50, hidden(place, (6, dictionary)))
    raw.execute("PRAGMA secure_delete = OFF")
    raw.execute("DELETE FROM pages WHERE id = 49")  # its first page becomes that of the list of free ones
    raw.execute("DELETE FROM pages WHERE id = 50")
    assert raw.execute("SELECT count(*) FROM pages WHERE id = 50").fetchone() == (0,)
    assert finds(tmp_path)
    raw.execute("VACUUM")
    assert not finds(tmp_path)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", PLACES)
def test_traces_of_it_are_found_where_a_run_can_not_be_read(
    raw: sqlite3.Connection, tmp_path: Path, place: str, form: tuple[int, bytes]
) -> None:
    put(raw, 50, hidden(place, form))
    [trace] = found = traces(SECRET.encode(), tmp_path / "a.db")
    assert 6 <= len(trace) <= len(SECRET)
    raw.execute("PRAGMA secure_delete = OFF")
    raw.execute("DELETE FROM pages WHERE id = 50")  # its first page becomes the list of those that are free
    assert finds(tmp_path) == (place == "beginning")
    assert trace in readable(tmp_path / "a.db")
    raw.execute("VACUUM")
    assert not [trace for trace in found if trace in readable(tmp_path / "a.db")]


def test_what_is_overwritten_is_not_found(raw: sqlite3.Connection, tmp_path: Path) -> None:
    for number, place in enumerate(PLACES):
        put(raw, 50 + number, hidden(place))
    raw.execute("PRAGMA secure_delete = ON")
    raw.execute("DELETE FROM pages WHERE id >= 50")
    assert not finds(tmp_path)


@pytest.mark.parametrize("dictionary", WITH_DICTIONARY)
@pytest.mark.parametrize("place", PLACES)
def test_it_is_found_in_frames_of_a_log(raw: sqlite3.Connection, tmp_path: Path, place: str, dictionary: bytes) -> None:
    raw.execute("PRAGMA secure_delete = ON")
    raw.execute("PRAGMA journal_mode = WAL")
    raw.execute("PRAGMA wal_autocheckpoint = 0")
    for number in range(50, 53):  # several images of each page, and rows of others on them
        put(raw, number, hidden("end", (6, dictionary), secret=f"not that {number}"))
        raw.execute("DELETE FROM pages WHERE id = ?", (number,))
    put(raw, 53, hidden(place, (6, dictionary)))
    raw.execute("DELETE FROM pages WHERE id = 53")
    assert finds(tmp_path)
    raw.execute("PRAGMA wal_checkpoint (RESTART)")
    put(raw, 54, b"")  # the log goes on from its beginning, and the old frames lie behind it
    assert finds(tmp_path)
    assert not finds(tmp_path.joinpath("other"))
    raw.execute("PRAGMA wal_checkpoint (TRUNCATE)")
    assert not finds(tmp_path)


@pytest.mark.parametrize("dictionary", WITH_DICTIONARY)
@pytest.mark.parametrize("place", PLACES)
def test_it_is_found_in_a_journal(raw: sqlite3.Connection, tmp_path: Path, place: str, dictionary: bytes) -> None:
    put(raw, 50, hidden(place, (6, dictionary)))
    raw.execute("PRAGMA secure_delete = ON")
    raw.execute("PRAGMA journal_mode = PERSIST")
    raw.execute("DELETE FROM pages WHERE id = 50")
    assert finds(tmp_path)
    (tmp_path / "a.db-journal").unlink()
    assert not finds(tmp_path)


@pytest.mark.parametrize("page_bytes", [512, 1024, 65536])
def test_it_is_found_on_pages_of_any_size(tmp_path: Path, page_bytes: int) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as raw:
        raw.execute(f"PRAGMA page_size = {page_bytes}")
        raw.execute("PRAGMA journal_mode = WAL")
        raw.execute("CREATE TABLE pages (id INTEGER PRIMARY KEY, conversation INTEGER, crc INTEGER, data BLOB)")
        assert not finds(tmp_path)
        put(raw, 1, hidden("end", words=20_000))
        raw.execute("PRAGMA wal_checkpoint (TRUNCATE)")
        assert finds(tmp_path)


def test_a_text_that_is_not_compressed_is_found_over_the_seam_of_two_pages(raw: sqlite3.Connection, tmp_path: Path) -> None:
    for shift in range(4):
        put(
            raw,
            50 + shift,
            (f"{'':<{shift * 11}}" + "".join(f"<secret {shift} {number:05}>" for number in range(1_000))).encode(),
        )
    held, plain = readable(tmp_path / "a.db"), (tmp_path / "a.db").read_bytes()
    secrets = [f"<secret {shift} {number:05}>".encode() for shift in range(4) for number in range(1_000)]
    assert not [secret for secret in secrets if secret not in held]
    assert [secret for secret in secrets if secret not in plain]


def test_what_is_damaged_is_found_up_to_there(raw: sqlite3.Connection, tmp_path: Path) -> None:
    for number in range(50, 70):
        short = bytearray(hidden("end", words=3, secret=f"{SECRET} {number}"))
        short[-2] ^= 1  # its checksum
        put(raw, number, bytes(short))
        assert finds(tmp_path, f"{SECRET} {number}")


@pytest.mark.heavy
def test_it_looks_at_some_megabytes_in_some_seconds(raw: sqlite3.Connection, tmp_path: Path) -> None:
    for number in range(100, 200):
        put(raw, number, hidden("end", words=4_000, secret=str(number)))
    assert (tmp_path / "a.db").stat().st_size > 2_000_000
    began = time.process_time()
    assert not finds(tmp_path)
    assert finds(tmp_path, "199")
    assert time.process_time() - began < 10
