"""The benchmarks run, say what they compared, and count right; no test looks at how fast anything is."""

from __future__ import annotations

import importlib.metadata
import statistics
import subprocess
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from benchmarks import machine, peers, plots, talk
from benchmarks.__main__ import main
from benchmarks.measuring import Bench, Figure, compare, interleave, percentile, sized, summarize
from benchmarks.raw import RawLog
from benchmarks.report import TOKENS, Record, by_source, number, tables, targets_table
from benchmarks.targets import TARGETS, judge
from benchmarks.workloads import WORKLOADS, agent, appends, branches, context, sessions, turns
from benchmarks.workloads.turns_of_peers import FILLERS
from ledger import open_ledger
from projector import load, transcript
from projector.context.tokens import tokens_of
from projector.context.tool_groups import pair
from stream import MemoryStore, NewEvent

if TYPE_CHECKING:
    from benchmarks.measuring import Side, SizedSide

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.anyio


@pytest.mark.heavy
@pytest.mark.parametrize(
    "names", [("replay", "tail"), ("branches", "long", "many", "crash"), ("context", "reads")], ids="-".join
)
def test_a_smoke_run_prints_its_tables_and_writes_one_line(names: tuple[str, ...], tmp_path: Path) -> None:
    written = tmp_path / "runs.jsonl"
    folder = tmp_path / "databases"
    folder.mkdir()
    command = [sys.executable, "-m", "benchmarks", "--smoke", "--loop", "asyncio", "--json", str(written), "--only", *names]
    if machine.file_system(folder) not in machine.IN_MEMORY:
        command += ["--folder", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert not list(folder.iterdir())
    [line] = written.read_bytes().splitlines()
    record = msgspec.json.decode(line, type=Record)
    assert {figure.id.partition(".")[0] for figure in record.figures} == set(names)
    for figure in record.figures:
        assert 0 < figure.low <= figure.value <= figure.high
        assert figure.what[:40] in done.stdout
    assert "Targets" in done.stdout
    assert record.settings["loops"] == ["asyncio"]
    assert record.machine.default_synchronous in (1, 2)
    assert set(record.settings) == {"loops", "durability", "smoke", *names}
    taken = {verdict.target.figure for verdict in record.targets if verdict.measured is not None}
    assert taken == {target.figure for target in TARGETS if target.figure.partition(".")[0] in names}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--only", "nonsense"], "nonsense"),
        (["--only"], "--only"),
        (["--loop", "trio"], "trio"),
        (["--fast"], "--fast"),
        (["--folder", "no/such/folder"], "make it first"),
        (["--json", "no/such/folder/file.jsonl"], "make it first"),
        (["--data", "tests"], "pi-mono"),
        (["--plot", "README.md"], "README.md"),
    ],
)
def test_a_bad_option_is_one_exit_code_and_a_reason(
    options: list[str], why: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)  # as if all were installed
    with pytest.raises(SystemExit) as ended:
        main(["--smoke", *options])
    assert ended.value.code == 2
    assert why in capsys.readouterr().err


def test_a_folder_in_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "file_system", lambda folder: "tmpfs" if folder == tmp_path else "ext4")
    with pytest.raises(SystemExit) as ended:
        main(["--smoke", "--folder", str(tmp_path)])
    assert ended.value.code == 2
    assert "lies in memory" in capsys.readouterr().err


def test_the_file_system_is_that_of_the_innermost_mount_which_came_last() -> None:
    mounts = "disk / ext4 rw 0 0\nmem /a tmpfs rw 0 0\ndisk2 /a/b xfs rw 0 0\nmem /a/b tmpfs rw 0 0\nx /a/b\\040c btrfs rw 0 0"
    assert machine.file_system(Path("/"), mounts) == "ext4"
    assert machine.file_system(Path("/ab"), mounts) == "ext4"
    assert machine.file_system(Path("/a/x"), mounts) == "tmpfs"
    assert machine.file_system(Path("/a/b/c"), mounts) == "tmpfs"
    assert machine.file_system(Path("/a/b c/d"), mounts) == "btrfs"
    assert machine.file_system(Path("/"), "") == machine.UNKNOWN


async def test_sides_take_turns() -> None:
    order: list[str] = []

    def side(name: str) -> Side:
        async def one_round() -> float:
            order.append(name)
            return float(len(order))

        return one_round

    measured = await interleave({"raw": side("raw"), "ours": side("ours")}, 3)
    assert order == ["raw", "ours"] * 3
    assert measured == {"raw": [1, 3, 5], "ours": [2, 4, 6]}


async def test_a_side_is_warmed_up_and_then_sized_by_its_rate() -> None:
    amounts: list[int] = []

    def at(rate: float) -> SizedSide:
        async def side(amount: int) -> float:
            amounts.append(amount)
            return rate

        return side

    fast = await sized(at(1000), seconds=0.5, warm_up=7)
    slow = await sized(at(0.1), seconds=0.5, warm_up=7)
    await fast()
    await slow()
    assert amounts == [7, 7, 500, 1]


def test_a_ratio_is_taken_round_by_round() -> None:
    ours, theirs = [1.0, 10.0, 30.0], [1.0, 2.0, 20.0]
    figure = compare("x.y", "what", "raw", ours, theirs)
    assert (figure.value, figure.low, figure.high, figure.rounds) == (1.5, 1.0, 5.0, 3)
    assert figure.value != statistics.median(ours) / statistics.median(theirs)
    with pytest.raises(ValueError, match="zip"):
        compare("x.y", "what", "raw", ours, theirs[:2])


def test_a_percentile_is_a_value_that_was_measured() -> None:
    assert percentile(range(1, 101), 99) == 99
    assert percentile(range(1, 101), 50) == 50
    assert percentile([5, 1, 3], 50) == 3
    assert percentile([5, 1, 3], 99) == 5
    assert percentile([5, 1, 3], 0) == 1
    with pytest.raises(ValueError, match="nothing"):
        percentile([], 50)


def test_targets_are_met_missed_or_not_taken() -> None:
    at_most = next(target for target in TARGETS if target.is_met_by == "at most")
    at_least = next(target for target in TARGETS if target.is_met_by == "at least")

    def met(target_figure: str, value: float) -> bool | None:
        [verdict] = [v for v in judge([summarize(target_figure, "", "", [value])]) if v.target.figure == target_figure]
        return verdict.met

    assert met(at_most.figure, at_most.bound)
    assert met(at_most.figure, at_most.bound * 1.01) is False
    assert met(at_least.figure, at_least.bound)
    assert met(at_least.figure, at_least.bound * 0.99) is False
    assert {verdict.met for verdict in judge([])} == {None}
    assert targets_table(judge([])).row_count == len(TARGETS)


def test_no_two_targets_and_no_workload_share_a_name() -> None:
    assert len({target.figure for target in TARGETS}) == len(TARGETS)
    assert {target.figure.partition(".")[0] for target in TARGETS} <= set(WORKLOADS)


def test_numbers_are_short() -> None:
    assert [number(value) for value in (0.0123456, 1.5, 99.96, 123.4, 1_234_567)] == [
        "0.0123",
        "1.5",
        "100",
        "123",
        "1,234,567",
    ]


def test_raw_syncs_every_commit_and_keeps_rows_in_turn(tmp_path: Path) -> None:
    raw = RawLog(tmp_path / "raw.db")
    transactions = raw.prepare([NewEvent("block.delta", b'{"message_id":"m","block":0,"text":"x"}')], 5, streams=2, rows=2)
    assert [[row[:2] for row in rows] for rows in transactions] == [[(0, n), (1, n)] for n in (1, 2, 3)]
    assert raw.store(transactions) > 0
    assert raw.scan(0) == raw.scan(1) == 3
    assert raw.scan(0, after=2) == len(raw.read(1, after=2)) == 1
    [[row]] = raw.prepare(talk.deltas(1), 1, streams=1, rows=1)
    assert row[:2] == (0, 4)
    connection = raw._connection
    assert connection.execute("PRAGMA journal_mode").fetchall() == [("wal",)]
    assert connection.execute("PRAGMA synchronous").fetchall() == [(2,)]
    raw.close()


async def test_what_is_said_is_a_conversation_without_anomalies() -> None:
    store = MemoryStore()
    for events in talk.conversation(3, size=20):
        assert len(events) == 20
        await store.append("chat", events)
    state = (await load(transcript, store, store.snapshots, "chat")).state
    assert not list(state.anomalies)
    assert [message.status for message in state.all_messages()] == ["complete"] * 3
    assert {len(text) for text in talk.texts(2000)} == set(talk.DELTA_BYTES)


async def test_a_turn_is_played_as_it_is_recorded() -> None:
    spoken = turns.turn(3)
    recorded, last = turns.recorded("r", 3, spoken, None)
    async with open_ledger("memory:") as ledger:
        run = await ledger.begin_run("chat", run_id="r", format="anthropic", flush_ms=0)
        await turns.play(run, 3, spoken)
        await run.finish()
        played = await ledger.store.read("chat")
        assert [(event.type, event.data) for event in played] == [(event.type, event.data) for event in recorded]
        path = await ledger.transcript("chat")
    assert [message.role for message in path] == ["user", "assistant", "tool", "assistant"]
    assert {message.status for message in path} == {"complete"}
    assert path[-1].id == last
    texts = [block.text for message in path for block in message.blocks if block.text]
    assert sum(map(len, texts)) + len(spoken.result) == spoken.text_bytes
    assert spoken == turns.turn(3) != turns.turn(4)


def test_a_thousand_turns_are_some_megabytes_that_can_be_compressed_as_prose_can() -> None:
    spoken = [turns.turn(number) for number in range(1000)]
    assert 2.6e6 < sum(one.text_bytes for one in spoken) < 2.8e6
    answers = ["".join(one.answered).encode() for one in spoken]
    assert 0.45 < sum(len(zlib.compress(answer)) for answer in answers) / sum(map(len, answers)) < 0.6
    assert len(turns.turn(0, result_bytes=60_000).result) > 30_000


@pytest.mark.parametrize(("peer", "name"), [("openai-agents", "agents"), ("langgraph-checkpoint-sqlite", "langgraph")])
async def test_a_peer_keeps_all_that_is_said(peer: str, name: str, tmp_path: Path) -> None:
    pytest.importorskip(name)
    sizes = []
    for count in (1, 3):
        path = tmp_path / f"{count}.db"
        await FILLERS[peer](path, count)
        sizes.append(path.stat().st_size)
        assert turns.turn(count - 1).asked.encode() in path.read_bytes()
    assert sizes[0] < sizes[1]


async def test_other_branches_leave_the_trunk_and_are_not_on_the_path() -> None:
    async with open_ledger("memory:") as ledger:
        tree = await branches._grow(ledger, "chat", 50)
        await ledger.select("chat", tree.ends[0])
        path = [message.id for message in await ledger.transcript("chat")]
        view = [message.id for message in await ledger.transcript("chat", selections={tree.fork: tree.second})]
        forks = (await ledger.tree("chat")).forks
    assert (path[-1], view[-1]) == tree.ends
    assert path.index(tree.fork) == view.index(tree.fork) == branches._TRUNK - 1
    assert len(path) == len(view) == branches._TRUNK + branches._BRANCH
    assert len(forks) == branches._TRUNK


def test_pictures_are_drawn_of_what_was_measured(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    record = Record("2026-01-01", "abc", machine.describe(tmp_path), {}, [], [])
    assert plots.draw(record, tmp_path) == []
    figures = [summarize("long.p95", "", "", [1.0, 1.2]), summarize("long.kept", "", "", [5.0], {"turns": 9})]
    assert [path.name for path in plots.draw(msgspec.structs.replace(record, figures=figures), tmp_path)] == [
        "flat.png",
        "disk.png",
    ]


def test_tokens_of_stages_are_a_table_and_a_picture_of_their_own(tmp_path: Path) -> None:
    counts = {"tokens": 5.0, "path_tokens": 10.0, "turns": 2.0, "sessions": 1.0}
    figures = [summarize(f"{TOKENS}{source}.{n}", f"stage {n}", "", [0.5], counts) for source in "ab" for n in range(3)]
    timed = summarize("long.p95", "", "", [1.0])
    record = Record("2026-01-01", "abc", machine.describe(tmp_path), {}, [timed, *figures], [])
    assert [table.row_count for table in tables(record)] == [1, 3, 0]
    assert {source: len(found) for source, found in by_source(record.figures).items()} == {"a": 3, "b": 3}
    pytest.importorskip("matplotlib")
    assert "context.png" in [path.name for path in plots.draw(record, tmp_path)]


async def test_a_session_that_is_made_up_has_whole_tool_groups_and_says_things_twice() -> None:
    messages = sessions.fold(sessions.make(8), "made")
    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant"] * 8
    assert all(one is other for one, other in zip(pair(messages), messages, strict=True))
    assert messages[2].blocks[0].parts == messages[-2].blocks[0].parts != messages[6].blocks[0].parts
    counted = await context._tokens(messages, context.COUNTED["nothing but pairing"])
    assert (
        counted[0]
        == counted[1]
        == sum(tokens_of(messages[:at]) for at, message in enumerate(messages) if message.role == "assistant")
    )
    assert counted[2] == 16


def test_a_delta_is_durable_when_all_text_up_to_its_end_is() -> None:
    def answer(at: float, text: str) -> agent._Answer:
        return agent._Answer(
            "chat", at, [NewEvent("block.delta", msgspec.json.encode({"message_id": "m", "block": 0, "text": text}))]
        )

    begun = agent._Answer("chat", 0.0, [NewEvent("run.started", b"{}")])
    answers = [begun, answer(10.0, "abcd"), answer(20.0, "ef"), agent._Answer("chat", 30.0, [])]
    assert agent._latencies(["ab", "cde", "f"], [1.0, 2.0, 3.0], answers) == [9.0, 18.0, 17.0]
    with pytest.raises(ValueError, match="never acknowledged"):
        agent._latencies(["ab", "cde", "fg"], [1.0, 2.0, 3.0], answers)


def test_peers_that_are_not_installed_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert peers.versions() == dict.fromkeys(peers.PEERS)
    figures: list[Figure] = appends.measure(Bench(tmp_path, ("asyncio",)), appends.Sizes((100,), 2, 0.01, 200))
    assert [figure.id for figure in figures] == ["appends.asyncio.w100.k1.raw", "appends.asyncio.w100.k20.raw"]
