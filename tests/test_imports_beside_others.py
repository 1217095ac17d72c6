"""An `import` that is killed, runs twice at once, or beside somebody who writes: all of it is there in the end, once."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import subprocess
import time
from typing import TYPE_CHECKING, Any, Final

import pytest
from structlog.testing import capture_logs

from ledger import open_ledger
from tests.faults.sizes import FULL
from tests.imports import chat_lines, check_order, imported, told
from tests.smallest_files import of_json, of_lines
from tests.test_commands import Shell

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.anyio


IMAGE: Final = base64.b64encode(random.Random(5).randbytes(150_000)).decode()


def large_talk() -> bytes:
    """One run of more than a thousand events and a megabyte, with the same image in several results, and one behind it."""
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": IMAGE}}
    talk: list[dict[str, Any]] = [{"role": "user", "content": "begin"}]
    for n in range(180):
        call = {"type": "tool_use", "id": f"t{n}", "name": "f", "input": {"text": "x" * 6_000}}
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": [image] if n % 40 == 7 else f"{n}"}
        talk += [{"role": "assistant", "content": [{"type": "text", "text": f"step {n}"}, call]}]
        talk += [{"role": "user", "content": [result]}]
    talk += [{"role": "assistant", "content": "done"}, {"role": "user", "content": "thanks"}]
    return of_json({"system": "s", "messages": talk})


@pytest.mark.slow
@pytest.mark.heavy
def test_an_import_that_is_killed_at_any_moment_and_repeated_is_as_one_that_was_not(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_bytes(large_talk())
    (tmp_path / "whole").mkdir()
    whole = Shell(tmp_path / "whole")
    began = time.monotonic()
    assert whole.read("import", str(path))[0]["added"] > 1000
    took = time.monotonic() - began
    wanted = whole.run("export", "c", "--format", "anthropic")
    events = whole.run("events", "c", "--json").count("\n")
    assert IMAGE[:1000] not in whole.run("events", "c", "--json")
    print("seed", seed := random.randrange(2**32))
    choose = random.Random(seed)
    killed = number = 0
    while number < (30 if FULL else 2) or not killed:
        number += 1
        assert number < 50, "it was faster than whoever wanted to kill it"
        folder = tmp_path / str(number)
        folder.mkdir()
        shell = Shell(folder)
        for _ in range(choose.randrange(1, 4)):
            with subprocess.Popen(
                shell.command("import", str(path)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            ) as child:
                began = time.monotonic()
                try:
                    assert child.wait(took * choose.uniform(0.5, 1.0)) == 0
                    took = time.monotonic() - began  # the machine was busier when it was taken
                except subprocess.TimeoutExpired:
                    child.kill()
                    killed += child.wait() != 0
        shell.run("import", str(path))
        assert shell.run("export", "c", "--format", "anthropic") == wanted
        assert shell.run("events", "c", "--json").count("\n") == events
        assert shell.read("import", str(path))[0]["added"] == 0
        assert shell.run("verify") == "everything is as it should be\n"


@pytest.mark.heavy
async def test_a_long_run_that_stopped_after_any_of_its_appends_goes_on_there(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    async with open_ledger("memory:") as ledger:
        [taken] = await imported(ledger, path, large_talk())
        whole = await told(ledger, "c", "all")
        runs = [run.run_id async for run in ledger.runs("c")]
    for stop in range(1, 20):
        async with open_ledger("memory:") as ledger:
            calls = 0
            append = ledger.store.append

            async def failing(*args: Any, append: Any = append, stop: int = stop, **kwargs: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls == stop:
                    raise OSError("killed")
                return await append(*args, **kwargs)

            ledger.store.append = failing  # type: ignore[method-assign]
            try:
                await imported(ledger, path)
            except OSError:
                pass
            else:
                assert stop > 3, "it is one append"
                return
            ledger.store.append = append  # type: ignore[method-assign]
            await imported(ledger, path)
            assert await told(ledger, "c", "all") == whole
            assert (await ledger.store.bounds("c")).head == taken.head
            assert [run.run_id async for run in ledger.runs("c")] == runs
            await check_order(ledger)
    raise AssertionError("it never came to its end")


@pytest.mark.heavy
def test_two_imports_of_the_same_files_at_once_give_them_once(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    for number in range(6):
        (tmp_path / "files" / f"{number}.jsonl").write_bytes(of_lines(chat_lines(number + 1)))
    (tmp_path / "files" / "large.json").write_bytes(large_talk())
    shell, alone = Shell(tmp_path), Shell(tmp_path / "files")
    alone.data = tmp_path / "alone.db"
    alone.run("import", str(tmp_path / "files"))
    words = shell.command("import", str(tmp_path / "files"), "--json")
    both = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    told_by_each = [child.communicate(timeout=120) for child in both]
    assert [(child.returncode, err) for child, (_, err) in zip(both, told_by_each, strict=True)] == [(0, b"")] * 2
    names = {one["conversation"] for out, _ in told_by_each for one in json.loads(out)["conversations"]}
    assert len(names) == 7
    told = [one.run("export", "--all", "--format", "anthropic") for one in (shell, alone)]
    assert told[0] == told[1]
    assert shell.run("export", "--all").count("\n") == alone.run("export", "--all").count("\n")
    assert shell.run("verify") == "everything is as it should be\n"


async def test_of_two_imports_at_once_only_the_one_that_stored_it_says_so(tmp_path: Path) -> None:
    path, data = tmp_path / "c.jsonl", str(tmp_path / "a.db")
    async with open_ledger(data) as slow, open_ledger(data) as quick:
        append = slow.store.append
        first: list[Any] = []

        async def late(*args: Any, **kwargs: Any) -> Any:
            if not first:
                first.extend(await imported(quick, path))
            return await append(*args, **kwargs)

        slow.store.append = late  # type: ignore[method-assign]
        [second] = await imported(slow, path, of_lines(chat_lines(3)))
        assert (first[0].runs > 0, first[0].events, first[0].known) == (True, first[0].head, 0)
        there = len(await slow.transcript("c", branch="all"))
        assert (second.runs, second.events, second.known, second.head) == (0, 0, there, first[0].head)


async def test_a_writer_beside_an_import_loses_nothing(tmp_path: Path) -> None:
    content = large_talk()
    async with open_ledger(str(tmp_path / "a.db"), durability="normal") as ledger:

        async def write() -> list[str]:
            ids = []
            for number in range(40):
                run = await ledger.begin_run("c", parent=None, run_id=f"r{number}")
                ids.append(await run.message("user", f"beside {number}"))
                await run.finish()
                await asyncio.sleep(0)
            return ids

        with capture_logs():
            ids, [taken] = await asyncio.gather(write(), imported(ledger, tmp_path / "c.json", content))
        assert taken.events > 1000
        there = {message.id for message in await ledger.transcript("c", branch="all")}
        assert set(ids) <= there
        assert len(there) == len(ids) + len(json.loads(content)["messages"]) + 1
        assert (await imported(ledger, tmp_path / "c.json"))[0].events == 0
        await check_order(ledger)
