"""Every stream of the public data, from files of its own and out of cassettes, as the bytes that came."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from projector.formats import STREAMS
from tests.corpus_claims import claim, is_talk
from tests.corpus_exchanges import content_of, events_of, exchanges_of, is_cassette
from tests.corpus_formats import kind_of
from tests.corpus_parts import files_of
from tests.shared_data import FOLDERS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_ENDINGS = (".chunks.txt", ".sse", ".events.jsonl", ".frames")
_ERROR = 400


class Streamed(NamedTuple):
    """A stream: what it is called, its format, its bytes."""

    name: str
    format: str
    data: bytes


def streams_of(source: str) -> Iterator[Streamed]:
    """The streams of a source that an adapter is there for."""
    for folder in FOLDERS:
        for path in files_of(folder / source):
            yield from _streams_in(path)


def _streams_in(path: Path) -> Iterator[Streamed]:
    if is_cassette(path):
        for sent in exchanges_of(path):
            if is_talk(sent) and sent.is_stream and sent.status < _ERROR and claim(sent) in STREAMS:
                yield Streamed(f"{path.name}, {sent.place}", claim(sent), sent.body)
    elif path.name.removesuffix(".gz").endswith(_ENDINGS):
        data = content_of(path)
        values, _ = events_of(data)
        name = str(kind_of(values[0], str(path))).replace("_", "-") if values else ""
        if name in STREAMS:
            yield Streamed(path.name, name, data)
