"""The public client of the Durable Streams protocol writes and reads over kills of the server: each message once, in order."""

from __future__ import annotations

import json
import os
import subprocess
import time
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest

from tests.clients.conftest import node_command, scripts_of
from tests.serving import serve

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.conftest import Npm

PACKAGE: Final = {"dependencies": {"@durable-streams/client": "0.2.7"}}
COUNT: Final = 400
LIMIT_S: Final = 90

pytestmark = pytest.mark.clients


def test_each_message_is_written_and_read_once_over_two_kills(tmp_path: Path, npm: Npm) -> None:
    folder = npm(PACKAGE)
    with serve(tmp_path / "streams.db", "--long-poll-timeout", "5") as server:
        url = f"{server.url}/v1/stream/numbers"
        assert httpx.put(url, headers={"Content-Type": "application/json"}).status_code == 201

        def start(mode: str) -> subprocess.Popen[str]:
            return subprocess.Popen(
                node_command(folder, "durable_client.mjs", mode, str(COUNT)), cwd=scripts_of(folder),
                env=os.environ | {"DS_URL": url}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip

        clients = {mode: start(mode) for mode in ("sse", "long-poll", "write")}
        try:
            for share in (4, 2):
                await_length(url, COUNT // share)
                server.kill()
                time.sleep(0.3)
                server.start()
            told = {mode: outcome(client) for mode, client in clients.items()}
        finally:
            for client in clients.values():
                client.kill()
                client.communicate()
        assert told["write"] == {"failed": []}
        assert [each["n"] for each in httpx.get(url).json()] == list(range(COUNT))
    assert told["sse"]["seen"] == list(range(COUNT))
    assert told["long-poll"]["seen"] == list(range(COUNT))


def await_length(url: str, length: int) -> None:
    until = time.monotonic() + LIMIT_S
    while len(httpx.get(url).json()) < length:
        assert time.monotonic() < until, "the writer stands still"
        time.sleep(0.02)


def outcome(client: subprocess.Popen[str]) -> Any:
    said, why = client.communicate(timeout=LIMIT_S)
    assert client.returncode == 0, why
    return json.loads(said.splitlines()[-1])
