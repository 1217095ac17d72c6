"""One life of a process that does whatever a ledger can do, until it is told to end, is killed, or is stopped and goes on."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import zlib
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ledger import LedgerError, open_ledger
from ledger.transfer.archive import write_lines
from ledger.upkeep.verify import verify
from projector.context.delta import ProviderCapabilities
from stream import Event, StreamError
from tests.faults.history import Diary, watched
from tests.faults.writers import Writers, shorten_leases

if TYPE_CHECKING:
    from ledger import Ledger
    from tests.faults.children import Parent

CONVERSATIONS: Final = ("a", "b", "c", "d", "e")
SESSIONS: Final = ProviderCapabilities(session_resumption=True, history_management="session-stateful")
OFTEN: Final = {
    "talk": 8, "stream": 8, "fork": 4, "begin": 1, "flush": 1, "annotate": 6, "redact": 3, "describe": 3, "record": 5,
    "select": 2, "add_media": 2, "look": 6, "send": 3, "expand": 2, "compact": 4, "hold": 2, "erase": 2, "recover": 4,
    "cancel": 1, "repair": 2, "verify": 1, "backup": 0.2, "copy": 0.5,
}  # fmt: skip
WRITES: Final = {
    "talk",
    "fork",
    "begin",
    "flush",
    "annotate",
    "redact",
    "describe",
    "record",
    "compact",
    "hold",
    "erase",
    "repair",
}


async def live(parent: Parent, folder: str, name: str) -> None:
    """Told in its diary, all of it; errors that are no answer end it."""
    diary, chance = Diary(f"{folder}/{name}.diary"), random.Random(name)
    ending = asyncio.create_task(parent.hear())
    with ExitStack() as patches:
        shorten_leases(patches)
        patches.enter_context(watched(diary))
        async with open_ledger(f"{folder}/ledger.db", durability="normal") as ledger:
            life = Life(ledger, diary, chance, name)
            following = [asyncio.create_task(life.follow(each)) for each in chance.sample(CONVERSATIONS, 2)]
            while not ending.done():
                work = [life.take_turn() for _ in range(chance.choice([1, 1, 3]))]
                await asyncio.gather(*work)
                for task in following:
                    if task.done():
                        task.result()
            for task in following:
                task.cancel()


class Life(Writers):
    """Chooses what to do, and to which conversation and message."""

    def __init__(self, ledger: Ledger, diary: Diary, chance: random.Random, name: str) -> None:
        super().__init__(ledger, diary, chance, name)
        self._folder = Path(ledger.tables.database.path).parent

    async def take_turn(self) -> None:
        conversation = self._chance.choice(CONVERSATIONS)
        [what] = self._chance.choices([*OFTEN], [*OFTEN.values()])
        with suppress(LedgerError, StreamError):
            path = await self._ledger.transcript(conversation)
            message_id = self._chance.choice(path).id if path else None
            if what in WRITES:
                await self.do(what, conversation, message_id)
            else:
                self._numbers += 1
                await getattr(self, f"_{what}")(conversation, message_id, f"{self._name}.{self._numbers}")

    async def follow(self, conversation: str) -> None:
        """Notes each event that it sees, and where it had to begin anew."""
        while True:
            with suppress(StreamError, LedgerError):
                async for seen in self._ledger.follow(conversation):
                    if isinstance(seen, Event):
                        self._diary.note("saw", conversation, seq=seen.seq, crc=zlib.crc32(seen.data), type=seen.type)
                    else:
                        self._diary.note("replayed", conversation, seq=seen.last_seq)
            self._diary.note("left", conversation)

    async def _stream(self, conversation: str, _: str | None, run_id: str) -> None:
        """As an agent does it: a question, an answer piece by piece, a tool."""
        call = self._diary.call
        begin = self._ledger.begin_run(conversation, run_id=run_id, flush_ms=self._chance.choice([0, 20]))
        run = await call("begin", conversation, begin, run=run_id)
        try:
            text = f"{run_id} asks"
            await call("message", conversation, run.message("user", text), run=run_id, text=text)
            for number in range(self._chance.randint(1, 6)):
                text = f"{run_id} answers {number}. "
                await call("text", conversation, run.text(text), run=run_id, text=text)
            await run.tool_call("look", {}, id="call")
            await run.tool_result("call", "done")
            await call("flush", conversation, run.flush(), run=run_id)
            if self._chance.random() < 0.9:
                await call("finish", conversation, run.finish(), run=run_id)
        finally:
            with suppress(LedgerError, StreamError):
                await run.close()

    async def _select(self, conversation: str, message_id: str | None, _: str) -> None:
        if message_id:
            await self._diary.call("select", conversation, self._ledger.select(conversation, message_id))

    async def _add_media(self, conversation: str, _: str | None, word: str) -> None:
        data = word.encode()
        adding = self._ledger.add_media(conversation, data, "image/png")
        await self._diary.call("media", conversation, adding, media=hashlib.sha256(data).hexdigest())

    async def _look(self, conversation: str, *_: Any) -> None:
        await self._diary.call("look", conversation, _all_of(self._ledger, conversation))
        await self._diary.call("bounds", conversation, self._bounds(conversation))

    async def _bounds(self, conversation: str) -> list[int]:
        bounds = await self._ledger.store.bounds(conversation)
        return [bounds.floor, bounds.head, bounds.origin]

    async def _send(self, conversation: str, *_: Any) -> None:
        context = await self._ledger.context(conversation, provider="p", capabilities=SESSIONS)
        await self._diary.call("send", conversation, self._ledger.begin_send(context))
        if self._chance.random() < 0.7:
            await self._diary.call("acknowledge", conversation, self._ledger.acknowledge(context))

    async def _expand(self, conversation: str, message_id: str | None, _: str) -> None:
        if message_id:
            context = await self._ledger.context(conversation)
            await self._diary.call("expand", conversation, self._ledger.expand(context, message_id))

    async def _recover(self, conversation: str, *_: Any) -> None:
        for run in await self._ledger.open_runs(conversation):
            if self._chance.random() < 0.3:
                action: Any = self._chance.choice(["commit", "fail", "cancel"])
                await self._diary.call("recover", conversation, self._ledger.recover(conversation, run.run_id, action))

    async def _cancel(self, conversation: str, *_: Any) -> None:
        for run in await self._ledger.open_runs(conversation):
            await self._diary.call("cancel", conversation, self._ledger.cancel(conversation, run.run_id))

    async def _verify(self, conversation: str, *_: Any) -> None:
        await self._diary.call("verify", conversation, self._found(conversation))

    async def _found(self, conversation: str) -> list[str]:
        return [str(found) async for found in verify(self._ledger, conversation) if not found.is_note]

    async def _backup(self, _conversation: str, _: str | None, word: str) -> None:
        path = f"{self._folder}/{word}.backup"
        await self._diary.call("backup", "", self._ledger.backup(path), path=path)

    async def _copy(self, conversation: str, _: str | None, word: str) -> None:
        """Exported, and imported as another conversation."""
        lines = [line async for line in write_lines(self._ledger.engine, conversation)]
        path = self._folder / f"{word}.jsonl"
        path.write_text("\n".join(lines), encoding="utf-8")
        said = [json.loads(line).get("message") for line in lines]
        ids = [message["id"] for message in said if message]
        importing = self._ledger.import_file(path, into=f"copy {word}")
        await self._diary.call("import", f"copy {word}", importing, ids=ids)


async def _all_of(ledger: Ledger, conversation: str) -> list[list[str]]:
    messages = await ledger.transcript(conversation, branch="all")
    return [[message.run_id or "", message.id, message.text] for message in messages]
