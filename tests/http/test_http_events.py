"""Events of a conversation over HTTP: what is followed, from where, and what is added; a server in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from http.client import HTTPConnection
from typing import TYPE_CHECKING
from urllib.parse import quote

import httpx
import pytest

from ledger import open_ledger
from ledger.http.frames import encode_batch, one_line
from ledger.http.given import read_events
from stream import Event, NewEvent
from stream.http import Problem
from tests.http.clients import HTTP, follow
from tests.serving import serve
from tests.talk import finished, new, said, started

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.serving import Served

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(tmp_path_factory.mktemp("events") / "talks.db", "--max-body", "1000000") as server:
        yield server


@pytest.fixture
def chat(served: Served, request: pytest.FixtureRequest) -> str:
    """The address of a conversation that only this test knows; its id has what ids may have."""
    return f"{served.url}/v1/conversations/{quote(f'ü/{request.node.name} ?#%', safe='')}"


def post(chat: str, events: Sequence[NewEvent], **headers: str) -> httpx.Response:
    given = ",".join(f'{{"type":{json.dumps(event.type)},"data":{event.data.decode()}}}' for event in events)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HTTP.post(f"{chat}/events", content=f"[{given}]", headers=JSON | named)


def run(run_id: str, text: str = "hello") -> list[NewEvent]:
    return [started(run_id), *said(run_id, f"{run_id}.1", text), finished(run_id)]


def test_events_come_from_the_first_with_their_numbers_and_types(chat: str) -> None:
    events = run("r1")
    assert post(chat, events).json() == {"first_seq": 1, "last_seq": len(events)}
    with follow(f"{chat}/events") as frames:
        assert frames.response.headers["content-type"] == "text/event-stream"
        seen = frames.take(len(events))
        post(chat, [new("late", n=1)])
        seen += frames.take(1)
    assert [frame.id for frame in seen] == [str(number) for number in range(1, len(events) + 2)]
    assert [(frame.event, frame.data.encode()) for frame in seen[:-1]] == [(event.type, event.data) for event in events]


def test_the_first_that_comes_is_how_long_to_wait(chat: str) -> None:
    post(chat, [new("tick")])
    with HTTP.stream("GET", f"{chat}/events") as response:
        assert next(response.iter_raw()).startswith(b"retry: ")


def test_the_header_wins_over_the_address(chat: str) -> None:
    post(chat, [new("tick", n=n) for n in range(1, 6)])
    with follow(f"{chat}/events?after=1") as frames:
        assert next(frames).id == "2"
    with follow(f"{chat}/events?after=1", Last_Event_ID="4") as frames:
        assert next(frames).id == "5"
    with follow(f"{chat}/events?after=3", Last_Event_ID="") as frames:
        assert next(frames).id == "4"


@pytest.mark.parametrize("after", ["-1", "1.5", "x", "٣", "9" * 30, "+1", " 1", "1_0"])
def test_a_position_that_is_none_is_refused(chat: str, after: str) -> None:
    post(chat, [new("tick")])
    answer = HTTP.get(f"{chat}/events", params={"after": after})
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_number")


def test_data_that_msgspec_refuses_or_rewrites_stays_byte_for_byte(chat: str) -> None:
    bodies = [
        b'{"a": "\\ud800", "b":1e400,  "c" :2.50}', ('{"big":' + "9" * 400 + ',"u":"\u2028é"}').encode(),
        b'{"b":1,"a":1,"a":2, "e":"\\u00e9\\/"}',
    ]  # fmt: skip
    assert post(chat, [NewEvent("odd", body) for body in bodies]).status_code == 200
    with follow(f"{chat}/events") as frames:
        assert [frame.data.encode() for frame in frames.take(3)] == bodies


def test_line_breaks_between_tokens_are_blanks() -> None:
    assert one_line(b'{\r\n "a":\n"b\\n"}\n') == b'{   "a": "b\\n"} '


@pytest.mark.parametrize("data", [b"", b"no", b'"a\nb"', b'{"a":1}x', b"\xff", b'"\xff"', b"NaN", b"\x00", b"{"])
def test_a_body_that_is_no_json_is_told_in_base64(data: bytes) -> None:
    assert list(json.loads(one_line(data))) == ["base64"]


@pytest.mark.parametrize("data", [b"1e400", b'"\\ud800"', b"[]", b" null\n", b"1" * 5000, '"\u2028"'.encode()])
def test_all_legal_json_is_told_as_it_is(data: bytes) -> None:
    assert one_line(data) == data.replace(b"\n", b" ")


def test_a_type_with_line_breaks_makes_no_field_of_its_own() -> None:
    shown = encode_batch((Event("s", 7, "a\nid: 9\rdata: x", b"{}", at=0),))
    assert shown == b"id: 7\nevent: a id: 9 data: x\ndata: {}\n\n"


@pytest.mark.parametrize(
    ("body", "status", "index"),
    [
        (b"{", 400, None), (b"", 400, None), (b"\xff", 400, None), (b"{}", 422, None), (b"null", 422, None),
        (b'[{"type":"a","data":{}},1]', 422, 1), (b'[{"type":"a"}]', 422, 0), (b'[{"data":{}}]', 422, 0),
        (b'[{"type":1,"data":{}}]', 422, 0), (b'[{"type":"a","data":1}]', 422, 0),
        (b'[{"type":"a","data":{}},{"type":"","data":{}}]', 422, 1), (b'[{"type":"a","data":{},"seq":4}]', 422, 0),
        (b'[{"type":"run.started","data":{}}]', 422, 0), (b'[{"type":"snapshot","data":{}}]', 422, 0),
        (b'[{"type":"\\ud800","data":{}}]', 422, 0), (b'[{"type":"a","data":{"b":"\xff"}}]', 400, None),
        (b'[{"type":"%s","data":{}}]' % (b"a" * 65), 422, 0), (b"[" * 5000, 400, None),
        (b'[{"type":"a","data":{},"\\udfff":1}]', 422, 0),
    ],
)  # fmt: skip
def test_what_can_not_be_taken_is_refused_with_its_place_and_nothing_is_kept(
    chat: str, body: bytes, status: int, index: int | None
) -> None:
    answer = HTTP.post(f"{chat}/events", content=body, headers=JSON)
    told = answer.json()
    assert (answer.status_code, told.get("index"), answer.headers["content-type"]) == (
        status, index, "application/problem+json",
    )  # fmt: skip
    assert told["detail"]
    assert HTTP.get(chat).status_code == 404


@pytest.mark.parametrize("one", [b"1", b'{"type":"a","data":{}}'])
def test_of_millions_no_more_is_looked_at_than_may_be_appended_at_once(one: bytes) -> None:
    body = b"[" + b",".join([one] * 1_000_000) + b"]"
    tracemalloc.start()
    try:
        with pytest.raises(Problem) as told:
            read_events(body)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert told.value.status == 413
    assert peak_bytes < 3 * len(body) + 8_000_000


def test_a_body_of_another_type_or_above_the_limit_is_not_taken(chat: str) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonx"):
        assert HTTP.post(f"{chat}/events", content=b"[]", headers={"Content-Type": kind}).status_code == 415
    large = b'[{"type":"a","data":{"a":"%s"}}]' % (b"x" * 1_000_001)
    assert HTTP.post(f"{chat}/events", content=large, headers=JSON).status_code == 413
    pieces = (large[at : at + 65536] for at in range(0, len(large), 65536))
    assert HTTP.post(f"{chat}/events", content=pieces, headers=JSON).status_code == 413
    assert HTTP.get(chat).status_code == 404


def test_who_sends_too_much_gets_the_answer_and_goes_on_over_the_same_connection(served: Served) -> None:
    """A client that reads only when all is sent would meet a reset in its place."""
    connection = HTTPConnection("127.0.0.1", served.port, timeout=20)
    for body, status in ((b" " * 20_000_000, 413), (b"[]", 200)):
        connection.request("POST", "/v1/conversations/large/events", body, JSON)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == status
    connection.close()


def test_an_append_elsewhere_than_expected_is_a_conflict_that_tells_the_head(chat: str) -> None:
    assert post(chat, [new("a"), new("b")], Expected_Seq="0").status_code == 200
    answer = post(chat, [new("c")], Expected_Seq="1")
    assert (answer.status_code, answer.json()["error"], answer.json()["head"]) == (409, "seq_conflict", 2)


def test_a_repeat_is_answered_as_the_first_time_and_adds_nothing(chat: str) -> None:
    first = post(chat, [new("a"), new("b")], Expected_Seq="0", Idempotency_Key="k")
    post(chat, [new("c")])
    again = post(chat, [new("a"), new("b")], Expected_Seq="0", Idempotency_Key="k")
    assert (again.status_code, again.json()) == (200, first.json() | {"first_seq": 1, "last_seq": 2})
    assert post(chat, [new("other")], Expected_Seq="0", Idempotency_Key="k").status_code == 409
    assert HTTP.get(chat).json()["head"] == 3


@pytest.mark.parametrize(
    "headers", [{"Idempotency_Key": "k"}, {"Expected_Seq": "x"}, {"Expected_Seq": "-1"}, {"Expected_Seq": str(2**63 - 1)}]
)
def test_headers_that_mean_nothing_are_refused(chat: str, headers: dict[str, str]) -> None:
    assert post(chat, [new("a")], **headers).status_code == 400
    key = post(chat, [new("a")], Expected_Seq="0", Idempotency_Key="k" * 257)
    assert (key.status_code, key.json()["error"]) == (400, "invalid_id")


def test_who_never_knew_a_conversation_gets_404_and_who_did_is_told_that_there_is_nothing(chat: str) -> None:
    assert HTTP.get(f"{chat}/events").status_code == 404
    with follow(f"{chat}/events", Last_Event_ID="4") as frames:
        nothing = next(frames)
        post(chat, [new("tick")])
        assert (nothing.id, nothing.event, nothing.said["messages"]) == ("0", "snapshot", [])
        assert next(frames).id == "1"


def test_who_was_told_that_there_is_nothing_comes_back_with_that_and_waits_for_the_first(chat: str) -> None:
    """A 404 would end an EventSource for ever, and what it was told is a position like any other."""
    with follow(f"{chat}/events", Last_Event_ID="4") as frames:
        last = next(frames).id
    with follow(f"{chat}/events", Last_Event_ID=last) as frames:
        assert frames.status == 200
        post(chat, [new("tick")])
        assert next(frames).id == "1"


def compacted(chat: str) -> int:
    """A turn that is committed, and one under way; the head."""
    post(chat, run("r1", "what was said"))
    post(chat, [started("r2", "r1.1"), *said("r2", "r2.1", "on its way")[:3]])
    done = HTTP.post(f"{chat}/compact").json()
    assert done["binds"] == "open_run:r2"
    assert done["floor"] == len(run("r1"))
    head: int = done["head"]
    return head


def test_a_position_below_the_floor_gets_all_that_was_said_and_then_what_comes(chat: str) -> None:
    head = compacted(chat)
    with follow(f"{chat}/events?after=1") as frames:
        snapshot = next(frames)
        post(chat, [new("block.delta", message_id="r2.1", block=0, text=" still")])
        following = next(frames)
    assert (snapshot.event, snapshot.id) == ("snapshot", str(head))
    told = snapshot.said
    assert told["seq"] == head
    assert [message["blocks"][0]["text"] for message in told["messages"]] == ["what was said"]
    [under_way] = told["open_runs"]
    assert (under_way["run_id"], under_way["messages"][0]["blocks"][0]["text"]) == ("r2", "on its way")
    assert (following.id, following.event) == (str(head + 1), "block.delta")
    with follow(f"{chat}/events", Last_Event_ID=str(head)) as frames:
        assert next(frames).id == str(head + 1)


def test_a_position_of_another_life_gets_a_snapshot_also_where_its_number_would_do(chat: str) -> None:
    post(chat, run("r1"))
    with follow(f"{chat}/events?after=2&incarnation=another") as frames:
        snapshot = next(frames)
    own = snapshot.said["incarnation"]
    assert frames.response.headers["tailfold-incarnation"] == own
    assert (snapshot.event, len(snapshot.said["messages"])) == ("snapshot", 1)
    with follow(f"{chat}/events?after=2&incarnation={own}") as frames:
        assert next(frames).id == "3"
    with follow(f"{chat}/events?after=900") as frames:
        assert next(frames).event == "snapshot"


def test_many_messages_are_told_by_a_link_to_just_those(chat: str) -> None:
    post(chat, run("r1", "x" * 150_000))
    post(chat, [started("r2", "r1.1"), *said("r2", "r2.1", "y" * 150_000), finished("r2")])
    with follow(f"{chat}/events?after=900") as frames:
        snapshot = next(frames)
    assert len(snapshot.data) < 1000
    post(chat, [started("r3", "r2.1"), *said("r3", "r3.1", "later"), finished("r3")])
    page = HTTP.get(httpx.URL(f"{chat}/events").join(snapshot.said["transcript"])).json()
    assert [message["id"] for message in page["messages"]] == ["r1.1", "r2.1"]


def test_a_follower_that_is_in_the_middle_hears_of_an_erasure(chat: str, served: Served) -> None:
    post(chat, run("r1", "a secret"))
    with follow(f"{chat}/events") as frames:
        frames.take(len(run("r1")))
        name = HTTP.get(chat).json()["conversation"]
        command = [sys.executable, "-m", "ledger.admin", "--data", served.database, "erase", "--yes", "--", name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        seen = next(frames)
        assert seen.event in ("snapshot", "conversation.erased"), done.stderr
        assert "secret" not in seen.data


@pytest.mark.anyio
async def test_a_restored_file_is_another_life(tmp_path: Path) -> None:
    """The same positions exist in it, and hold something else."""
    async with open_ledger(str(tmp_path / "old.db")) as ledger:
        await ledger.record("c", [new("tick", n=1), new("tick", n=2)])
        await ledger.backup(str(tmp_path / "copy.db"))
        was = ledger.store.incarnation
    restored = tmp_path / "new.db"
    command = [sys.executable, "-m", "ledger.admin", "--data", str(restored), "restore", str(tmp_path / "copy.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with serve(restored) as server, follow(f"{server.url}/v1/conversations/c/events?after=1&incarnation={was}") as frames:
        assert next(frames).event == "snapshot"
