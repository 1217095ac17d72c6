"""Summaries: asked for once, never worse than the text, and over HTTP from whatever server there is."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from ledger.context.summarizer import HttpSummarizer, SummarizerFailed
from projector.context.expiration import Choices, apply
from projector.context.policies import ExpirationPolicy
from projector.context.shortening import text_of
from projector.context.summaries import SummaryMaker, plan, read_summary, shorten_results
from tests.vectors.delta import message

if TYPE_CHECKING:
    from collections.abc import Iterator

TEXT = "x" * 2_000
KEY = "sk-very-secret"


def maker_of(answer: Any, calls: list[str], **options: Any) -> SummaryMaker:
    async def summarizer(instructions: str, text: str) -> str:
        calls.append(instructions)
        del text
        await asyncio.sleep(0.01)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    return SummaryMaker(summarizer, **options)


def test_two_who_ask_the_same_at_once_share_a_call() -> None:
    async def ask() -> list[str]:
        maker = maker_of("s", calls)
        return await asyncio.gather(*(maker.summarize(TEXT, "p", 5) for _ in range(5)))

    calls: list[str] = []
    assert asyncio.run(ask()) == ["s"] * 5
    assert len(calls) == 1


def test_a_first_caller_that_is_cancelled_does_not_fail_the_second() -> None:
    async def ask() -> str:
        maker = maker_of("s", calls)
        first = asyncio.create_task(maker.summarize(TEXT, "p"))
        second = asyncio.create_task(maker.summarize(TEXT, "p"))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    calls: list[str] = []
    assert asyncio.run(ask()) == "s"
    assert len(calls) == 1


def test_a_call_that_nobody_waits_for_is_ended_and_asked_again() -> None:
    async def ask() -> str:
        maker = maker_of("s", calls)
        first = asyncio.create_task(maker.summarize(TEXT, "p"))
        await asyncio.sleep(0.001)
        first.cancel()
        return await maker.summarize(TEXT, "p")

    calls: list[str] = []
    assert asyncio.run(ask()) == "s"


def test_what_was_summarised_before_is_not_asked_for_again() -> None:
    async def ask() -> list[str]:
        maker = maker_of("s", calls)
        return [await maker.summarize(TEXT, "p", 5) for _ in range(3)]

    calls: list[str] = []
    assert asyncio.run(ask()) == ["s"] * 3
    assert len(calls) == 1


def test_a_failure_is_not_remembered() -> None:
    async def ask() -> None:
        maker = maker_of(RuntimeError("no"), calls)
        for _ in range(2):
            with pytest.raises(RuntimeError):
                await maker.summarize(TEXT, "p")

    calls: list[str] = []
    asyncio.run(ask())
    assert len(calls) == 2


@pytest.mark.parametrize("answer", [RuntimeError(KEY), "", "  ", TEXT * 2, '{"summary": 3}', '{"summary": ""}', None, 5])
def test_an_answer_that_is_no_summary_leaves_the_first_characters(answer: Any) -> None:
    made = asyncio.run(shorten_results(TEXT, maker_of(answer, []), length=100))
    assert made.decision.strategy == "first_n_chars"
    assert made.decision.text is not None
    assert made.decision.text.startswith("x" * 100 + "...")
    assert KEY not in made.decision.why


def test_a_summarizer_that_hangs_is_left_after_its_time() -> None:
    async def hang(instructions: str, text: str) -> str:
        await asyncio.sleep(60)
        return instructions + text

    start = time.monotonic()
    made = asyncio.run(shorten_results(TEXT, SummaryMaker(hang, time_limit=0.05)))
    assert made.decision.strategy == "first_n_chars"
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("limit", [0, -1, float("nan")])
def test_a_time_limit_that_is_none_is_refused(limit: float) -> None:
    with pytest.raises(ValueError, match="time_limit"):
        maker_of("s", [], time_limit=limit)


@pytest.mark.parametrize("answer", ['{"summary": " s "}', '```json\n{"summary": "s"}\n```', " s\n", "```\ns\n```"])
def test_a_summary_is_found_in_json_and_in_plain_text(answer: str) -> None:
    assert read_summary(answer) == "s"


@pytest.mark.parametrize("answer", ["short", RuntimeError("no")])
def test_what_is_recorded_is_never_asked_for_again(answer: Any) -> None:
    path, calls = [message({"id": "r", "role": "user", "text": TEXT})], list[str]()
    choices, maker = Choices({"r": ExpirationPolicy(1, "compact", "ai_summary")}), maker_of(answer, calls)
    assert asyncio.run(plan(path, 1, choices, maker)) == []
    records = asyncio.run(plan(path, 2, choices, maker))
    choices = choices.record(records)
    assert [record.covers for record in records] == [["r"]]
    assert text_of(apply(path, 2, choices).messages[0]) == records[0].summary
    assert asyncio.run(plan(path, 3, choices, maker)) == []
    assert len(calls) == 1
    assert "2000 characters" in calls[0]
    assert "{" not in calls[0].replace('{"summary": "..."}', "")


class Server(ThreadingHTTPServer):
    """Gives its answers in turn, the last one for ever."""

    daemon_threads = True
    answers: list[tuple[int, bytes, float]]
    seen: list[dict[str, Any]]

    def handle_error(self, *_: object) -> None:
        """Who asked may have gone: that is what some tests are about."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.seen.append({"path": self.path, "key": self.headers.get("authorization"), "body": body})
        status, answer, wait = self.server.answers[min(len(self.server.seen), len(self.server.answers)) - 1]
        time.sleep(wait)
        self.send_response(status)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
        pass


@contextmanager
def serving(*answers: tuple[int, bytes, float]) -> Iterator[tuple[str, Server]]:
    server = Server(("127.0.0.1", 0), Handler)
    server.answers, server.seen = list(answers), []
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/", server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def good(text: Any) -> bytes:
    return json.dumps({"choices": [{"message": {"content": text}}]}).encode()


async def ask(url: str, **options: Any) -> str:
    async with HttpSummarizer(url, "m", key=KEY, wait=0.001, **options) as summarizer:
        return await summarizer("be brief", "the text")


def test_the_server_is_asked_in_the_chat_format() -> None:
    with serving((200, good("s"), 0)) as (url, server):
        assert asyncio.run(ask(url)) == "s"
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "the text"}]
    body = {"model": "m", "messages": messages}
    assert server.seen == [{"path": "/v1/chat/completions", "key": f"Bearer {KEY}", "body": body}]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again(status: int) -> None:
    with serving((status, b"", 0), (status, b"", 0), (200, good("s"), 0)) as (url, server):
        assert asyncio.run(ask(url)) == "s"
    assert len(server.seen) == 3


def test_after_the_last_try_it_fails_without_the_key() -> None:
    with serving((503, KEY.encode(), 0)) as (url, server), pytest.raises(SummarizerFailed, match="503") as caught:
        asyncio.run(ask(url, tries=2))
    assert len(server.seen) == 2
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("status", [400, 401, 404, 302])
def test_a_refusal_is_not_asked_again(status: int) -> None:
    with serving((status, KEY.encode(), 0)) as (url, server), pytest.raises(SummarizerFailed, match=str(status)) as caught:
        asyncio.run(ask(url))
    assert len(server.seen) == 1
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("body", [b"", b"junk", b"[]", b"{}", b'{"choices": []}', good(None), good(" "), b"\xff", b"[" * 9_999])
def test_an_answer_without_a_text_is_an_error(body: bytes) -> None:
    with serving((200, body, 0)) as (url, _), pytest.raises(SummarizerFailed, match="holds no text"):
        asyncio.run(ask(url))


def test_a_slow_server_is_left_after_the_timeout() -> None:
    with serving((200, good("s"), 0.5)) as (url, _), pytest.raises(SummarizerFailed, match="did not answer"):
        asyncio.run(ask(url, timeout=0.05, tries=2))


def test_a_server_that_is_not_there_is_an_error() -> None:
    with serving((200, b"", 0)) as (url, _):
        pass
    with pytest.raises(SummarizerFailed, match="ConnectError") as caught:
        asyncio.run(ask(url, tries=1))
    assert KEY not in repr(caught.value)


@pytest.mark.parametrize("options", [{"timeout": 0}, {"timeout": float("nan")}, {"tries": 0}, {"tries": 1.5}])
def test_limits_that_are_none_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        HttpSummarizer("http://127.0.0.1", "m", **options)
