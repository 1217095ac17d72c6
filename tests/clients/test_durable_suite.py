"""The public suite of the Durable Streams protocol, against `tailfold serve` on a file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

from tests.serving import serve

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.conftest import Node, Npm

PACKAGE: Final = {"dependencies": {"@durable-streams/server-conformance-tests": "0.3.6", "vitest": "4.1.12"}}
TESTS: Final = 332  # 6 more are about subscriptions, which one turns on

pytestmark = pytest.mark.clients


def test_the_servers_suite_passes(tmp_path: Path, npm: Npm, node: Node) -> None:
    folder = npm(PACKAGE)
    report = tmp_path / "report.json"
    with serve(tmp_path / "streams.db", "--long-poll-timeout", "2") as server:
        done = node(
            folder, "node_modules/vitest/vitest.mjs", "run", "--config", "vitest.config.mjs",
            env={"DS_URL": server.url, "DS_REPORT": str(report)},
        )  # fmt: skip
    told = json.loads(report.read_text()) if report.exists() else {}
    failed = [
        f"{test['fullName']}: {test['failureMessages'][0][:500]}"
        for file in told.get("testResults", [])
        for test in file["assertionResults"]
        if test["status"] == "failed"
    ]
    assert not failed, "\n".join(failed)
    assert (told.get("numPassedTests"), told.get("numFailedTests")) == (TESTS, 0), done.stdout[-3000:] + done.stderr[-3000:]
