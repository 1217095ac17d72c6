"""How large recorded sessions are: imported, every conversation compacted, the file written anew, of what they say.

Text is the content of all messages in UTF-8: texts, arguments, results, signatures, citations and what is kept for its
provider as it came. What a conversation says of itself (`metadata`) is told beside it, and lies in the file as it is.
Without recorded sessions (`--data`) there is nothing to measure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.measuring import summarize
from benchmarks.workloads.sessions import files_of, sources_in
from ledger import open_ledger
from stream.sqlite import SqliteStore
from stream.sqlite.vacuum import vacuum

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from benchmarks.measuring import Bench, Figure
    from projector import Block


class Sizes(NamedTuple):
    """How many files of a source, at most."""

    files: int


FULL: Final = Sizes(1_000)
SMOKE: Final = Sizes(1)


class _Disk(NamedTuple):
    """Bytes of text, of metadata, and of the file."""

    text: int
    metadata: int
    file: int


def measure(bench: Bench, sizes: Sizes) -> list[Figure]:
    """Ratios of bytes to text: `disk.SOURCE`."""
    if bench.data is None:
        return []
    figures = []
    for source in sources_in(bench.data):
        files = files_of(bench.data / source)[: sizes.files]
        found = bench.run(_measure(bench.folder / f"disk-{source}.db", files))
        beside = {"mb": found.file / 1e6, "text_mb": found.text / 1e6, "metadata_mb": found.metadata / 1e6}
        figures.append(summarize(f"disk.{source}", f"{source}: file, compacted", "its text", [found.file / found.text], beside))
    return figures


async def _measure(place: Path, files: Iterable[Path]) -> _Disk:
    text = metadata = 0
    async with open_ledger(str(place)) as ledger:
        for file in files:
            await ledger.import_file(file)
        async for info in ledger.conversations():
            metadata += sum(len(value.encode("utf-8", "surrogatepass")) for value in info.metadata_text.values())
            for message in await ledger.transcript(info.conversation, branch="all"):
                text += sum(_bytes_of(block) for block in message.blocks)
            await ledger.compact(info.conversation)
        store = ledger.store
        assert isinstance(store, SqliteStore)
        return _Disk(text, metadata, (await vacuum(store)).after_bytes)


def _bytes_of(block: Block) -> int:
    said = (
        block.text or block.input_text,
        block.signature,
        block.opaque,
        block.parts,
        *block.fields.values(),
        *block.citations,
    )
    return sum(len(one.encode("utf-8", "surrogatepass")) for one in said if one)
