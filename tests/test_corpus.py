"""The look at the public data: what it counts, and that it fails where something is wrong."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.faults.sizes import size
from tests.shared_data import needs_data

ROOT: Final = Path(__file__).parents[1]
CALL: Final = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TALK: Final[dict[str, Any]] = {
    "task_id": 1, "trial": 0, "reward": 1.0,
    "traj": [
        {"role": "user", "content": "go"}, {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c", "name": "f", "content": "done"},
    ],
}  # fmt: skip
STREAM: Final[list[dict[str, Any]]] = [
    {"messageStart": {"role": "assistant"}},
    {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "hello"}}},
    {"messageStop": {"stopReason": "end_turn"}},
]
ROW: Final = "| tau-bench | logs | MIT | 1 files, 2 conv, {messages} msg, 0 ev, 1.00 MB (0.10 stored); 2 tool calls | x | y |"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    lay(tmp_path / "tau-bench" / "talks.jsonl.gz", gzip.compress((json.dumps(TALK) + "\n").encode() * 2))
    lay(tmp_path / "vercel-ai" / "amazon-bedrock" / "a.chunks.txt", lines(STREAM))
    lay(tmp_path / "something-else" / "talks.jsonl", lines([TALK]))
    lay(tmp_path / "something-else" / "stream.sse", b"".join(b"data: " + line + b"\n\n" for line in lines(STREAM).splitlines()))
    lay(tmp_path / "README.md", ROW.format(messages=6).encode())
    lay(tmp_path / "tau-bench" / "SOURCE.md", b"not data")
    return tmp_path


def lay(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def lines(values: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def look(*given: str | Path, timeout: int = 100) -> tuple[int, list[str]]:
    command = [sys.executable, "-W", "error", "-m", "tests.corpus", *map(str, given)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


@pytest.mark.heavy
def test_every_file_is_imported_and_what_the_data_says_of_itself_is_compared(data: Path) -> None:
    code, told = look(data)
    assert (code, told[-1].endswith(" passed, 0 failed")) == (0, True)
    rows = [line.split() for line in told[1:4]]
    assert rows == [
        ["something-else", "2", "2", "4", rows[0][4], "1", "0", rows[0][7]],
        ["tau-bench", "1", "2", "6", rows[1][4], "2", "0", rows[1][7]],
        ["vercel-ai", "1", "1", "1", rows[2][4], "1", "0", rows[2][7]],
    ]


def test_a_wrong_count_a_torn_file_and_one_that_nobody_reads_fail(data: Path) -> None:
    lay(data / "README.md", ROW.format(messages=7).encode())
    lay(data / "tau-bench" / "torn.jsonl.gz", (data / "tau-bench" / "talks.jsonl.gz").read_bytes()[:-9])
    lay(data / "vercel-ai" / "x.json", b'{"choices": [7]}')
    lay(data / "something-else" / "page.html", b"<html></html>")
    code, told = look(data)
    assert code == 1
    failed = [line for line in told if line.startswith("FAILED ")]
    assert told[-1].endswith(f" passed, {len(failed)} failed")
    for said in (
        "tau-bench: 7 msg (6)", "tau-bench: 1 files (2)", "tau-bench/torn.jsonl: it is imported (a whole gz file was expected",
        "vercel-ai/x.json: ", "something-else/page.html: it is imported (server-sent events",
    ):  # fmt: skip
        assert any(line.startswith(f"FAILED {said}") for line in failed), (said, failed)


def test_a_folder_that_is_none_is_told(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.corpus", str(tmp_path / "none")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, "usage" in done.stderr) == (2, True)


@pytest.mark.heavy
def test_several_folders_are_looked_at_and_one_failure_in_any_of_them_counts(data: Path, tmp_path: Path) -> None:
    other = tmp_path / "something-else"
    code, told = look(data, other)
    assert (code, sum(line.endswith(" passed, 0 failed") for line in told)) == (0, 2)
    lay(other / "more" / "x.json", b'{"choices": [7]}')
    code, told = look(other, data)
    assert (code, sum(line.endswith(" passed, 0 failed") for line in told)) == (1, 0)


@pytest.mark.heavy
def test_a_cassette_of_a_claimed_format_must_be_imported_and_one_of_another_need_not(data: Path) -> None:
    asked = {"messages": [{"role": "user", "content": "hi"}]}
    said = {"id": "a", "model": "m", "choices": [{"index": 0, "finish_reason": "stop", "message": {"content": "hello"}}]}
    vector = exchange("https://host/v1/embeddings", {"input": "hi"}, {"data": [[1]]})
    lay(data / "some-cassettes" / "talk.yaml", cassette(exchange("https://host/v1/chat/completions", asked, said)))
    lay(data / "some-cassettes" / "vectors.yaml", cassette(vector))
    code, told = look(data)
    failed = [line for line in told if line.startswith("FAILED ")]
    assert [line for line in failed if "talk.yaml" in line] == []
    assert [line for line in failed if "vectors.yaml" in line and "claimed format" in line] == []
    assert code == bool(failed)


@needs_data
@pytest.mark.heavy
def test_all_that_was_published_is_imported_and_nothing_that_was_answered_is_missing() -> None:
    """In the smoke size each ninth file of a source."""
    code, told = look("--every", str(size(smoke=9, full=1)), timeout=900)
    assert code == 0, [line for line in told if line.startswith("FAILED ")]


def exchange(uri: str, request: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    return {
        "request": {"method": "POST", "uri": uri, "body": json.dumps(request), "headers": {}},
        "response": {
            "status": {"code": 200, "message": "OK"},
            "headers": {"Content-Type": ["application/json"]},
            "body": {"string": json.dumps(answer)},
        },
    }


def cassette(*exchanges: dict[str, Any]) -> bytes:
    return json.dumps({"version": 1, "interactions": list(exchanges)}).encode()
