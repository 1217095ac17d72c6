"""A library prints nothing: what it has to say is heard by those who configured a log, and by nobody else."""

from __future__ import annotations

import ast
import json
import logging
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import structlog
from structlog.testing import capture_logs

from ledger import open_ledger
from stream.logger import Logger
from tests.stdio_server import CALLS, answer
from tests.test_house_rules import PACKAGES, ROOT, sources

if TYPE_CHECKING:
    from pathlib import Path

    from ledger import Ledger

REQUESTS = [
    {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": name, "arguments": {"text": text}}}
    for number, (name, text) in enumerate(CALLS)
]
KINDS_OF_ANSWERS = ["result", "result", "result", "result", "result", "error", "result", "result", "error"]


@pytest.mark.anyio
async def test_nothing_is_printed_whatever_is_done(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with open_ledger(str(tmp_path / "a.db")) as ledger:
        answers = [await answer(ledger, request) for request in REQUESTS]
    assert [next(kind for kind in ("result", "error") if kind in told) for told in answers] == KINDS_OF_ANSWERS, answers
    assert capfd.readouterr() == ("", "")


@pytest.mark.heavy
@pytest.mark.parametrize("before", ["", "import structlog; "], ids=["alone", "structlog is there"])
def test_a_server_on_standard_output_is_understood(tmp_path: Path, before: str) -> None:
    """In a process of its own: nothing there has ever configured a log, as pytest does here."""
    script = f"{before}import asyncio; from tests.stdio_server import main; asyncio.run(main())"
    command = [sys.executable, "-c", script, str(tmp_path / "a.db")]
    given = "".join(json.dumps(request) + "\n" for request in REQUESTS)
    done = subprocess.run(command, cwd=ROOT, input=given, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [told["id"] for told in answers] == list(range(len(CALLS)))
    assert [next(kind for kind in ("result", "error") if kind in told) for told in answers] == KINDS_OF_ANSWERS
    assert done.stderr == ""


@pytest.mark.anyio
async def test_it_is_heard_by_standard_logging(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tailfold")
    async with ledger.run("c", run_id="r1") as run:
        await run.message("user", "a secret")
    [record] = caplog.records
    assert (record.name, record.levelname) == ("tailfold.ledger", "INFO")
    assert record.getMessage() == "run.committed conversation='c' run_id='r1' status='committed'"
    assert record.module == "catchup"


@pytest.mark.anyio
async def test_it_is_heard_by_structlog_where_that_is_configured(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tailfold")
    with capture_logs() as logs:
        async with ledger.run("c", run_id="r1") as run:
            await run.message("user", "a secret")
    said = {"event": "run.committed", "conversation": "c", "run_id": "r1", "status": "committed", "log_level": "info"}
    assert (logs, caplog.records) == ([said], [])


def test_warnings_and_errors_are_not_printed_for_want_of_a_handler() -> None:
    """Else `logging` prints them on standard error, where it finds no handler at all."""
    script = (
        "from stream.logger import Logger\nlogger = Logger('tailfold.x')\nlogger.warning('a.b', n=1)\nlogger.error('a.c')\n"
        "try: 1 / 0\nexcept ArithmeticError: logger.exception('a.d')"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_what_others_wrote_stays_on_its_line(caplog: pytest.LogCaptureFixture) -> None:
    Logger("tailfold.x").error("a.b", conversation="c\n\x1b[2J\u202e\udc80 100%s")
    assert caplog.records[0].getMessage() == r"a.b conversation='c\n\x1b[2J\u202e\udc80 100%s'"


def test_a_log_configured_late_is_spoken_to(caplog: pytest.LogCaptureFixture) -> None:
    logger = Logger("tailfold.x")
    logger.info("a.b")
    assert not caplog.records
    with capture_logs() as logs:
        logger.info("a.c", n=1)
    assert logs == [{"event": "a.c", "n": 1, "log_level": "info"}]
    structlog.reset_defaults()
    logger.warning("a.d")
    assert [record.getMessage() for record in caplog.records] == ["a.d"]


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.heavy
def test_there_is_one_way_to_say_something(package: str) -> None:
    """No module asks structlog for a logger of its own: that one would print where nobody configured it."""
    wrong = []
    for path in sources(package):
        if path == ROOT / "stream" / "logger.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            wrong += [f"{path.relative_to(ROOT)}:{node.lineno}" for name in names if name.partition(".")[0] == "structlog"]  # type: ignore[attr-defined]
    assert not wrong
