"""`tailfold events --follow --url`: another machine's conversation, printed as if it lay here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from ledger import open_ledger
from stream import NewEvent
from tests.fork_server import COMMANDS
from tests.serving import serve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOKEN = "a-token-that-nobody-guesses"


def run(*words: str) -> tuple[int, str, str]:
    [told] = COMMANDS.run_each([["--data", "/no/such/file.db", *words]])
    return told


@contextmanager
def following(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "ledger.admin", "events", "--follow", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    ) as child:
        yield child
        child.kill()


def lines(child: subprocess.Popen[bytes], count: int) -> list[str]:
    assert child.stdout is not None
    return [child.stdout.readline().decode().rstrip("\n") for _ in range(count)]


def append(database: Path, *events: NewEvent) -> None:
    async def main() -> None:
        async with open_ledger(str(database)) as ledger:
            await ledger.store.append("a/b c", list(events))

    anyio.run(main)


@pytest.mark.heavy
def test_it_prints_what_comes_over_a_restart_as_the_local_command_does(tmp_path: Path) -> None:
    database, tokens = tmp_path / "talks.db", tmp_path / "tokens"
    tokens.write_text(f"# who may\n{TOKEN} read\n")
    append(database, NewEvent("x.y", b'{"n":1}'), NewEvent("x.y", b"\xff\x00"))
    local = COMMANDS.run_each([["--data", str(database), "events", "a/b c", "--json"]])[0][1].splitlines()
    expected: list[dict[str, Any]] = [{**json.loads(line), "at": None, "at_iso": None} for line in local]
    with serve(database, "--tokens", str(tokens)) as server:
        where = ("a/b c", "--url", server.url, "--token-file", str(tokens))
        with following(*where, "--json") as child, following(*where, "--after", "1") as other:
            assert [json.loads(line) for line in lines(child, 2)] == expected
            server.restart()
            append(database, NewEvent("x.y", b'{"n":3}'))
            assert json.loads(*lines(child, 1)) == {"seq": 3, "type": "x.y", "at": None, "at_iso": None, "data": '{"n":3}'}
            assert [line.split(maxsplit=2)[::2] for line in lines(other, 2)][1] == ["3", '{"n":3}']
            child.kill()
            assert child.stderr is not None
            said = child.stderr.read().decode()
            assert server.url in said
            assert "trying again" in said


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--url", "http://127.0.0.1:1"), "add --follow"),
        (("--follow", "--url", "ftp://x"), "http://"),
        (("--follow", "--token-file", "t"), "--url"),
        (("--follow", "--url", "http://127.0.0.1:1", "--token-file", "/no/such/file"), "/no/such/file"),
        (("--follow", "--url", "http://127.0.0.1:1", "--token-file", "/dev/null"), "holds no token"),
    ],
)
def test_what_can_not_be_done_is_one_line_and_exit_2(words: tuple[str, ...], why: str) -> None:
    code, out, err = run("events", "c", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert why in err


def test_a_refusal_is_one_line_and_exit_2(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(f"{TOKEN}\n")
    append(tmp_path / "talks.db", NewEvent("x.y", b"1"))
    with serve(tmp_path / "talks.db", "--tokens", str(tmp_path / "tokens")) as server:
        code, out, err = run("events", "a/b c", "--follow", "--url", server.url)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"{server.url}/v1/conversations/a%2Fb%20c/events: the server answered 401" in err
