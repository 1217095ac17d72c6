"""A ledger whose log lies on NATS JetStream: imports, erasures, exports and commands."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from ledger import open_ledger
from ledger.transfer.jsonl import event_line, header_line
from stream import AppendResult, InvalidEvent, Snapshot, StoreUnreachable, StoreUnusable
from stream.nats import NatsStore
from tests.nats_server import SharedNats
from tests.test_house_rules import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ledger import Ledger
    from projector import Message

pytestmark = [pytest.mark.anyio, pytest.mark.heavy]


async def test_a_ledger_keeps_its_log_there(tmp_path: Path) -> None:
    log = SharedNats.url("shards=2")
    async with open_ledger(str(tmp_path / "ledger.db"), log=log) as ledger:
        async with ledger.run("c") as run:
            await run.message("user", "a question")
            for _ in range(40):
                await run.text("\x01" * 20_000)  # six bytes each, as JSON
        [_, answer] = await ledger.transcript("c")
        assert len(answer.text) == 800_000
        with pytest.raises(InvalidEvent, match="limit"):
            async with ledger.run("c", on_error="incomplete") as run:
                await run.message("user", "x" * 1_000_000)
        await ledger.compact("c")
        assert (await ledger.store.bounds("c")).floor > 0
    async with open_ledger(str(tmp_path / "ledger.db"), log=log) as ledger:
        assert len((await ledger.transcript("c"))[1].text) == 800_000
    with pytest.raises(StoreUnusable, match="log="):
        open_ledger(log)


@pytest.mark.parametrize("lasting", [1, 2, 3, 5, 8])
async def test_an_import_that_breaks_off_goes_on_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lasting: int) -> None:
    """A run that is larger than an append goes in parts, the same ones each time."""
    said = [{"role": "user", "content": "all of it"}]
    said += [{"role": "assistant", "content": f"{n} " + "x" * (700_000 if n == 30 else 30_000)} for n in range(60)]
    path = tmp_path / "long.json"
    path.write_text(json.dumps(said))
    async with open_ledger("memory:") as whole, open_ledger(str(tmp_path / "l.db"), log=SharedNats.url()) as ledger:
        await whole.import_file(str(path))
        append, left = ledger.store.append, [lasting]

        async def fail(*words: Any, **options: Any) -> AppendResult:
            left[0] -= 1
            if left[0] < 0:
                raise StoreUnreachable("nats://there", "gone")
            return await append(*words, **options)

        monkeypatch.setattr(ledger.store, "append", fail)
        with pytest.raises(StoreUnreachable):
            await ledger.import_file(str(path))
        monkeypatch.setattr(ledger.store, "append", append)
        await ledger.import_file(str(path))
        assert said_in(await ledger.transcript("long")) == said_in(await whole.transcript("long"))
        assert (await ledger.store.bounds("long")).head == (await whole.store.bounds("long")).head


async def test_what_is_erased_is_in_no_message_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what a sweep has left that was broken off."""
    async with open_ledger(str(tmp_path / "l.db"), log=SharedNats.url("shards=2")) as ledger:
        store = ledger.store
        assert isinstance(store, NatsStore)

        async def found() -> int:
            layout, count = store._log.layout, 0
            for shard in range(layout.shards):
                for pattern in layout.subjects(shard):
                    async for raw in store._log.walk(layout.stream(shard), pattern, 1, 10**9):
                        count += b"needle" in raw.data or b"bmVlZGxl" in raw.data
            return count

        for name in "abcd":
            async with ledger.run(name) as run:
                await run.message("user", "a needle")
                await run.text("no needle")
            await store.snapshots.save(Snapshot(name, "p", 1, 1, 0, b"needle"))
        assert await found() >= 8
        monkeypatch.setattr(store._log, "drop_below", lost)
        await ledger.compact("a")
        await ledger.compact("b", drop_unkept=True)
        monkeypatch.undo()
        assert await found() >= 8
        for name in "abcd":
            erased = await ledger.erase(name)
            assert erased.is_proven
            assert "files of the NATS servers" in str(erased.why)
        assert await found() == 0


async def lost(*_: object) -> None:
    raise StoreUnreachable("nats://there", "gone")


def said_in(messages: Sequence[Message]) -> list[tuple[str, str | None, str, str, str]]:
    return [(each.id, each.parent_id, each.role, each.status, each.text) for each in messages]


async def whole_of(ledger: Ledger) -> list[tuple[int, str, bytes]]:
    return [(each.seq, each.type, each.data) for each in await ledger.store.read("c", limit=100_000)]


async def test_an_export_is_taken_in_as_it_is(tmp_path: Path) -> None:
    async with open_ledger("memory:") as whole, open_ledger(str(tmp_path / "l.db"), log=SharedNats.url()) as ledger:
        for n in range(3):
            async with whole.run("c") as run:
                await run.message("user", f"{n}" * 200_000)
                for part in range(700):
                    await run.message("assistant", f"{part}")
        for n, path in enumerate((tmp_path / "1.jsonl", tmp_path / "2.jsonl")):
            bounds, events = await whole.store.bounds("c"), await whole.store.read("c", limit=100_000)
            path.write_text("".join(f"{line}\n" for line in (header_line("c", bounds), *map(event_line, events))))
            await ledger.import_file(str(path))
            assert await whole_of(ledger) == await whole_of(whole)
            async with whole.run("c") as run:
                for part in range(500):
                    await run.message("assistant", f"{n} {part}")


async def test_commands_take_a_log_there(tmp_path: Path) -> None:
    (tmp_path / "kept.json").write_text('[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]')
    url, said = SharedNats.url(), []
    for words in ("import kept.json", "conversations --json", "compact kept", "verify", "show kept"):
        command = [sys.executable, "-m", "ledger.admin", "--data", "l.db", "--log", url, *words.split()]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        done = await anyio.run_process(command, cwd=tmp_path, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.decode())
    assert "Hello!" in said[-1]
