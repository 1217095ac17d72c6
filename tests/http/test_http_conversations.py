"""Conversations over HTTP: lists, transcripts, runs, cancelling, compaction; as the ledger has them."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx
import pytest

from ledger import Ledger, open_ledger
from ledger.http import make_app
from projector import present
from stream import NewEvent
from tests.talk import conversation, finished, said, started

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.anyio
LEDGERS = ["memory"]


@pytest.fixture
async def client(ledger: Ledger) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(make_app(ledger))
    async with httpx.AsyncClient(transport=transport, base_url="http://served") as found:
        yield found


def turn(number: int) -> list[NewEvent]:
    run_id, parent = f"r{number}", f"r{number - 1}.1" if number > 1 else None
    return [started(run_id, parent), *said(run_id, f"{run_id}.1", f"text {number}"), finished(run_id)]


async def test_pages_of_the_list_give_every_conversation_once(ledger: Ledger, client: httpx.AsyncClient) -> None:
    names = [f"talk/{number} ü" for number in range(7)]
    for name in names:
        await ledger.describe(name, title=f"About {name}", labels=["even" if int(name[5]) % 2 == 0 else "odd"])
    seen: list[str] = []
    after: dict[str, str] = {}
    while True:
        page = (await client.get("/v1/conversations", params={"limit": 3, **after})).json()
        seen += [each["conversation"] for each in page["conversations"]]
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert sorted(seen) == sorted(names)
    assert len(seen) == 7
    for params, count in (({"label": "even"}, 4), ({"title": "talk/3"}, 1), ({"prefix": "talk/6"}, 1), ({"prefix": "no"}, 0)):
        assert len((await client.get("/v1/conversations", params=params)).json()["conversations"]) == count
    await ledger.describe(names[0], archived=True)
    assert len((await client.get("/v1/conversations")).json()["conversations"]) == 6
    assert len((await client.get("/v1/conversations", params={"archived": "true"})).json()["conversations"]) == 7


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=1001", "limit=x", "limit=1&limit=2", "after=no", "after=", "archived=1", "prefix=%ff", "title=%"],
)
async def test_a_list_is_asked_for_in_words_that_mean_something(client: httpx.AsyncClient, query: str) -> None:
    answer = await client.get(f"/v1/conversations?{query}")
    assert answer.status_code == (200 if query == "title=%" else 400), answer.text


async def test_the_transcript_comes_in_pages_from_the_end(ledger: Ledger, client: httpx.AsyncClient) -> None:
    for number in range(1, 8):
        await ledger.record("a/b", turn(number))
    url, pages = "/v1/conversations/a%2Fb/transcript", []
    before: dict[str, str] = {}
    while True:
        page = (await client.get(url, params={"limit": 3, **before})).json()
        pages.append(page["messages"])
        if page["next"] is None:
            break
        before = {"before": page["next"]}
    assert [len(page) for page in pages] == [3, 3, 1]
    told = [message for page in reversed(pages) for message in page]
    assert told == [present(message) for message in await ledger.transcript("a/b")]
    assert {"id", "parent_id", "role", "status", "blocks"} <= set(told[0])
    assert told[0]["blocks"][0] | {"kind": "text", "text": "text 1"} == told[0]["blocks"][0]
    one = (await client.get(url, params={"through": "r3.1", "limit": 2})).json()
    assert ([message["id"] for message in one["messages"]], one["next"]) == (["r2.1", "r3.1"], "r2.1")
    for wrong, status in (({"before": "no"}, 404), ({"through": "no"}, 404), ({"branch": "main"}, 400),
                          ({"through": "r1.1", "before": "r2.1"}, 400), ({"before": "x" * 257}, 400)):  # fmt: skip
        assert (await client.get(url, params=wrong)).status_code == status


async def test_every_message_of_every_branch_is_there_to_read(ledger: Ledger, client: httpx.AsyncClient) -> None:
    """Lone surrogates, numbers that no float holds: what the log may hold, the answer may."""
    await ledger.record("c", conversation())
    await ledger.record("c", [finished("r2")])
    await ledger.annotate("c", "r1.1", {"big": 2**200, "odd": "\ud800"})
    shown = await client.get("/v1/conversations/c/transcript", params={"branch": "all"})
    everything = await ledger.transcript("c", branch="all")
    told = {"conversation": "c", "messages": [present(message) for message in everything], "next": None}
    assert json.loads(shown.content) == json.loads(json.dumps(told))


async def test_a_conversation_shows_what_is_under_way(ledger: Ledger, client: httpx.AsyncClient) -> None:
    await ledger.record("c", turn(1))
    await ledger.record("c", [started("r2", "r1.1"), *said("r2", "r2.1", "half")[:3]])
    shown = (await client.get("/v1/conversations/c")).json()
    bounds = await ledger.store.bounds("c")
    assert (shown["head"], shown["floor"], shown["leaf"], shown["runs"]) == (bounds.head, 0, "r1.1", 2)
    [under_way] = shown["open_runs"]
    assert (under_way["run_id"], under_way["last_seq"], under_way["messages"][0]["status"]) == ("r2", bounds.head, "partial")


async def test_runs_come_in_pages_and_by_their_status(ledger: Ledger, client: httpx.AsyncClient) -> None:
    for number in range(1, 6):
        await ledger.record("c", turn(number))
    await ledger.record("c", [started("r6", "r5.1")])
    url = "/v1/conversations/c/runs"
    first = (await client.get(url, params={"limit": 4})).json()
    rest = (await client.get(url, params={"limit": 4, "after": first["next"]})).json()
    assert [run["run_id"] for run in first["runs"] + rest["runs"]] == [f"r{number}" for number in range(1, 7)]
    assert rest["next"] is None
    [under_way] = (await client.get(url, params={"status": "open"})).json()["runs"]
    assert under_way["run_id"] == "r6"
    assert (await client.get(url, params={"status": "gone"})).status_code == 400


async def test_a_page_of_runs_begins_where_it_is_asked_to_and_reads_none_before_it(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with open_ledger(str(path)) as ledger:
        for number in range(1, 5):
            await ledger.record("c", turn(number))
        await ledger.catch_up("c")
        seqs = [run.seq async for run in ledger.runs("c")]
    with closing(sqlite3.connect(path)) as raw, raw:  # whoever reads the first two finds that out
        raw.execute("UPDATE runs SET row_body = x'00' WHERE id IN ('r1', 'r2')")
    async with open_ledger(str(path)) as ledger:
        transport = httpx.ASGITransport(make_app(ledger))
        async with httpx.AsyncClient(transport=transport, base_url="http://served") as client:
            url = "/v1/conversations/c/runs"
            asked: list[dict[str, Any]] = [{}, {"status": "committed"}]
            for params in asked:
                page = (await client.get(url, params=params | {"after": seqs[1]})).json()
                assert [run["run_id"] for run in page["runs"]] == ["r3", "r4"]
            assert (await client.get(url, params={"after": seqs[0]})).status_code == 500


async def test_a_run_is_asked_to_stop_and_one_that_ended_is_left_alone(ledger: Ledger, client: httpx.AsyncClient) -> None:
    await ledger.record("c", [*turn(1), started("r/2", "r1.1")])
    asked = (await client.post(f"/v1/conversations/c/runs/{quote('r/2', safe='')}/cancel")).json()
    assert asked == {"conversation": "c", "run_id": "r/2", "is_asked": True, "outcome": None}
    head = (await ledger.store.bounds("c")).head
    [last] = await ledger.store.read("c", after=head - 1)
    assert last.type == "run.cancel_requested"
    ended = (await client.post("/v1/conversations/c/runs/r1/cancel")).json()
    assert ended == {"conversation": "c", "run_id": "r1", "is_asked": False, "outcome": "completed"}
    assert (await ledger.store.bounds("c")).head == head
    for path in ("c/runs/no/cancel", "unknown/runs/r1/cancel"):
        assert (await client.post(f"/v1/conversations/{path}")).status_code == 404


async def test_a_program_that_writes_a_run_hears_that_it_is_to_stop(ledger: Ledger, client: httpx.AsyncClient) -> None:
    run = await ledger.begin_run("c", run_id="r")
    await client.post("/v1/conversations/c/runs/r/cancel")
    await run.wait_for_cancel_request()
    await run.finish("cancelled")
    shown = (await client.get("/v1/conversations/c/runs")).json()["runs"]
    assert [run["outcome"] for run in shown] == ["cancelled"]


async def test_compaction_is_as_it_is_asked_for(ledger: Ledger, client: httpx.AsyncClient) -> None:
    await ledger.record("c", turn(1))
    url, head = "/v1/conversations/c/compact", (await ledger.store.bounds("c")).head
    dry = (await client.post(url, json={"dry_run": True, "replay_window": 2})).json()
    assert (dry["floor"], dry["dry_run"], (await ledger.store.bounds("c")).floor) == (head - 2, True, 0)
    done = (await client.post(url)).json()
    assert (done["floor"], done["head"], (await ledger.store.bounds("c")).floor) == (head, head, head)
    assert len((await client.get("/v1/conversations/c/transcript")).json()["messages"]) == 1
    for body, status in (({"replay_window": -1}, 422), ({"replay_window": 2**63}, 422), ({"window": 1}, 422), ([], 422)):
        assert (await client.post(url, json=body)).status_code == status
    assert (await client.post(url, content=b"{", headers={"Content-Type": "application/json"})).status_code == 400
    assert (await client.post(url, content=b"{}", headers={"Content-Type": "text/plain"})).status_code == 415


async def test_streams_that_are_no_conversations_are_not_reached(ledger: Ledger, client: httpx.AsyncClient) -> None:
    await ledger.store.append("ds:paper", [NewEvent("data", b"{}")])
    for path in ("", "/events", "/transcript", "/runs"):
        assert (await client.get(f"/v1/conversations/ds:paper{path}")).status_code == 404
    posted = await client.post("/v1/conversations/ds:paper/events", json=[{"type": "data", "data": {}}])
    assert posted.status_code == 404
    assert (await client.post("/v1/conversations/ds:paper/compact")).status_code == 404
    assert (await client.get("/v1/conversations")).json()["conversations"] == []
    assert (await ledger.store.bounds("ds:paper")).head == 1


@pytest.mark.parametrize("path", ["", "/events", "/transcript", "/runs"])
async def test_an_unknown_conversation_is_404_and_does_not_begin_to_exist(
    ledger: Ledger, client: httpx.AsyncClient, path: str
) -> None:
    answer = await client.get(f"/v1/conversations/unknown{path}")
    assert (answer.status_code, answer.json()["error"]) == (404, "unknown_conversation")
    assert [info async for info in ledger.conversations()] == []


@pytest.mark.parametrize(
    "name", ["a/b", "ü ñ", "%2F", "?x=1#y", ".", "..", "a//b", "events", "\U0001f600", "\x01", "a b+c", "x" * 256]
)
async def test_any_id_is_reached_by_its_encoded_name(ledger: Ledger, client: httpx.AsyncClient, name: str) -> None:
    await ledger.describe(name, title="t")
    url = httpx.URL("http://served").copy_with(
        raw_path=f"/v1/conversations/{quote(name, safe='').replace('.', '%2E')}".encode()
    )
    assert (await client.get(url)).json()["conversation"] == name


async def test_mounted_below_a_path_of_another_program_it_is_the_same(ledger: Ledger) -> None:
    from starlette.applications import Starlette  # noqa: PLC0415 - of this test alone
    from starlette.routing import Mount  # noqa: PLC0415 - the same

    await ledger.describe("a/b", title="t")
    app = Starlette(routes=[Mount("/api/talks", make_app(ledger))])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://served") as client:
        assert (await client.get("/api/talks/v1/conversations/a%2Fb")).json()["title"] == "t"
        assert (await client.get("/v1/conversations/a%2Fb")).status_code == 404


async def test_the_list_is_the_one_of_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "talks.db"
    async with open_ledger(str(path)) as ledger:
        for number in range(3):
            await ledger.describe(f"c{number}", title="t", metadata={"n": 2**200})
        async with httpx.AsyncClient(transport=httpx.ASGITransport(make_app(ledger)), base_url="http://served") as client:
            told: Any = (await client.get("/v1/conversations", params={"limit": 2})).json()
    command = [sys.executable, "-m", "ledger.admin", "--data", str(path), "conversations", "--limit", "2", "--json"]
    listed = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    for one in listed["conversations"]:  # a person has the same time in words beside it
        del one["active_at_iso"]
    assert listed == told
