"""Who gets in: tokens, tickets, pages of others in a browser, and what is tried by odd paths and headers."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from starlette.requests import HTTPConnection

from ledger import open_ledger
from ledger.admin.remote import read_token
from ledger.http import make_app
from stream.http import Access, BearerTokens, Problem, Tickets
from tests.http.clients import HTTP, follow
from tests.serving import Served, serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

WRITER, READER, NARROW = "writer-token-0001", "reader-token-0001", "narrow-token-0001"
TICK = [{"type": "tick", "data": {}}]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "tokens").write_text(f"# who may\n{WRITER}\n\n{READER} read\n{NARROW} write team/\n")
    with serve(folder / "talks.db", "--tokens", str(folder / "tokens"), "--cors", "https://app.example") as server:
        for name in ("team%2Fa", "other"):
            HTTP.post(f"{server.url}/v1/conversations/{name}/events", json=TICK, headers=bearer(WRITER)).raise_for_status()
        yield server


@pytest.fixture(scope="module")
def open_one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(tmp_path_factory.mktemp("open") / "talks.db") as server:
        named = [{"type": "conversation.created", "data": {"title": "t"}}]
        HTTP.post(f"{server.url}/v1/conversations/c/events", json=named).raise_for_status()
        yield server


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def ticket_for(server: Served, stream: str, token: str = READER, **more: Any) -> httpx.Response:
    return HTTP.post(f"{server.url}/v1/tickets", json={"stream": stream, **more}, headers=bearer(token))


PATHS = [
    ("GET", "/v1/conversations"), ("GET", "/v1/conversations/other"), ("GET", "/v1/conversations/other/events"),
    ("GET", "/v1/conversations/other/transcript"), ("GET", "/v1/conversations/other/runs"),
    ("POST", "/v1/conversations/other/events"), ("POST", "/v1/conversations/other/compact"),
    ("POST", "/v1/conversations/other/runs/r/cancel"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_without_a_token_nothing_is_told(guarded: Served, method: str, path: str) -> None:
    for headers in ({}, bearer("a-token-of-nobody"), {"Authorization": "Bearer"}, {"Authorization": f"Basic {WRITER}"}):
        answer = HTTP.request(method, guarded.url + path, headers=headers, json=TICK if "events" in path else None)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
    unknown = HTTP.request(method, guarded.url + path.replace("other", "unheard-of"))
    assert unknown.status_code == 401


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_a_reading_token_reads_and_a_narrow_one_stays_with_its_ids(guarded: Served, method: str, path: str) -> None:
    if method == "POST":
        assert HTTP.post(guarded.url + path, headers=bearer(READER), json=TICK).status_code == 403
    elif not path.endswith("/events"):
        assert HTTP.get(guarded.url + path, headers=bearer(READER)).status_code == 200
    told = HTTP.request(method, guarded.url + path, headers=bearer(NARROW))
    if path == "/v1/conversations":
        assert [each["conversation"] for each in told.json()["conversations"]] in ([], ["team/a"])
    else:
        assert told.status_code == 403
    own = f"{guarded.url}/v1/conversations/team%2Fa"
    assert HTTP.post(f"{own}/events", headers=bearer(NARROW), json=TICK).status_code == 200
    assert HTTP.get(own, headers=bearer(NARROW)).json()["conversation"] == "team/a"


@pytest.mark.anyio
async def test_a_narrow_token_lists_what_it_may_read_page_by_page(tmp_path: Path) -> None:
    lines = ["team/", "team/a", "new"]
    (tmp_path / "tokens").write_text("".join(f"{NARROW} read {prefix}\n" for prefix in lines) + WRITER)
    async with open_ledger("memory:") as ledger:
        for name in ("new/1", "team/a", "other", "te", "team/b", "ne", "new/2", "team/c"):
            await ledger.describe(name, title="t")
        app = make_app(ledger, authorize=BearerTokens(tmp_path / "tokens"))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://any.example", headers=bearer(NARROW)) as client:
            for prefix, wanted in (
                ("", ["team/c", "new/2", "team/b", "team/a", "new/1"]), ("te", ["team/c", "team/b", "team/a"]),
                ("team/b", ["team/b"]), ("new/2", ["new/2"]), ("other", []), ("ne", ["new/2", "new/1"]),
            ):  # fmt: skip
                seen: list[str] = []
                after: dict[str, str] = {}
                while True:
                    url = "/v1/conversations"
                    page = (await client.get(url, params={"limit": 2, "prefix": prefix, **after})).json()
                    seen += [each["conversation"] for each in page["conversations"]]
                    if page["next"] is None:
                        break
                    after = {"after": page["next"]}
                assert sorted(seen) == sorted(wanted)
                assert len(seen) == len(wanted)
            everything = (await client.get("/v1/conversations", headers=bearer(WRITER))).json()
            assert len(everything["conversations"]) == 8


def test_a_ticket_reads_its_stream_and_nothing_else(guarded: Served) -> None:
    ticket = ticket_for(guarded, "team/a").json()["ticket"]
    own, other = (f"{guarded.url}/v1/conversations/{name}" for name in ("team%2Fa", "other"))
    with follow(f"{own}/events?ticket={ticket}") as frames:
        assert next(frames).id == "1"
    assert HTTP.get(f"{own}/transcript", params={"ticket": ticket}).status_code == 200
    assert HTTP.get(f"{other}/transcript", params={"ticket": ticket}).status_code == 401
    assert HTTP.get(f"{guarded.url}/v1/conversations", params={"ticket": ticket}).status_code == 401
    for path in ("events", "compact", "runs/r/cancel"):
        assert HTTP.post(f"{own}/{path}", params={"ticket": ticket}, json=TICK).status_code == 401


def test_a_ticket_gets_no_ticket_and_nobody_one_for_what_he_may_not_read(guarded: Served) -> None:
    ticket = ticket_for(guarded, "team/a").json()["ticket"]
    wanted = {"stream": "team/a"}
    assert HTTP.post(f"{guarded.url}/v1/tickets", params={"ticket": ticket}, json=wanted).status_code == 403
    assert HTTP.post(f"{guarded.url}/v1/tickets", json=wanted).status_code == 401
    assert ticket_for(guarded, "other", NARROW).status_code == 403
    for wrong in ({"lasts_s": 0}, {"lasts_s": 3601}, {"kind": "all"}, {"more": 1}):
        assert ticket_for(guarded, "team/a", **wrong).status_code == 422


def test_a_ticket_outlives_the_server_and_not_its_time(guarded: Served) -> None:
    given = ticket_for(guarded, "other", lasts_s=1).json()
    lasting = ticket_for(guarded, "other").json()["ticket"]
    guarded.restart()
    url = f"{guarded.url}/v1/conversations/other/transcript"
    assert HTTP.get(url, params={"ticket": lasting}).status_code == 200
    time.sleep(max(0.0, given["ends_at"] - time.time()) + 0.05)
    assert HTTP.get(url, params={"ticket": given["ticket"]}).status_code == 401


def test_a_ticket_changed_in_any_place_is_none() -> None:
    tickets = Tickets(b"secret")
    access = Access("read", "conversation", "a", None)
    ticket, _ = tickets.mint("conversation", "a", lasts_s=60, now=1000)
    assert tickets.is_good(ticket, access, now=1059)
    assert not tickets.is_good(ticket, access, now=1060)
    assert not tickets.is_good(ticket, Access("read", "stream", "a", None), now=1000)
    assert not tickets.is_good(ticket, Access("append", "conversation", "a", None), now=1000)
    for at, sign in enumerate(ticket):
        changed = ticket[:at] + ("A" if sign != "A" else "B") + ticket[at + 1 :]
        assert not tickets.is_good(changed, access, now=1000)
    for odd in ("", "A", "é", "=" * 40, ticket * 2, "\x00"):
        assert not tickets.is_good(odd, access, now=1000)


def test_a_ticket_is_in_no_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tokens").write_text(f"{WRITER}\n")
    with serve(tmp_path / "talks.db", "--tokens", str(tmp_path / "tokens")) as server:
        HTTP.post(f"{server.url}/v1/conversations/other/events", json=TICK, headers=bearer(WRITER))
        ticket = ticket_for(server, "other", WRITER).json()["ticket"]
        for path in ("other/transcript", "unknown", "%ff", "other/events?after=x", "other/nothing"):
            mark = "&" if "?" in path else "?"
            HTTP.get(f"{server.url}/v1/conversations/{path}{mark}ticket={ticket}")
        with socket.create_connection(("127.0.0.1", server.port)) as broken:
            broken.sendall(f"GET /v1/conversations?ticket={ticket} NONSENSE\r\n\r\n".encode())
            broken.recv(1000)
    said = capfd.readouterr()
    assert ticket not in said.out + said.err


def test_a_name_that_was_pointed_at_this_machine_gets_nothing(open_one: Served) -> None:
    for host in (
        "evil.example",
        f"evil.example:{open_one.port}",
        "127.0.0.1.evil.example",
        "",
        "localhost.evil.example",
        "[::",
    ):
        answer = HTTP.get(f"{open_one.url}/v1/conversations", headers={"Host": host})
        assert answer.status_code == 421, host
    for host in ("localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:80", "localhost."):
        assert HTTP.get(f"{open_one.url}/v1/conversations", headers={"Host": host}).status_code == 200, host


def test_a_page_of_others_changes_nothing_on_a_server_that_asks_nobody(open_one: Served) -> None:
    """A form or a simple request goes out without asking: only its `Origin` tells."""
    url = f"{open_one.url}/v1/conversations/c"
    for origin in (
        "https://evil.example",
        "null",
        f"http://localhost:{open_one.port + 1}",
        f"https://127.0.0.1:{open_one.port}",
    ):
        assert HTTP.post(f"{url}/compact", headers={"Origin": origin}).status_code == 403
        assert HTTP.post(f"{url}/runs/r/cancel", headers={"Origin": origin}).status_code == 403
    assert HTTP.get(url).json()["floor"] == 0
    assert HTTP.post(f"{url}/compact", json={"dry_run": True}, headers={"Origin": open_one.url}).status_code == 200


def test_only_named_origins_may_read_and_errors_say_so_too(guarded: Served) -> None:
    url = f"{guarded.url}/v1/conversations/other"
    for address in (url, f"{url}/unknown"):
        for status, headers in ((200, bearer(WRITER)), (401, {})):
            answer = HTTP.get(address, headers={"Origin": "https://app.example", **headers})
            assert answer.status_code in (status, 404)
            assert answer.headers["access-control-allow-origin"] == "https://app.example"
            assert "Origin" in answer.headers["vary"]
    other = HTTP.get(url, headers={"Origin": "https://evil.example", **bearer(WRITER)})
    assert "access-control-allow-origin" not in other.headers
    asked = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
    preflight = HTTP.options(f"{url}/events", headers=asked)
    assert preflight.status_code == 204
    assert "idempotency-key" in preflight.headers["access-control-allow-headers"]


@pytest.mark.parametrize(
    "path",
    [
        "..%2Fother",
        "other%00",
        "%ff",
        "%zz",
        "%",
        "other%2F..%2Fother",
        "%C0%AE",
        "a%2F%2Fb",
        "%20",
        "other;x",
        "ds:x",
        "ds%3Ax",
    ],
)
def test_a_path_is_what_it_says_and_reaches_nothing_else(guarded: Served, path: str) -> None:
    with socket.create_connection(("127.0.0.1", guarded.port)) as client:
        asked = f"GET /v1/conversations/{path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {READER}\r\n\r\n"
        client.sendall(asked.encode())
        assert client.recv(4000).split(b" ")[1] in (b"400", b"404")


def test_odd_requests_are_refused_and_the_server_goes_on(guarded: Served) -> None:
    for sent in (
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 40_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /v1/tickets HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/tickets HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"\x00\x01\x02\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", guarded.port)) as client:
            client.settimeout(5)
            client.sendall(sent)
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(4000).split(b" ")[1:2] in ([b"400"], [b"401"], [b"404"], [b"415"], [])
    assert HTTP.get(f"{guarded.url}/v1/docs").status_code == 200


def test_a_file_of_tokens_that_can_not_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    for content, why in (
        ("", "no token"), ("short\n", "line 1"), (f"{WRITER}\n{READER} maybe\n", "line 2"),
        ("ein-schlüssel-für-dich\n", "ASCII"),
    ):  # fmt: skip
        path.write_text(content, encoding="utf-8")
        with pytest.raises(ValueError, match=why):
            BearerTokens(path)


@pytest.mark.anyio
async def test_a_file_of_tokens_may_begin_with_a_mark_of_its_encoding(tmp_path: Path) -> None:
    """As editors of Windows write it."""
    path = tmp_path / "tokens"
    path.write_text(f"{WRITER}\n", encoding="utf-8-sig")
    connection = HTTPConnection({"type": "http", "headers": [(b"authorization", f"Bearer {WRITER}".encode())]})
    await BearerTokens(path)(Access("append", "conversation", "c", connection))
    assert read_token(path) == WRITER


FAILING = """
from ledger.http.conversations import Conversations

async def show(self, request):
    secret = "what a variable holds"
    raise RuntimeError("it fails here")

Conversations.show = show
from ledger.admin import main
main()
"""


def test_what_fails_is_logged_without_what_was_sent(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FAILING, "--data", str(tmp_path / "talks.db"), "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        answer = HTTP.get(f"{url}/v1/conversations/c?ticket=AAAAAAAAAAAA", headers={"Authorization": f"Bearer {WRITER}"})
        process.terminate()
        told = process.communicate()[1]
    assert (answer.status_code, answer.json()["error"]) == (500, "internal_error")
    assert "it fails here" in told
    for secret in ("what a variable holds", "AAAAAAAAAAAA", WRITER):
        assert secret not in told
    assert "it fails" not in answer.text


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """Of an application with a hook of its own."""

    async def authorize(access: Access) -> None:
        if access.request.headers.get("user") != "ann":
            raise Problem(404, "unknown", "there is nothing here")
        if access.action not in ("read", "list"):
            raise Problem(403, "forbidden", f"ann may not {access.action}")

    async with open_ledger("memory:") as ledger:
        transport = httpx.ASGITransport(make_app(ledger, authorize=authorize))
        async with httpx.AsyncClient(transport=transport, base_url="http://anywhere.example") as found:
            yield found


@pytest.mark.anyio
async def test_a_hook_decides_by_itself_who_may_do_what(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/conversations")).status_code == 404
    assert (await client.get("/v1/conversations", headers={"user": "ann"})).status_code == 200
    refused = await client.post("/v1/conversations/c/events", json=TICK, headers={"user": "ann"})
    assert (refused.status_code, refused.json()["detail"]) == (403, "ann may not append")
