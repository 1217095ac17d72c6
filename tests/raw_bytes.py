"""All that can be read in the raw bytes of SQLite's files: as they lie, over the seams of pages, and what is compressed.

Nothing is believed of trees, free lists, and of what a log says is valid: every image of a page is looked at, wherever it
lies. A zlib run may begin at any byte of one, with the dictionary of `ledger` or without one, and goes on over overflow
pages, each as it was at some time that the images tell of. A run is read from its head to where it breaks off: what stands
behind a break, as where SQLite has written its list of free pages over the first of them, is not read. Whoever knows what the
files held before looks for `traces` of it.
"""

from __future__ import annotations

import re
import subprocess
import zlib
from bisect import bisect_left
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ledger.tables.dictionary import DICTIONARY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SIDES: Final = ("-wal", "-journal")
_DATABASE: Final = b"SQLite format 3\0"
_JOURNAL: Final = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
_HEAD: Final = re.compile(rb"\x78(?=[\x01\x5e\x9c\xda\x3f\x7d\xbb\xf9]|\0|\Z)")  # its second byte may lie on the next page
_NUMBER: Final = re.compile(rb"(?=\0[^\0]|\0\0[^\0]|\0\0\0[^\0])", re.DOTALL)
_SEAM_BYTES: Final = 300
_TRACE_BYTES: Final = 6
_EVER: Final = 2**62


class _Image(NamedTuple):
    """Of a page, and from when to when it was so."""

    since: int
    until: int
    data: bytes

    @property
    def following(self) -> int:
        """The number of the next one, where it is a page of a chain."""
        return int.from_bytes(self.data[:4])


def readable(*paths: Path) -> bytes:
    """Everything that can be read in these files and in the logs and journals beside them.

    Another process reads them: one that closes a file gives up all of SQLite's locks on it.
    """
    return b"\n".join(text for _, text in _everything(paths))


def traces(secret: bytes, *paths: Path) -> set[bytes]:
    """The bytes in which compressed runs say this for the first time, but for a few at both ends."""
    runs = {(run, text.find(secret)) for run, text in _everything(paths) if run and secret in text}
    spans = [(run, _reaching(run, at + 1), _reaching(run, at + len(secret))) for run, at in runs]
    return {run[begin : end - 1] for run, begin, end in spans if end - begin > _TRACE_BYTES}


def _reaching(run: bytes, length: int) -> int:
    """How many bytes of it say that much."""
    return bisect_left(range(len(run)), length, key=lambda count: len(_feed(_stream(), run[:count])[0]))


def _everything(paths: Iterable[Path]) -> Iterator[tuple[bytes, bytes]]:
    """All texts, and the run that says it where it is compressed."""
    places = sorted({re.sub(f"({'|'.join(SIDES)})$", "", str(path)) for path in paths})
    for place in places:
        yield from _texts(*(_held(place + side) for side in ("", *SIDES)))


def _held(place: str) -> bytes:
    return subprocess.run(["cat", "--", place], capture_output=True, check=True).stdout if Path(place).exists() else b""


def _texts(main: bytes, wal: bytes, journal: bytes) -> Iterator[tuple[bytes, bytes]]:
    yield from ((b"", held) for held in (main, wal, journal))
    size, room = _page_size(main, wal)
    pages = [(at // size + 1, main[at : at + room]) for at in range(0, len(main), size)]
    saved = list(_saved(journal, size, room))
    if saved:
        yield from _read([*reversed(saved), *pages])  # of two images of a page in a journal the second is of an older time
    frames = [(int.from_bytes(wal[at : at + 4]), wal[at + 24 : at + 24 + room]) for at in range(32, len(wal), size + 24)]
    yield from _read([*pages, *frames])


def _page_size(main: bytes, wal: bytes) -> tuple[int, int]:
    """Of a page, and of what there is room for on it. What is no database is one page."""
    is_database = main.startswith(_DATABASE)
    size = int.from_bytes(main[16:18] if is_database else wal[8:12])
    size = {0: max(len(main), len(wal), 512), 1: 65536}.get(size, size)
    return size, size - (main[20] if is_database else 0)


def _saved(journal: bytes, size: int, room: int) -> Iterator[tuple[int, bytes]]:
    sector = int.from_bytes(journal[20:24]) if journal.startswith(_JOURNAL) else 512
    at = sector
    while at < len(journal):
        again = -(-at // sector) * sector  # a journal that was synced goes on behind another header
        at = again + sector if journal[again : again + 8] == _JOURNAL else at
        yield int.from_bytes(journal[at : at + 4]), journal[at + 4 : at + 4 + room]
        at += size + 8


def _read(pages: Iterable[tuple[int, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """The texts of images of pages, by number, the oldest first."""
    images: dict[int, list[_Image]] = {}
    for now, (number, data) in enumerate(pages, 1):
        of_page = images.setdefault(number, [])
        if of_page:
            of_page[-1] = of_page[-1]._replace(until=now)
        of_page.append(_Image(now if of_page else 0, _EVER, data))
    known = {0, *images}
    chained = {number: [one for one in of_page if one.following in known] for number, of_page in images.items()}
    for image in [one for of_page in images.values() for one in of_page]:
        for end, number in _seams(image, 0):
            ahead = image.data[max(end - _SEAM_BYTES, 0) : end]
            yield from ((b"", ahead + page.data[4:_SEAM_BYTES]) for page in chained.get(number, ()))
        for head in _HEAD.finditer(image.data):
            yield from _unpack(image, head.start(), chained)


def _seams(image: _Image, start: int) -> Iterator[tuple[int, int]]:
    """Where it may go on with another page, and with which: behind what a row has here, or from page to page of a chain."""
    for match in _NUMBER.finditer(image.data, start):
        yield match.start(), int.from_bytes(image.data[match.start() : match.start() + 4])
    yield len(image.data), image.following


def _unpack(image: _Image, start: int, chained: dict[int, list[_Image]]) -> Iterator[tuple[bytes, bytes]]:
    """The zlib run that may begin there, on every way that there was at some time through the pages, and what it says."""
    ways = [(_stream(), b"", b"", image, start, [image.data])]
    while ways:
        stream, run, text, page, at, seen = ways.pop()
        for end, number in _seams(page, start) if len(seen) == 1 else [(len(page.data), page.following)]:
            more, goes_on = _feed(stream, page.data[at:end])
            run, text, at = run + page.data[at:end], text + more, end
            if not goes_on:
                break
            for other in chained.get(number, ()):
                since, until = max(page.since, other.since), min(page.until, other.until)
                if since < until and other.data not in seen:
                    ways.append((stream.copy(), run, text, _Image(since, until, other.data), 4, [*seen, other.data]))
        yield run, text


def _stream() -> zlib._Decompress:
    """Of a run that may have been compressed with the dictionary of pages: its second byte says whether."""
    return zlib.decompressobj(zdict=DICTIONARY)


def _feed(stream: zlib._Decompress, data: bytes) -> tuple[bytes, bool]:
    """What it says more, and whether it goes on; of what is damaged all up to there."""
    before = stream.copy()
    try:
        return stream.decompress(data), not stream.eof
    except zlib.error:
        text = b""
        with suppress(zlib.error):
            for byte in data:
                text += before.decompress(bytes([byte]))
        return text, False
