"""Files that are packed are unpacked piece by piece; what they unpack to has limits, and is refused when it gets there."""

from __future__ import annotations

import gzip
import json
import shutil
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from ledger.transfer.files import FileError, open_lines
from tests.ledger_commands import refuse_each
from tests.test_commands import Shell, shell

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["shell"]

MB = 1024 * 1024
TALK = json.dumps([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]).encode()


def pack(path: Path, head: bytes, piece: bytes, times: int, tail: bytes = b"") -> Path:
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(head)
        for _ in range(times):
            file.write(piece)
        file.write(tail)
    return path


def one_line(path: Path) -> Path:
    return pack(path, b'[{"role":"user","content":"', b"a" * MB, 300, b'"}]')


def many_lines(path: Path) -> Path:
    return pack(path, b"[", b'{"role":"user","content":"aaaaaaaaaaaaaaaaaaaaaaaaa"},\n' * 20_000, 300, b"{}]")


def blank_lines(path: Path) -> Path:
    return pack(path, TALK, b"\n" * MB, 400)


def export_line(path: Path) -> Path:
    return pack(path, b'{"tailfold":1,"conversation":"c","floor":0,"origin":0,"head":2}\n{"seq":1,"data":"', b"a" * MB, 300)


def export_lines(path: Path) -> Path:
    with gzip.open(path, "wb", compresslevel=9) as file:
        file.write(b'{"tailfold":1,"conversation":"c","floor":0,"origin":0,"head":2}\n')
        for _ in range(300):
            file.write(b"\n" * MB)
    return path


def many_members(path: Path) -> Path:
    path.write_bytes(gzip.compress(b'[{"role":"user","content":"') + gzip.compress(b"a" * MB, 1) * 300)
    return path


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (one_line, "line 1 is longer than 67,108,864 bytes"),
        (many_members, "line 1 is longer than 67,108,864 bytes"),
        pytest.param(many_lines, "unpacks to a document of more than", marks=pytest.mark.heavy),
        pytest.param(blank_lines, "unpacks to a document of more than", marks=pytest.mark.heavy),
        (export_lines, "200 times its size"),
        pytest.param(export_line, "line 2 is longer than", marks=pytest.mark.heavy),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_unpacks_to_far_too_much_is_refused_early_and_takes_no_memory(
    shell: Shell, tmp_path: Path, make: Callable[[Path], Path], why: str
) -> None:
    said, peak_bytes = shell.measure("import", str(make(tmp_path / "bomb.json.gz")), code=2)
    assert why in said
    assert peak_bytes < 150 * MB
    assert not shell.data.exists()


def test_what_is_packed_in_several_members_is_one_file(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "c.json.gz"
    path.write_bytes(gzip.compress(TALK[:20]) + gzip.compress(b"") + gzip.compress(TALK[20:]) + b"\0" * 100)
    assert shell.read("import", str(path))[0]["conversation"] == "c"


def test_what_is_packed_wrongly_is_named(shell: Shell, tmp_path: Path) -> None:
    packed = gzip.compress(TALK)
    broken = {
        "ends too early": packed[:-5],
        "ends too early ": packed + packed[:7],
        "Not a gzipped file": packed + b"something else",
        "compressed twice": gzip.compress(packed),
        "can't be read": packed[:20] + b"\xff\xff\xff" + packed[23:],
        "CRC check failed": packed[:-8] + b"\0\0\0\0" + packed[-4:],
    }
    files = [tmp_path / f"{number}.json.gz" for number in range(len(broken))]
    for file, content in zip(files, broken.values(), strict=True):
        file.write_bytes(content)
    told = refuse_each(shell, [["import", str(file)] for file in files])
    for file, why, line in zip(files, broken, told, strict=True):
        assert str(file) in line
        assert why.strip() in line
    assert not shell.data.exists()


def test_a_copy_that_would_take_the_last_room_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10 * MB))
    path = pack(tmp_path / "c.json.gz", b"[", bytes(range(32, 91)) * 1000 + b"\n", 2000)
    with pytest.raises(FileError, match="no room"):
        open_lines(path)
