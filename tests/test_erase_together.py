"""Several conversations erased at once: for each holds what holds for one, and the files are written anew once for all."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from ledger import UnknownConversation, UnknownMedia, erasure
from stream import InvalidId, StoreBusy
from stream.sqlite import SqliteStore
from tests.faults.sizes import FULL
from tests.needles import PLACES, everything, fill, found, media_id_of, media_of, open_at, say, texts, wrong
from tests.sqlite_files import database_of

if TYPE_CHECKING:
    from pathlib import Path

    from ledger import Ledger
    from stream.sqlite import Database

pytestmark = pytest.mark.anyio
NAMES = ("c", "d", "e")


def watch_rewriting(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were written anew since."""
    paths: list[str] = []
    assert isinstance(ledger.store, SqliteStore)

    def watch(database: Database) -> None:
        execute = database._execute

        def watched(connection: Any, text: str, parameters: Any = ()) -> list[Any]:
            if text == "VACUUM":
                paths.append(database.path)
            return execute(connection, text, parameters)

        monkeypatch.setattr(database, "_execute", watched)

    for database in {database_of(ledger), ledger.store.database}:
        watch(database)
    return paths


@pytest.mark.parametrize("place", PLACES)
async def test_nothing_of_any_of_them_is_left_and_each_file_is_written_anew_once(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_at(tmp_path, place) as ledger:
        for name in (*NAMES, "kept"):
            await fill(ledger, name, deltas=300 if name == "d" else 3)
        await ledger.compact("e")
        kept = await everything(ledger, "kept")
        heads = {name: (await ledger.store.bounds(name)).head for name in NAMES}
        rewritten = watch_rewriting(ledger, monkeypatch)

        told = await ledger.erase(*NAMES)

        assert len(rewritten) == len(set(rewritten)) == (1 if place == "one file" else 2)
        assert [one.conversation for one in told] == list(NAMES)
        assert [(one.messages, one.runs, one.is_proven, one.why) for one in told] == [(8, 5, True, None)] * 3
        assert [one.events for one in told] == [heads[name] for name in NAMES]
        for name in NAMES:
            assert found(tmp_path, name) == set()
            assert await ledger.transcript(name, branch="all") == []
        assert await everything(ledger, "kept") == kept
        assert await wrong(ledger) == []
        await say(ledger, "a new life", "d")
    async with open_at(tmp_path, place) as ledger:
        assert await texts(ledger, "d") == ["a new life"]
        assert await everything(ledger, "kept") == kept


async def test_media_that_only_they_have_goes_with_them(tmp_path: Path) -> None:
    async with open_at(tmp_path) as ledger:
        for name, media in (("c", "both"), ("d", "both"), ("d", "wider"), ("e", "wider")):
            await ledger.add_media(name, media_of(media), "image/png")
        await ledger.erase("c", "d")
        with pytest.raises(UnknownMedia):
            await ledger.media(media_id_of("both"))
        assert found(tmp_path, "both") == set()
        assert (await ledger.media(media_id_of("wider"))).data == media_of("wider")


@pytest.mark.parametrize(("names", "refusal"), [(("c", "nobody"), UnknownConversation), (("c", "d", ""), InvalidId)])
async def test_nothing_of_any_is_erased_where_one_is_not_known(
    tmp_path: Path, names: tuple[str, str], refusal: type[Exception]
) -> None:
    async with open_at(tmp_path) as ledger:
        for name in ("c", "d"):
            await fill(ledger, name)
        before = [await everything(ledger, name) for name in ("c", "d")]
        for order in (names, names[::-1]):
            with pytest.raises(refusal):
                await ledger.erase(*order)
        assert [await everything(ledger, name) for name in ("c", "d")] == before
        assert await wrong(ledger) == []


async def test_who_is_named_twice_is_erased_once(tmp_path: Path) -> None:
    async with open_at(tmp_path) as ledger:
        await fill(ledger, "c")
        [told] = await ledger.erase("c", "c")
        assert (told.conversation, told.messages, told.is_proven) == ("c", 8, True)


@pytest.mark.heavy
async def test_one_that_dies_in_the_middle_is_finished_by_whoever_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it stops: all that was intended by then is erased, what was not is whole."""
    monkeypatch.setattr(erasure, "_CLAIM_MS", 0)
    monkeypatch.setattr(erasure, "_clean_files", cleaned_before)
    for step in range(200) if FULL else range(random.randrange(3), 200, 3):
        async with open_at(tmp_path) as ledger:
            for name in ("c", "d"):
                await say(ledger, f"life {step}", name)
            before = [await texts(ledger, name) for name in ("c", "d")]
            assert before == [[f"life {step}"]] * 2
        is_dead = False
        async with open_at(tmp_path) as ledger:
            assert isinstance(ledger.store, SqliteStore)
            with monkeypatch.context() as patched:
                die_at(patched, ledger.store.database, step)
                try:
                    await ledger.erase("c", "d")
                except StoreBusy:
                    is_dead = True
        async with open_at(tmp_path) as ledger:
            for name in ("c", "d"):
                assert await texts(ledger, name) in ([], [f"life {step}"])
                [info] = [info async for info in ledger.conversations(prefix=name)]
                assert info.erased is None or info.erased["is_done"] or not is_dead
                if not is_dead:
                    assert await texts(ledger, name) == []
            await ledger.erase("c", "d")
            assert [await texts(ledger, name) for name in ("c", "d")] == [[], []]
        if not is_dead:
            break
    assert 20 < step < 199


async def cleaned_before(*_: object) -> None:
    """Files take their time, and are looked at elsewhere."""


def die_at(patched: pytest.MonkeyPatch, database: Database, step: int) -> None:
    """From that write on nothing is written any more."""
    execute, left = database._execute, step

    def dying(connection: Any, text: str, parameters: Any = ()) -> list[Any]:
        nonlocal left
        if text.lstrip().startswith(("INSERT", "UPDATE", "DELETE", "COMMIT")):
            left -= 1
            if left < 0:
                raise StoreBusy("it was killed")
        return execute(connection, text, parameters)

    patched.setattr(database, "_execute", dying)
