"""Recorded sessions are the same on every engine, by the hash of each log and transcript; and one that is not is told."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from stream import NewEvent
from tests.corpus_engines import FIRST, PLACES, compare, some_files
from tests.faults.sizes import FULL
from tests.shared_data import FOLDERS, needs_data

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ledger import Ledger
    from stream import AppendResult
    from stream.database import Sql

pytestmark = [pytest.mark.anyio, pytest.mark.heavy]
TALKS = [[{"role": "user", "content": f"question {n}"}, {"role": "assistant", "content": f"answer {n}"}] for n in range(3)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder of public data: a source, of three conversations in two files, and one that nobody reads."""
    source = tmp_path / "data" / "tau-bench"
    source.mkdir(parents=True)
    for name, talks in (("a", TALKS[:1]), ("b", TALKS[1:])):
        lines = [json.dumps({"task_id": n, "trial": 0, "reward": 1.0, "traj": talk}) for n, talk in enumerate(talks)]
        (source / f"{name}.jsonl").write_text("\n".join(lines))
    (source / "page.html").write_text("<html></html>")
    return source.parent


@needs_data
async def test_all_that_was_published_is_the_same_on_every_engine(tmp_path: Path) -> None:
    """In the smoke size a file or two of each source, and two conversations of it; of the one of 969 messages none."""
    every, most = (1, None) if FULL else (150, 2)
    files = ((root, path) for root, path in some_files(FOLDERS, every) if FULL or "blns" not in path.parts)
    told = await compare(tmp_path, files, most=most)
    print(told._replace(differences=told.differences[:10]))
    assert told.differences == []
    assert told.expected >= (3_000 if FULL else 30)
    assert told.conversations == dict.fromkeys(PLACES, told.expected)


async def test_each_conversation_is_compared_in_each_place(data: Path, tmp_path: Path) -> None:
    told = await compare(tmp_path, some_files([data]))
    assert told.differences == []
    assert told.conversations == dict.fromkeys(PLACES, 6)  # each recorded, and imported
    assert (told.files, told.expected, told.messages, told.refused) == (3, 6, 12, 2)


@pytest.mark.parametrize("place", ["sqlite", "postgres", "file, log on nats", "postgres, log on nats"])
async def test_a_body_that_is_another_one_in_one_place_is_told(place: str, data: Path, tmp_path: Path) -> None:
    async def alter(ledgers: dict[str, Ledger]) -> None:
        await ledgers[place].tables.transact(_alter)

    told = await compare(tmp_path, some_files([data]), behind=alter)
    found = [difference for difference in told.differences if ": its transcript is " in difference]
    assert [difference.partition(": its")[0] for difference in found] == [
        f"{place}: tau-bench/a.jsonl", f"{place}, opened anew: tau-bench/a.jsonl",
    ]  # fmt: skip
    assert all(difference.startswith(place) for difference in told.differences)
    assert not any(": its log is " in difference for difference in told.differences)


async def _alter(sql: Sql) -> None:
    """The body of a message, which is whole in itself."""
    rows = await sql("""
SELECT messages.conversation, messages.id, row_body FROM messages JOIN conversations ON conversations.id = conversation
WHERE stream_id = 'tau-bench/a.jsonl' ORDER BY seq""")
    [(conversation, message_id, body)] = [row for row in rows if b"answer 0" in row[2]]
    altered = bytes(body).replace(b"answer 0", b"answer O")
    text = "UPDATE messages SET row_body = ?3, crc = ?4 WHERE conversation = ?1 AND id = ?2"
    await sql(text, (conversation, message_id, altered, zlib.crc32(altered)))


@pytest.mark.parametrize("place", PLACES)
async def test_an_event_that_is_another_one_on_one_engine_is_told(
    place: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ledger agrees with its log: nothing but the comparison tells."""

    async def alter(ledgers: dict[str, Ledger]) -> None:
        store = ledgers[place].store
        plain = store.append

        async def append(stream_id: str, events: Sequence[NewEvent], **given: Any) -> AppendResult:
            altered = [NewEvent(event.type, event.data.replace(b"answer 0", b"answer O")) for event in events]
            return await plain(stream_id, altered, **given)

        monkeypatch.setattr(store, "append", append)

    told = await compare(tmp_path, some_files([data]), before=alter)
    others = {difference.partition(": ")[0].removesuffix(", opened anew") for difference in told.differences}
    assert others == (set(PLACES) - {FIRST} if place == FIRST else {place})
    for what in ("log", "transcript"):
        for name in ("recorded/tau-bench/a.jsonl#0", "tau-bench/a.jsonl"):
            assert any(f": {name}: its {what} is " in difference for difference in told.differences)
    assert not any("#1" in difference or "/2:" in difference for difference in told.differences)
