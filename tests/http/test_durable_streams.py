"""Durable Streams beyond the public suite: places that are none, truncation, lives of a path, time, bodies, bad input."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from stream.http import Access, Problem
from stream.http.durable import messages, truncate
from stream.http.durable.offsets import next_cursor, read_offset
from stream.http.durable.paths import MAX_PATH_BYTES, path_of, source_of, stream_id
from stream.memory import MemoryStore
from tests.http.durable_workers import Clock, Worker

if TYPE_CHECKING:
    from stream import EventStore

pytestmark = pytest.mark.anyio


async def test_an_offset_of_an_earlier_life_is_refused_and_told_where_to_begin(worker: Worker) -> None:
    await worker.make("a", content=b"first")
    old = (await worker.add("a", b"second")).headers["Stream-Next-Offset"]
    await worker.delete("a")
    await worker.make("a", content=b"1")
    for n in range(5):
        await worker.add("a", b"%d" % n)
    answer = await worker.get("a", params={"offset": old})
    assert (answer.status_code, answer.json()["error"]) == (410, "gone")
    assert await worker.text("a", answer.json()["offset"]) == "101234"


async def test_an_offset_beyond_the_end_is_refused(worker: Worker) -> None:
    await worker.make("a", content=b"first")
    for live in ({}, {"live": "long-poll"}, {"live": "sse"}):
        answer = await worker.get("a", params={"offset": "0000000000000000_0000000000000099"} | live)
        assert answer.status_code == 410


async def test_a_truncated_stream_still_knows_what_it_is(store: EventStore, worker: Worker) -> None:
    """And tells where to begin instead of skipping what has gone."""
    await worker.make("a", "application/json", Stream_TTL="1000")
    for n in range(5):
        await worker.add("a", b"[%d, %d]" % (n, n), "application/json")
    middle = (await worker.get("a", params={"offset": "-1"})).headers["Stream-Next-Offset"]
    for n in range(5, 10):
        await worker.add("a", b"[%d, %d]" % (n, n), "application/json")
    await truncate(store, "a", before=middle)
    for wrong in ("-1", "0000000000000007_0000000000000003", "0000000000000000_0000000000000099"):
        with pytest.raises(ValueError, match="no offset"):
            await truncate(store, "a", before=wrong)
    with pytest.raises(LookupError):
        await truncate(store, "b", before=middle)
    async with Worker(store) as fresh:
        answer = await fresh.get("a")
        assert (answer.status_code, answer.headers["content-type"]) == (410, "application/problem+json")
        assert json.loads(await fresh.text("a", answer.json()["offset"])) == [5, 5, 6, 6, 7, 7, 8, 8, 9, 9]
        head = await fresh.head("a")
        assert (head.headers["Content-Type"], head.headers["Stream-TTL"]) == ("application/json", "1000")
        assert (await fresh.add("a", b"10", "application/json")).status_code == 204


async def test_a_long_stream_is_known_from_its_snapshot(store: EventStore, worker: Worker) -> None:
    await worker.make("a", "application/json")
    for n in range(5):
        assert (await worker.add("a", json.dumps([n] * 500).encode(), "application/json", Stream_Seq=str(n))).status_code == 204
    async with Worker(store) as fresh:
        assert (await fresh.add("a", b"1", "application/json", Stream_Seq="4")).status_code == 409
        assert (await fresh.endpoint._streams.open(stream_id("a", 1))).saved_head > 1000
    assert len(await store.snapshots.list(stream_id("a", 1))) <= 2


async def test_a_large_stream_is_read_in_pages(worker: Worker) -> None:
    await worker.make("a", "application/octet-stream")
    sent = b""
    for n in range(30):
        sent += (piece := bytes([n]) * 100_000)
        await worker.add("a", piece, "application/octet-stream")
    got, offset, pages = b"", "-1", 0
    while True:
        answer = await worker.get("a", params={"offset": offset})
        got, offset, pages = got + answer.content, answer.headers["Stream-Next-Offset"], pages + 1
        assert len(answer.content) <= 1024 * 1024 + 100_000
        if "Stream-Up-To-Date" in answer.headers:
            break
    assert (got == sent, pages) == (True, 3)


async def test_a_fork_of_a_fork_reads_each_stretch_once(worker: Worker) -> None:
    await worker.make("a", "application/json", b"[1,2,3]")
    middle = (await worker.add("a", b"[4,5]", "application/json")).headers["Stream-Next-Offset"]
    await worker.add("a", b"6", "application/json")
    await worker.delete("b")
    fork = await worker.make("b", "application/json", b"[40]", Stream_Forked_From="/v1/stream/a", Stream_Fork_Offset=middle)
    assert fork.status_code == 201
    await worker.add("b", b"[41,42]", "application/json")
    zero = "0000000000000000_0000000000000000"
    made = await worker.make(
        "c", "application/json", b"[50]",
        Stream_Forked_From="b", Stream_Fork_Offset=zero, Stream_Fork_Sub_Offset="7",
    )  # fmt: skip
    assert made.status_code == 201
    assert json.loads(await worker.text("c")) == [1, 2, 3, 4, 5, 40, 41, 50]
    offset, seen = "-1", []
    while True:  # every place that is ever told can be gone on from
        page = await worker.get("c", params={"offset": offset})
        seen.append(json.loads(page.text))
        offset = page.headers["Stream-Next-Offset"]
        if not json.loads(page.text):
            break
    assert seen[0] == [1, 2, 3, 4, 5, 40, 41, 50]
    assert json.loads(await worker.text("c", middle)) == [40, 41, 50]


async def test_time_to_live_survives_a_restart_and_is_known_to_others() -> None:
    clock = Clock()
    store = MemoryStore(clock_ms=clock)
    async with Worker(store, clock) as one, Worker(store, clock) as other:
        await one.make("a", Stream_TTL="100")
        for _ in range(31):  # it is read by one process only, and not each time is made durable
            clock.pass_s(3)
            assert (await one.get("a")).status_code == 200
        clock.pass_s(99)
        assert (await other.head("a")).status_code == 200, "read 99 s ago"
        async with Worker(store, clock) as restarted:
            assert (await restarted.head("a")).status_code == 200
            clock.pass_s(7)
            assert (await restarted.head("a")).status_code == 404
        assert (await one.get("a")).status_code == 404
        assert (await one.make("a")).status_code == 201


async def test_reading_is_made_durable_a_few_times_only() -> None:
    clock = Clock()
    store = MemoryStore(clock_ms=clock)
    async with Worker(store, clock) as worker:
        await worker.make("a", Stream_TTL="100")
        for _ in range(1000):
            clock.pass_s(0.1)
            await worker.get("a", params={"offset": "now"})
        assert (await store.bounds(stream_id("a", 1))).head <= 1 + 20


async def test_streams_whose_time_is_over_go_though_nobody_asks() -> None:
    clock = Clock()
    store = MemoryStore(clock_ms=clock)
    async with Worker(store, clock) as worker:
        expiry = worker.endpoint.expiry
        await worker.make("source", content=b"text")
        for n in range(3):
            await worker.make(f"f{n}", Stream_Forked_From="source", Stream_TTL=str(10 + 10 * n))
        await worker.make("kept", Stream_TTL="1000")
        await worker.delete("source")
        await expiry.look()
        clock.pass_s(25)
        await expiry.expire()
        assert [(await store.bounds(stream_id(f"f{n}", 1))).origin > 0 for n in range(3)] == [True, True, False]
        assert (await store.bounds(stream_id("source", 1))).origin == 0
        clock.pass_s(25)
        await expiry.expire()
        assert (await store.bounds(stream_id("source", 1))).origin > 0, "it was kept for forks that have expired"
        assert (await worker.head("kept")).status_code == 200
        await expiry.look()  # and nothing is looked at twice
        assert len(expiry._ends) == 1


MOST = 10_000
JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(JSONS, st.sampled_from([None, 1, "\t"]), st.booleans(), st.sampled_from(["", " ", "\n\r\t "]))
@pytest.mark.heavy
def test_a_body_is_cut_into_its_messages(value: Any, indent: Any, ascii_only: bool, blank: str) -> None:  # noqa: FBT001
    body = blank + json.dumps(value, indent=indent, ensure_ascii=ascii_only) + blank
    try:
        sent = body.encode()
    except UnicodeEncodeError:
        return
    cut = messages.split(sent, "application/json", most=MOST)
    assert [json.loads(message) for message in cut] == (value if isinstance(value, list) else [value])
    assert all(message in sent and message == message.strip() for message in cut), "each keeps its own bytes"
    assert json.loads(messages.join(cut, "application/json")) == (value if isinstance(value, list) else [value])


@settings(max_examples=500)
@given(st.text(st.sampled_from('[]{},:"\\ud8001eE+-. \n\tnulltruefasNaInfity\u00e9\x01'), max_size=16))
@example('["\\ud800", 1e400]')
@example("[1" + "0" * 5000 + "]")
@example('"\\ud800" ')
@example('["\\ud800",]')
@example('["\\ud800" 1]')
@example('["\\ud800"')
@example('["\\ud800", NaN]')
@example("[" * 100_000)
@example("")
def test_a_body_is_taken_where_it_is_json_and_only_there(text: str) -> None:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        value = json.loads(text, parse_constant=refuse, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        with pytest.raises(Problem) as told:
            messages.split(text.encode(), "application/json", most=MOST)
        assert told.value.status == 400
    else:
        cut = messages.split(text.encode(), "application/json", most=MOST)
        wanted = value if isinstance(value, list) else [value]
        assert [json.loads(message, parse_int=str, parse_float=str) for message in cut] == wanted


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.text(max_size=40), st.from_regex(r"[0-9]{14,17}_[0-9]{14,17}", fullmatch=True)))
def test_an_offset_is_one_that_was_given_or_is_refused(text: str) -> None:
    try:
        offset = read_offset(text)
    except Problem:
        return
    assert text == "-1" or str(offset) == text


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        ("a", "a"), ("a/b", "a/b"), ("%61", "a"), ("a%20b", "a b"), ("%C3%A9", "é"), ("%252F", "%2F"), ("a:b@c", "a:b@c"),
        ("x" * MAX_PATH_BYTES, "x" * MAX_PATH_BYTES),
    ],
)  # fmt: skip
def test_a_path_is_what_it_seems(raw: str, path: str) -> None:
    assert path_of({"raw_path": f"/v1/stream/{raw}".encode(), "path": ""}) == path
    assert (
        source_of({"raw_path": b"/mounted/v1/stream/x", "path": "", "root_path": "/mounted"}, f"/mounted/v1/stream/{raw}")
        == path
    )


@pytest.mark.parametrize(
    "raw",
    ["", "/", "a/", "/a", "a//b", ".", "..", "a/../b", "%2e%2e", "a/%2E", "a%2Fb", "a%2fb", "a%5Cb", "a%23b", "a%00b", "a%0Ab",
     "%7F", "%FF", "__ds", "__ds/x", "%5F_ds/x", "x" * (MAX_PATH_BYTES + 1), "%C3%A9" * MAX_PATH_BYTES],
)  # fmt: skip
async def test_a_path_that_is_not_what_it_seems_is_refused(raw: str) -> None:
    scope = {"raw_path": f"/v1/stream/{raw}".encode(), "path": ""}
    with pytest.raises(Problem) as told:
        path_of(scope)
    assert told.value.status == 400
    with pytest.raises(Problem):
        source_of({"raw_path": b"/v1/stream/x", "path": ""}, f"/v1/stream/{raw}")


@pytest.mark.parametrize("raw", ["/%76%31/stream/a/v1/stream/b", "/v1/%73tream/a", "/v1/stream", "/x/v1/stream/a"])
def test_what_stands_before_a_path_is_written_as_it_is(raw: str) -> None:
    """Or who lets requests through by their paths, and who answers them, would see another stream each."""
    with pytest.raises(Problem, match="stands behind"):
        path_of({"raw_path": raw.encode(), "path": ""})
    assert path_of({"raw_path": b"/x/v1/stream/v1/stream/b", "path": "", "root_path": "/x"}) == "v1/stream/b"


BAD_PRODUCERS = [("p", "1", None), ("", "0", "0"), ("p", "-1", "0"), ("p", "0", "1.5"), ("p", "1e3", "0"), ("p", "0", "9" * 17),
                 ("p", "0", str(2**53)), ("p" * 300, "0", "0"), ("p", "0", "٣"), ("p", " 0", "0x1")]  # fmt: skip
BAD_CREATIONS = [{"Stream-TTL": value} for value in ("01", "-1", "1.0", "1e3", "", "+1", "9" * 40, "٣")]
BAD_CREATIONS += [{"Stream-Expires-At": value} for value in ("soon", "2030-01-01", "2030-01-01T00:00:00", "9" * 400, "")]
BAD_CREATIONS += [{"Stream-TTL": "1", "Stream-Expires-At": "2030-01-01T00:00:00Z"}, {"Stream-Fork-Offset": "-1"}]
BAD_CREATIONS += [{"Stream-Forked-From": value} for value in ("/v1/stream/", "/etc", "..", "a?b", "a/%2e%2e/b")]


async def test_bad_headers_change_nothing(store: EventStore, worker: Worker) -> None:
    await worker.make("a", content=b"x")
    before = await store.bounds(stream_id("a", 1))
    for id, epoch, seq in BAD_PRODUCERS:  # noqa: A001
        given_headers = {"Producer-Id": id, "Producer-Epoch": epoch, "Producer-Seq": seq}
        sent = {name: value.encode() for name, value in given_headers.items() if value is not None}
        answer = await worker.post(
            "a", content=b"y", headers={b"Content-Type": b"text/plain"} | {k.encode(): v for k, v in sent.items()}
        )
        assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json"), sent
    for headers in BAD_CREATIONS:
        answer = await worker.put("b", headers={name.encode(): value.encode() for name, value in headers.items()})
        assert answer.status_code == 400, headers
    assert await store.bounds(stream_id("a", 1)) == before
    assert not (await store.bounds(stream_id("b", 1))).head


async def test_a_page_of_another_origin_gets_leave_only_where_it_is_given(store: EventStore) -> None:
    asked = {"Origin": "https://page.example", "Access-Control-Request-Method": "PUT"}
    async with Worker(store) as closed, Worker(store, cors_origins=("https://page.example",)) as opened:
        assert "access-control-allow-origin" not in (await closed.options("a", headers=asked)).headers
        assert (await opened.options("a", headers=asked)).headers["access-control-allow-origin"] == "https://page.example"


async def test_no_browser_shows_what_others_wrote_as_a_page(worker: Worker) -> None:
    await worker.make("a", "text/html", b"<script>alert(1)</script>")
    answer = await worker.get("a")
    assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_cursor_goes_on() -> None:
    now_s = 1_800_000_000
    present = next_cursor(None, now_s=now_s)
    assert next_cursor("garbage", now_s=now_s) == next_cursor("9" * 30, now_s=now_s) == present
    assert int(next_cursor(present, now_s=now_s)) > int(present)
    assert next_cursor(str(int(present) - 1), now_s=now_s) == present


HEADER_NAMES = ["Content-Type", "Stream-TTL", "Stream-Expires-At", "Stream-Closed", "Stream-Seq", "Stream-Forked-From",
                "Stream-Fork-Offset", "Stream-Fork-Sub-Offset", "Producer-Id", "Producer-Epoch", "Producer-Seq",
                "If-None-Match"]  # fmt: skip
VALUES = st.one_of(
    st.sampled_from(["0", "1", "2", "-1", "true", "TRUE", "text/plain", "application/json", "now", "a", "/v1/stream/a", '"x"',
                     "2030-01-01T00:00:00Z", "0000000000000000_0000000000000002", "*"]),
    st.text(st.characters(min_codepoint=1, max_codepoint=255), max_size=20),
)  # fmt: skip
HARMLESS = {200, 201, 204, 304, 400, 403, 404, 409, 410, 413}


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE"]),
    st.dictionaries(st.sampled_from(HEADER_NAMES), VALUES, max_size=6),
    st.dictionaries(st.sampled_from(["offset", "live", "cursor", "x"]), VALUES, max_size=3), st.binary(max_size=12),
)  # fmt: skip
@pytest.mark.heavy
def test_whatever_is_sent_gets_an_answer_and_what_is_refused_changes_nothing(
    method: str, headers: dict[str, str], query: dict[str, str], body: bytes
) -> None:
    async def ask() -> None:
        store = MemoryStore()
        async with Worker(store) as worker:
            worker.endpoint._reader._rotate_s = 0.0
            await worker.make("a", content=b"text")
            before = await store.bounds(stream_id("a", 1))
            sent = {name.encode(): value.encode("latin-1") for name, value in headers.items()}
            answer = await worker.request(method, "a", content=body, headers=sent, params=query)
            assert answer.status_code in HARMLESS, answer.text
            assert answer.headers["x-content-type-options"] == "nosniff"
            if answer.status_code >= 400:
                assert await store.bounds(stream_id("a", 1)) == before
                assert method == "HEAD" or answer.json()["detail"]

    anyio.run(ask)


async def test_each_request_asks_for_leave_and_a_fork_for_that_to_read_its_source(store: EventStore) -> None:
    asked: list[tuple[str, str, str | None]] = []

    async def authorize(access: Access) -> None:
        asked.append((access.action, access.kind, access.stream))
        if access.stream == "secret" and access.action == "read":
            raise Problem(403, "forbidden", "not for you")

    async with Worker(store, authorize=authorize) as worker:
        await worker.make("secret", content=b"x")
        await worker.add("secret", b"y")
        assert (await worker.get("secret")).status_code == (await worker.head("secret")).status_code == 403
        assert (await worker.make("mine", Stream_Forked_From="/v1/stream/secret")).status_code == 403
        assert (await worker.get("mine")).status_code == 404
        assert (await worker.delete("secret")).status_code == 204
    reads = [("read", "stream", "secret")] * 2
    forking = [("create", "stream", "mine"), ("read", "stream", "secret"), ("read", "stream", "mine")]
    assert asked == [
        ("create", "stream", "secret"), ("append", "stream", "secret"), *reads, *forking, ("delete", "stream", "secret"),
    ]  # fmt: skip
