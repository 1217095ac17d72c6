"""Conversations that have something to hide wherever one can be, and a look for it at the raw bytes of files."""

from __future__ import annotations

import hashlib
import re
import subprocess
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ledger import open_ledger
from ledger.upkeep.verify import verify
from projector import Projector, transcript
from tests.talk import finished, new, said, started

if TYPE_CHECKING:
    from pathlib import Path

    from ledger import Ledger
    from stream import Event, Opening

KINDS: Final = {
    "answer", "approval", "archive", "arguments", "call", "citation", "error", "event", "label", "mark", "media", "name",
    "note", "opaque", "parts", "question", "reason", "record", "reference", "redacted", "replacement", "secret", "signature",
    "thought", "title", "tool", "torn", "unknown", "usage", "value",
}  # fmt: skip
PLACES: Final = ("one file", "two files")
PATTERN: Final = re.compile(rb"needle-([a-z]+)-of-([0-9a-z]+)\.")
_COMPRESSED: Final = re.compile(rb"x[\x01\x5e\x9c\xda]")  # how zlib begins, at each of its levels
_STEP_BYTES: Final = 64
diary: Final = Projector(
    "diary", 1, "", lambda state, event: state + _remember(event), lambda state: state.encode(), lambda data: data.decode()
)
"""A projector whose snapshots hold a needle, too."""
PROJECTORS: Final = (transcript, diary)


def needle(conversation: str, kind: str) -> str:
    return f"needle-{kind}-of-{conversation}."


def media_of(conversation: str) -> bytes:
    return b"\0" + needle(conversation, "media").encode() * 400


def open_at(folder: Path | str, place: str = "one file") -> Opening[Ledger]:
    log = f"{folder}/log.db" if place == "two files" else None
    return open_ledger(f"{folder}/ledger.db", log=log, projectors=PROJECTORS, durability="normal")


async def wrong(ledger: Ledger, conversation: str | None = None) -> list[Any]:
    return [finding async for finding in verify(ledger, conversation) if not finding.is_note]


async def texts(ledger: Ledger, conversation: str = "c") -> list[str]:
    return [message.text for message in await ledger.transcript(conversation)]


async def say(ledger: Ledger, text: str, conversation: str = "c", **options: Any) -> str:
    async with ledger.run(conversation, **options) as run:
        return await run.message("user", text)


async def fill(ledger: Ledger, conversation: str, *, turns: int = 2, deltas: int = 3) -> None:
    """Messages of all kinds, in runs of which one fails and one is left open."""
    ids = [await take_turn(ledger, conversation, turn, deltas) for turn in range(turns)]
    words = {kind: needle(conversation, kind) for kind in KINDS}
    await ledger.describe(conversation, title=words["title"], metadata={words["name"]: words["value"]}, labels=[words["label"]])
    await ledger.describe(conversation, archived=conversation.endswith("9"))
    await ledger.add_media(conversation, media_of(conversation), "image/png")
    await ledger.annotate(conversation, ids[0], {words["mark"]: words["note"]})
    await ledger.redact(conversation, ids[-1], reason=words["reason"])
    await ledger.record(conversation, [*tool_call(words, ids[0]), new("archive.made", where=words["archive"])])
    run = await ledger.begin_run(conversation, run_id="torn", parent=ids[0])
    await run.text(words["torn"])
    await run.finish("failed", error={"type": "Error", "message": words["error"]})
    await ledger.select(conversation, ids[0])
    open_run = await ledger.begin_run(conversation, run_id="open", parent=None)
    await open_run.text(words["secret"])
    await open_run.close()


async def take_turn(ledger: Ledger, conversation: str, turn: int, deltas: int) -> str:
    """A question and an answer in many small appends; the id of the question."""
    async with ledger.run(conversation, run_id=f"turn{turn}", model=needle(conversation, "name"), flush_ms=0) as run:
        question = await run.message("user", needle(conversation, "question"))
        for _ in range(deltas):
            await run.text(needle(conversation, "answer"))
            await run.flush()
    return question


def tool_call(say: dict[str, str], parent: str) -> list[Any]:
    """A run as a raw client records it, with everything that a provider may say."""
    text = say["record"]
    return [
        started("r", parent),
        new("message.started", run_id="r", message_id="r.1", role="assistant", name=say["name"], provider_ref=say["reference"]),
        new("block.started", message_id="r.1", block=0, kind="reasoning", mood=say["unknown"]),
        new("block.delta", message_id="r.1", block=0, text=say["thought"]),
        new("block.sealed", message_id="r.1", block=0, signature=say["signature"], opaque={"payload": say["opaque"]}),
        new("block.started", message_id="r.1", block=1, kind="tool_call", name=say["tool"], tool_call_id=say["call"]),
        new("block.delta", message_id="r.1", block=1, text=f'{{"a":"{say["arguments"]}"}}'),
        new("block.sealed", message_id="r.1", block=1, parse="ok"),
        new("message.finished", message_id="r.1", status="complete"),
        new("tool.approval", tool_call_id=say["call"], approval_id=say["approval"]),
        new("tool.result", run_id="r", message_id="r.2", tool_call_id="c", status="ok", parts=[{"value": say["parts"]}]),
        new("raw", provider="p", event={"value": say["event"]}),
        *said("r", "r.3", text * 3, text * 300),  # a large one goes over pages of its own
        new("block.annotated", message_id="r.3", block=0, citation={"source": say["citation"]}),
        *said("r", "r.4", say["redacted"]),
        new("message.redacted", message_id="r.4", blocks=[{"kind": "text", "text": say["replacement"]}]),
        new("run.usage", run_id="r", request_id="q", raw={"value": say["usage"]}),
        finished("r"),
    ]


def media_id_of(conversation: str) -> str:
    return hashlib.sha256(media_of(conversation)).hexdigest()


def unpacked(held: bytes) -> bytes:
    """What all that zlib has compressed holds, wherever in these bytes it begins, as far as it goes on in one piece."""
    pieces: list[bytes] = []
    for match in _COMPRESSED.finditer(held):
        stream = zlib.decompressobj()
        with suppress(zlib.error):  # torn, or never compressed at all: what came before that counts
            for begin in range(match.start(), len(held), _STEP_BYTES):
                pieces.append(stream.decompress(held[begin : begin + _STEP_BYTES]))
                if stream.eof:
                    break
    return b"".join(pieces)


def found(folder: Path, conversation: str, files: str = "*") -> set[str]:
    """The kinds of needles of a conversation that lie anywhere in the bytes of files, compressed ones too.

    Another process reads them: one that closes a file gives up all of SQLite's locks on it.
    """
    paths = sorted(str(path) for path in folder.glob(files))
    held = subprocess.run(["cat", "--", *paths], capture_output=True, check=True).stdout
    kinds = {kind.decode() for kind, of in PATTERN.findall(held + unpacked(held)) if of == conversation.encode()}
    return kinds | ({"digest"} if media_id_of(conversation).encode() in held else set())


async def everything(ledger: Ledger, conversation: str) -> list[Any]:
    """All that a ledger tells of a conversation."""
    return [
        await ledger.transcript(conversation),
        await ledger.transcript(conversation, branch="all"),
        await ledger.tree(conversation),
        [run async for run in ledger.runs(conversation)],
        await ledger.open_runs(conversation),
        await ledger.project(diary, conversation),
        await ledger.tables.conversation(conversation),
    ]


def _remember(event: Event) -> str:
    return "" if event.seq % 4 else needle(event.stream_id, "snapshot")
