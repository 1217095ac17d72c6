"""The page on streams: its code runs as it stands there, and its server stops when it is told to."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest

from tests.http.asgi_streams import ask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.applications import Starlette

PAGE: Final = (Path(__file__).parents[2] / "stream" / "README.md").read_text(encoding="utf-8")
LOG, SERVER = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
TEXT: Final = {"content-type": "text/plain"}


def run(code: str) -> dict[str, Any]:
    module = types.ModuleType("page")
    exec(compile(code, "stream/README.md", "exec"), module.__dict__)
    return module.__dict__


def test_the_log_of_the_page_runs_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        run(LOG)


@pytest.mark.anyio
async def test_each_user_of_the_page_has_his_own_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    app: Starlette = run(SERVER)["app"]
    ann, bob = {"x-user": "ann"}, {"x-user": "bob"}
    async with app.router.lifespan_context(app):

        async def status(method: str, path: str, headers: dict[str, str], body: bytes = b"") -> int:
            async with ask(app, method, path, body, headers | TEXT | {"host": "x"}) as answer:
                await answer.end()
            return answer.status

        assert await status("PUT", "/v1/stream/ann/answers", ann, b"text") == 201
        assert await status("GET", "/v1/stream/ann/answers", ann) == 200
        for wrong in (bob, {}):
            assert await status("GET", "/v1/stream/ann/answers", wrong) == 403
        async with ask(app, "GET", "/ticket", headers=ann) as given:
            await given.end()
        ticket, _ = json.loads(given.body)
        assert await status("GET", f"/v1/stream/ann/answers?ticket={ticket}", {}) == 200
        assert await status("GET", f"/v1/stream/ann/other?ticket={ticket}", {}) == 401
        assert await status("POST", f"/v1/stream/ann/answers?ticket={ticket}", {}, b"x") == 401
        assert await status("PUT", "/v1/stream/ann/large", ann, b"x" * 1_000_001) == 413


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def follow(port: int, live: str) -> Iterator[bytes]:
    url = f"http://127.0.0.1:{port}/v1/stream/ann/answers?offset=-1&live={live}"
    with httpx.stream("GET", url, headers={"x-user": "ann"}, timeout=30) as answer:
        yield answer.status_code.to_bytes(2, "big")
        yield from answer.iter_raw()


@pytest.mark.heavy
@pytest.mark.parametrize("way", ["as the page has it", "by the command"])
def test_its_server_stops_though_somebody_follows(tmp_path: Path, port: int, way: str) -> None:
    (tmp_path / "app.py").write_text(SERVER.replace("uvicorn.Config(app)", f"uvicorn.Config(app, port={port})"), "utf-8")
    by_command = ["-m", "uvicorn", "app:app", "--port", str(port), "--timeout-graceful-shutdown", "1"]
    command = [sys.executable, *(["app.py"] if way == "as the page has it" else by_command)]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE)
    try:
        url = f"http://127.0.0.1:{port}/v1/stream/ann/answers"
        until = time.monotonic() + 20
        while True:
            try:
                assert httpx.put(url, headers=TEXT | {"x-user": "ann"}).status_code == 201
                break
            except httpx.TransportError:
                assert time.monotonic() < until
                time.sleep(0.05)
        polled: list[bytes] = []
        waiting = threading.Thread(target=lambda: polled.extend(follow(port, "long-poll")))
        waiting.start()
        followed = follow(port, "sse")
        next(followed)
        assert b"upToDate" in next(followed)
        time.sleep(0.3)  # the other one waits by now, too
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        _, log = process.communicate(timeout=20)
        assert time.monotonic() - began < 5
        with pytest.raises(httpx.RemoteProtocolError):
            next(followed)  # cut off without an end: the client comes back
        waiting.join()
    finally:
        process.kill()
        process.wait()
    if way == "as the page has it":
        assert process.returncode == 0
        assert polled == [(204).to_bytes(2, "big")]
        assert b"Traceback" not in log
