"""A model of power loss: what a process wrote is recorded, and replayed onto a disk that keeps what it was asked to keep.

What is modelled:

* After `fsync` or `fdatasync` has returned, all that was written to that file before is on the disk.
* Of what was written or cut off after a file's last sync, any part may be there: each 512-byte sector by itself, in
  any order. So a write of several sectors may be torn, a later one may be there without an earlier one, and a file may
  have grown without the bytes in the middle, which then read as zeros.
* That a file was made or unlinked is on the disk after its *folder* was synced. Of what came later, a beginning is
  there: file systems keep the order of their own changes.
* Shared memory (`-shm`) is gone.

What is not: a sector torn in itself, a sector that changes without being written to, and a disk that lies about a sync.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

SECTOR: Final = 512
TOLD: Final = "told"
"""The file of the folder to which the child writes what was acknowledged: it gets its place among the writes."""
_HEAD: Final = struct.Struct("=IIQQ")


class Entry(NamedTuple):
    """One call. Kinds: c(reate), u(nlink), w(rite), t(runcate) and s(ync); the name of the folder itself is empty."""

    kind: str
    name: str
    offset: int
    data: bytes


def build_recorder(folder: Path) -> Path:
    """Compiles what records; raises `RuntimeError` where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise RuntimeError("the test of power loss needs a C compiler (cc): install one, it is not skipped without")
    library, source = folder / "recorder.so", __file__.replace("power.py", "recorder.c")
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(library), source, "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"recorder.c does not compile: {done.stderr}")
    return library


def read_entries(path: Path) -> Iterator[Entry]:
    """What was recorded, in order."""
    recorded = memoryview(path.read_bytes())
    at = 0
    while at < len(recorded):
        kind, name_bytes, offset, data_bytes = _HEAD.unpack_from(recorded, at)
        at += _HEAD.size
        name = bytes(recorded[at : at + name_bytes]).decode()
        at += name_bytes
        yield Entry(chr(kind), name, offset, bytes(recorded[at : at + data_bytes]))
        at += data_bytes


class Disk:
    """One folder: what is surely on the disk, and what was not yet synced."""

    def __init__(self) -> None:
        self._names: dict[str, _File] = {}
        self._sure_names: dict[str, _File] = {}
        self._renamings: list[Entry | tuple[str, _File]] = []

    def do(self, entry: Entry) -> None:
        """Plays one entry."""
        if entry.name.endswith("-shm"):
            return
        if entry.kind == "c":
            file = self._names[entry.name] = _File()
            self._renamings.append((entry.name, file))
        elif entry.kind == "u":
            del self._names[entry.name]
            self._renamings.append(entry)
        elif entry.kind == "s" and not entry.name:
            self._sure_names = self._named(len(self._renamings))
            self._renamings.clear()
        elif entry.kind == "s":
            self._names[entry.name].sync()
        else:
            self._names[entry.name].unsynced.append(entry)

    def written(self) -> dict[str, bytes]:
        """What the files hold while the power is on."""
        return {name: file.after(None, 1) for name, file in self._names.items()}

    def cut(self, chance: random.Random) -> dict[str, bytes]:
        """What the files may hold after a power cut here."""
        kept = chance.choice([0, 0.1, 0.5, 0.9, 1])
        names = self._named(chance.choice([0, chance.randint(0, len(self._renamings)), len(self._renamings)]))
        return {name: file.after(chance, kept) for name, file in names.items()}

    def _named(self, count: int) -> dict[str, _File]:
        names = dict(self._sure_names)
        for change in self._renamings[:count]:
            if isinstance(change, Entry):
                names.pop(change.name, None)
            else:
                names[change[0]] = change[1]
        return names


class _File:
    def __init__(self) -> None:
        self._sure = bytearray()
        self.unsynced: list[Entry] = []

    def sync(self) -> None:
        for entry in self.unsynced:
            _apply(self._sure, entry)
        self.unsynced.clear()

    def after(self, chance: random.Random | None, kept: float) -> bytes:
        """What is sure, and of the rest each sector with the chance `kept`."""
        content = bytearray(self._sure)
        for entry in self.unsynced:
            if entry.kind == "t":
                if chance is None or chance.random() < kept:
                    _apply(content, entry)
                continue
            for start, data in _sectors(entry):
                if chance is None or chance.random() < kept:
                    _apply(content, entry._replace(offset=start, data=data))
        return bytes(content)


def _apply(content: bytearray, entry: Entry) -> None:
    if entry.kind == "t":
        del content[entry.offset :]
        content.extend(bytes(entry.offset - len(content)))
        return
    content.extend(bytes(max(entry.offset - len(content), 0)))
    content[entry.offset : entry.offset + len(entry.data)] = entry.data


def _sectors(entry: Entry) -> Iterator[tuple[int, bytes]]:
    start, end = entry.offset, entry.offset + len(entry.data)
    while start < end:
        stop = min(start - start % SECTOR + SECTOR, end)
        yield start, entry.data[start - entry.offset : stop - entry.offset]
        start = stop
