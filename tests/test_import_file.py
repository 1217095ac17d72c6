"""`Ledger.import_file` is the import of the command as a function: files and folders, each conversation once."""

from __future__ import annotations

import ast
import gzip
import json
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import pytest

from ledger import FileError, ImportDiffers, ImportedHistory, ImportedLog, LedgerError, open_ledger
from ledger.transfer.sources import read_file
from projector import events as ev
from projector.events import to_event
from projector.formats import STREAMS
from projector.formats.shared.history import run_id_of
from stream import InvalidId
from tests.ledger_commands import run_each
from tests.smallest_files import SMALLEST, of_lines, of_sse
from tests.test_commands import Shell

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from contextlib import ExitStack

    from ledger import Ledger
    from ledger.transfer.adapted import Skip
    from ledger.transfer.recorded import Recorded
    from projector.formats import StreamFormat

pytestmark = pytest.mark.anyio
TALK: Final = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]
LEDGER: Final = Path(__file__).parents[1] / "ledger"


EVERY: Final = 16
"""Of the smallest files that many share one that is tried each time: each starts a command."""


@pytest.fixture
async def ledger(anyio_backend: object, tmp_path: Path) -> AsyncIterator[Ledger]:
    del anyio_backend
    (tmp_path / "data").mkdir()
    async with open_ledger(str(tmp_path / "data" / "a.db")) as made:
        yield made


async def log_of(ledger: Ledger, conversation: str) -> list[tuple[str, bytes]]:
    return [(event.type, event.data) for event in await ledger.store.read(conversation, limit=100_000)]


def chat_chunks(texts: list[str]) -> list[dict[str, Any]]:
    shell: dict[str, Any] = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    deltas = [{"role": "assistant", "content": ""}, *({"content": text} for text in texts)]
    said = [shell | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    return [*said, shell | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]


async def test_a_file_is_taken_in_once_and_the_report_says_what_became_of_it(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "lobby.json"
    path.write_text(json.dumps(TALK))
    first = await ledger.import_file(path)
    head = (await ledger.store.bounds("lobby")).head
    assert first == ((ImportedHistory(str(path), "lobby", head, 1, 0, head, ()),), (), ())
    [again] = (await ledger.import_file(str(path), format="chat")).conversations
    assert again == ImportedHistory(str(path), "lobby", 0, 0, 2, head, ())
    [other] = (await ledger.import_file(path, into="other")).conversations
    assert (other.conversation, other.added) == ("other", head)
    assert [message.blocks[0].text for message in await ledger.transcript("other")] == ["Hi", "Hello!"]


async def test_what_has_no_place_is_told(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "shown.jsonl"
    path.write_text(json.dumps({"messages_display": "user: Hi\nassistant: None\nassistant: Hello!"}))
    [one] = (await ledger.import_file(path)).conversations
    assert isinstance(one, ImportedHistory)
    assert [loss.what for loss in one.losses] == ["1 messages only called a tool, and the calls are not in the file"]


async def test_of_a_folder_each_file_is_taken_in_or_refused(ledger: Ledger, tmp_path: Path) -> None:
    folder = tmp_path / "data"  # the database lies in it, too
    (folder / "deep").mkdir()
    (folder / "deep" / "b.json.gz").write_bytes(gzip.compress(json.dumps(TALK).encode()))
    (folder / "a.json").write_text(json.dumps(TALK))
    (folder / "torn.json").write_text('[{"role": "us')
    (folder / ".hidden").write_text("?")
    report = await ledger.import_file(folder)
    assert [(one.conversation, one.added > 0) for one in report.conversations] == [("a", True), ("deep/b", True)]
    [refused] = report.refused
    assert (refused.file, type(refused.error)) == (str(folder / "torn.json"), FileError)
    assert str(folder / "torn.json") in str(refused.error)


async def test_exports_of_ours_come_back_as_they_were(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "lobby.json"
    path.write_text(json.dumps(TALK))
    shell = Shell(tmp_path)
    shell.run("import", str(path))
    for name in ("tailfold", "tailfold-messages"):
        shell.run("export", "lobby", "--format", name, "-o", str(tmp_path / f"{name}.jsonl"))
    [log] = (await ledger.import_file(tmp_path / "tailfold.jsonl")).conversations
    assert log == ImportedLog(str(tmp_path / "tailfold.jsonl"), "lobby", log.head, 0, 0, log.head)
    [kept] = (await ledger.import_file(tmp_path / "tailfold-messages.jsonl", into="kept")).conversations
    assert (kept.conversation, kept.added > 0) == ("kept", True)
    assert [one.blocks for one in await ledger.transcript("kept")] == [one.blocks for one in await ledger.transcript("lobby")]


async def test_what_is_wrong_with_a_file_is_refused_before_anything_is_stored(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(of_lines([*chat_chunks(["a"]), {"choices": 5}, *chat_chunks(["b"])]))
    with pytest.raises(FileError, match=r"c\.jsonl, line 4: this is no chat stream") as caught:
        await ledger.import_file(path)
    assert isinstance(caught.value, LedgerError)
    both = tmp_path / "both.jsonl"
    both.write_text("".join(json.dumps({"messages": TALK}) + "\n" for _ in range(2)))
    with pytest.raises(FileError, match="this one holds 2"):
        await ledger.import_file(both, into="c")
    with pytest.raises(FileError, match="can't be read"):
        await ledger.import_file(tmp_path / "none.json")
    with pytest.raises(FileError, match="can't be read"):  # no name that a file system takes
        await ledger.import_file(tmp_path / ("x" * 300))
    with pytest.raises(ValueError, match="it is empty"):  # it would be all of the current folder
        await ledger.import_file("")
    with pytest.raises(ValueError, match="is no format"):
        await ledger.import_file(path, format="other")
    with pytest.raises(ValueError, match="not for a folder"):
        await ledger.import_file(tmp_path, into="c")
    with pytest.raises(InvalidId):
        await ledger.import_file(path, into="")
    assert [info async for info in ledger.conversations()] == []


async def test_a_conversation_that_holds_something_else_is_its_own_error(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps(TALK))
    await ledger.import_file(path)
    path.write_text(json.dumps([TALK[0] | {"content": "Bye"}, TALK[1]]))
    with pytest.raises(ImportDiffers) as caught:
        await ledger.import_file(path)
    assert caught.value.conversation == "c"


async def test_a_stream_is_adapted_once(ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[Any] = []

    def counting(run_id: str, new_id: Callable[[], str]) -> StreamFormat:
        adapter = made(run_id, new_id)
        feed = adapter.feed

        def count(chunk: Any) -> list[ev.Body]:
            fed.append(chunk)
            return list(feed(chunk))

        monkeypatch.setattr(adapter, "feed", count)
        return adapter

    made = STREAMS["chat"]
    monkeypatch.setitem(STREAMS, "chat", counting)
    chunks = chat_chunks(["a", "b"])
    path = tmp_path / "c.sse"
    path.write_bytes(of_sse(chunks))
    [first] = (await ledger.import_file(path)).conversations
    assert (first.added > 0, len(fed)) == (True, len(chunks))
    assert (await ledger.import_file(path)).conversations[0].added == 0
    assert len(fed) == 2 * len(chunks)


@pytest.mark.parametrize("length", [1, 300, 5000])
async def test_a_stream_is_stored_as_its_adapter_gives_it(ledger: Ledger, tmp_path: Path, length: int) -> None:
    """Also where it lies in a file meanwhile, and whatever id stood for the run's."""
    chunks = chat_chunks([f"{number} ü " + "x" * length for number in range(700)])
    path = tmp_path / "c.jsonl"
    path.write_bytes(of_lines(chunks))
    [one] = (await ledger.import_file(path)).conversations
    run_id = run_id_of("c", "stream ")
    ids = iter(f"{run_id}.{number}" for number in range(1, 9))
    adapter = STREAMS["chat"](run_id, lambda: next(ids))
    bodies = [body for chunk in chunks for body in adapter.feed(json.dumps(chunk))]
    expected: list[ev.Body] = [ev.RunStarted(run_id, None, "submit", run_id, provider="chat")]
    for body in bodies:
        before = expected[-1]
        if isinstance(body, ev.BlockDelta) and isinstance(before, ev.BlockDelta) and len(before.text) < 1024:
            expected[-1] = ev.BlockDelta(body.message_id, body.block, before.text + body.text)
        else:
            expected.append(body)
    expected.append(ev.RunFinished(run_id, "completed", "stop"))
    [created, *stored] = await log_of(ledger, "c")
    assert created == ("conversation.created", b"{}")
    assert stored == [(event.type, event.data) for event in map(to_event, expected)]
    assert (await ledger.import_file(path)).conversations[0] == ImportedHistory(str(path), "c", 0, 0, 1, one.head, ())


async def test_a_file_is_looked_through_beside_the_loop(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def look(stack: ExitStack, file: IO[bytes], path: Path, name: str, skip: Skip | None) -> list[Recorded]:
        threads.append(threading.get_ident())
        return read_file(stack, file, path, name, skip)

    monkeypatch.setattr("ledger.transfer.file_import.read_file", look)
    path = tmp_path / "c.json"
    path.write_text(json.dumps(TALK))
    await ledger.import_file(path)
    assert threads
    assert threading.get_ident() not in threads


async def test_progress_hears_what_is_done(ledger: Ledger, tmp_path: Path) -> None:
    heard: list[Any] = []

    @contextmanager
    def progress(what: str, total: int | None = None) -> Iterator[Any]:
        heard.append((what, total))
        yield heard.append

    folder = tmp_path / "all"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.json").write_text(json.dumps(TALK))
    await ledger.import_file(folder, progress=progress)
    assert heard == [(f"importing {folder}", 2), 1, 1]
    heard.clear()
    [one] = (await ledger.import_file(folder / "a.json", into="c", progress=progress)).conversations
    assert heard == [("importing c", None), one.added]


@pytest.mark.parametrize(
    ("ending", "content"),
    [
        pytest.param(*case[1:3], id=case[0], marks=[pytest.mark.heavy] if number % EVERY else [])
        for number, case in enumerate(SMALLEST)
    ],
)
async def test_command_and_function_do_the_same(ledger: Ledger, tmp_path: Path, ending: str, content: bytes) -> None:
    path = tmp_path / f"c.{ending}"
    path.write_bytes(content)
    told = Shell(tmp_path).read("import", str(path))
    report = await ledger.import_file(path)
    assert [(one["conversation"], one["added"], one["head"]) for one in told] == [
        (one.conversation, one.added, one.head) for one in report.conversations
    ]


def test_nothing_but_the_commands_needs_the_command_line() -> None:
    """What takes files in works where the extra `admin` is not installed."""
    wrong = []
    for path in sorted(LEDGER.rglob("*.py")):
        if path.is_relative_to(LEDGER / "admin") or path == LEDGER / "__main__.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            wrong += [(path, name) for name in names if name.startswith(("ledger.admin", "typer", "rich"))]
    assert not wrong


async def test_an_empty_path_is_not_this_folder(ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a shell makes of a variable that is not set would take in all that lies here."""
    (tmp_path / "talk.json").write_text(json.dumps(TALK))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="must name a file or a folder"):
        await ledger.import_file("")
    [(code, out, err)] = run_each(Shell(tmp_path), [["import", ""]])
    assert (code, out) == (2, "")
    assert "must name a file or a folder" in err
    assert len((await ledger.import_file(".")).conversations) == 1
