"""`tailfold serve` that can't do what it is asked: a line that says why, before anything is served."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from tests.test_commands import Shell

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--host", "0.0.0.0"), "name a file of tokens with --tokens"),
        (("--tokens", "missing"), "missing: the file of tokens can't be read: No such file or directory"),
        (("--tokens", "."), "the file of tokens can't be read: Is a directory"),
        (("--tokens", "/dev/null"), "holds no token: write one a line"),
        (("--cors", "nonsense"), "'nonsense' is no origin"),
        (("--cors", "https://app.example/page"), "is no origin"),
        (("--cors", "https://a@app.example"), "is no origin"),
        (("--cors", ""), "is no origin"),
        (("--port", "99999"), "65535"),
        (("--long-poll-timeout", "0"), "0.1"),
        (("--max-body", "1"), "1024"),
        (("--max-connections", "0"), "1"),
    ],
)
@pytest.mark.heavy
def test_what_can_not_be_served_is_said(tmp_path: Path, words: tuple[str, ...], why: str) -> None:
    shell = Shell(tmp_path)
    assert why in shell.run("serve", *words, code=2)
    assert not shell.data.exists(), "nothing is made"


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"can't listen on 127.0.0.1:{port}" in Shell(tmp_path).run("serve", "--port", str(port), code=2)
