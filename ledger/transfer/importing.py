"""Takes in conversations that others have kept: histories, and what providers streamed, each once.

Ids are derived from the conversation and the place in it, so that what is there already is known again: the same file
adds nothing, one that has grown adds what is new. Runs are appended whole, many at once, under `expected_seq`; one that
is too large for one append goes by its producer, whose watermark tells where a broken import goes on.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from ledger.errors import ImportDiffers
from ledger.kinds import check_conversation_id
from ledger.tables.media import put_media
from ledger.transfer.adapted import read_back
from ledger.transfer.encoded import encode_bodies
from ledger.transfer.growth import adds, is_newer, is_part, is_same
from projector import events as ev
from projector.events import to_event
from projector.formats.shared.history import BEFORE, hang, is_left_out, run_id_of, run_of, split_runs
from projector.json_text import join_fields, raw
from projector.validation import validate
from stream import NewEvent, Producer, SeqConflict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ledger.engine import Engine
    from ledger.records import RunInfo
    from ledger.transfer.adapted import Stream
    from ledger.transfer.archive import Kept
    from ledger.transfer.encoded import Encoded
    from ledger.transfer.recorded import Recorded
    from projector import Message
    from projector.formats.shared.history import History, HistoryMessage
    from projector.message import Block
    from stream.limits import Limits

_PAGE_EVENTS: Final = 1000
_PAGE_BYTES: Final = 1024 * 1024


class ImportResult(NamedTuple):
    """What became of a conversation: runs and events that were added, messages that were there, where it ends."""

    runs: int
    events: int
    known: int
    head: int


async def import_history(
    ledger: Engine, conversation: str, recorded: Recorded, advance: Callable[[int], object] = lambda _: None
) -> ImportResult:
    """Records what a file holds of a conversation; `advance` hears how many events were stored.

    Safe to repeat, and beside others that write. A history begins at the root: beside what is there, if that is
    something else. Raises `ImportDiffers` where a run of the same id says something else, `InvalidEvent`.
    """
    check_conversation_id(conversation)
    runs = events = 0
    while True:
        intake = _Intake(ledger, conversation, advance)
        try:
            await intake.take(recorded)
        except (SeqConflict, _Overtaken):  # somebody wrote meanwhile: what is there by now is known the next time
            continue
        finally:
            runs, events = runs + intake.runs, events + intake.events
        caught = await ledger.catch_up(conversation)
        if 0 < intake.head <= caught.bounds.origin:  # it was erased meanwhile
            runs = events = 0
            continue
        return ImportResult(runs, events, intake.known, caught.bounds.head)


class _Overtaken(Exception):
    """Another import of the same is under way, or was broken off: look again at what is there."""


class _Intake:
    def __init__(self, ledger: Engine, conversation: str, advance: Callable[[int], object]) -> None:
        self._ledger = ledger
        self._conversation = conversation
        self._advance = advance
        limits = ledger.store.limits
        self._page_events = min(_PAGE_EVENTS, limits.append_events)
        self._page_bytes = _page_bytes(limits)
        self._part_bytes = limits.append_bytes if self._page_bytes == _PAGE_BYTES else 2 * self._page_bytes
        self._page: list[NewEvent] = []
        self._page_runs = 0
        self._size_bytes = 0
        self.head = 0
        self._is_new = True
        self._is_beside = False
        self.runs = self.events = self.known = 0

    async def take(self, recorded: Recorded) -> None:
        caught = await self._ledger.catch_up(self._conversation)
        self.head, self._is_new = caught.bounds.head, caught.bounds.head == 0
        if self._is_new:
            self._add(to_event(recorded.created))
        if recorded.kept is not None:
            await self._take_kept(recorded.kept)
        if recorded.history is not None:
            await self._take_history(recorded.history, recorded.kept_answers)
        for answer in recorded.answers:
            await self._take_stream(answer, None)
        await self._flush()

    async def _take_kept(self, kept: Kept) -> None:
        """All that was kept of a conversation, under the ids that it had."""
        tables = self._ledger.tables
        there = set() if self._is_new else set(await tables.media_of(self._conversation))
        for media_id, media_type, data in kept.media:
            if media_id not in there:
                await put_media(tables, self._conversation, data, media_type)
                await self._note(to_event(ev.MediaAdded(media_id, media_type, len(data))))
        for run in kept.runs:
            if await self._has_ended(run.run_id):
                known = {message.id: message for message, _ in await self._messages(run.run_id)}
                self._require_same(read_back(encode_bodies(run.bodies)), known)
                self.known += len(known)
            else:
                await self._add_run(run.run_id, encode_bodies(run.bodies))
        chosen = [] if self._is_new else [to_event(choice) for _, choice in await tables.choices(self._conversation)]
        for event in map(to_event, kept.choices):
            if event not in chosen:
                await self._note(event)
        if self._is_new and kept.is_archived:
            self._add(to_event(ev.ConversationArchived(archived=True)))
        await self._flush()
        await self._ledger.catch_up(self._conversation)
        if kept.leaf is not None and (await tables.position(self._conversation)).leaf != kept.leaf:
            self._add(to_event(ev.BranchSelected(kept.leaf)))

    async def _take_history(self, history: History, answers: Mapping[int, Stream]) -> None:
        """Its runs, and those of the answers that are kept as they came."""
        drafts = hang(history.drafts)
        ids: list[str] = []
        minted: dict[str, str] = {}
        for first, own in split_runs(drafts):
            parent = (ids[-1] if ids else None) if own[0].parent == BEFORE else own[0].parent
            behind = ids[parent] if isinstance(parent, int) else parent
            answer = answers.get(first)
            if answer is None:
                is_last = first + len(own) == len(drafts)
                await self._take_run(first, _told(own, minted), behind, ids, is_last=is_last)
                continue
            run_id = minted[answer.stand_in] = await self._take_stream(answer, behind)
            last = next(reversed([message.id for message in answer.messages()]), None)
            ids.append("" if last is None else last.replace(answer.stand_in, run_id))

    async def _take_run(
        self, first: int, drafts: Sequence[HistoryMessage], parent: str | None, ids: list[str], *, is_last: bool
    ) -> None:
        """A run, or what a file that has grown adds to it, which is a run of its own."""
        tried = 0
        ahead: Message | None = None
        while True:
            key = f"{first} again {tried}" if tried else first
            made = run_of(run_id_of(self._conversation, key), parent, drafts)
            if not await self._has_ended(made.run_id):
                ids += made.message_ids
                await self._add_run(made.run_id, encode_bodies(made.bodies))
                return
            there = {message.id: message for message, _ in await self._messages(made.run_id)}
            taken = next((at + 1 for at in reversed(range(len(drafts))) if made.message_ids[at] in there), 0)
            said = read_back(encode_bodies(run_of(made.run_id, parent, drafts[:taken]).bodies)) if taken else {}
            last = made.message_ids[taken - 1] if taken else ""
            if taken and last in said and is_part(there[last], said[last]):  # it was not whole: the whole one supersedes it
                taken -= 1
                del said[last], there[last]
            elif all(map(is_left_out, drafts[taken:])):
                taken = len(drafts)
            same = self._same(made.message_ids[:taken], said, there)
            held, told = ([each[at] for at in made.message_ids[same:taken] if at in each] for each in (there, said))
            if is_last and held and told and is_newer(held, told, said.get(made.message_ids[same - 1]) if same else ahead):
                said = {at: said[at] for at in made.message_ids[:same] if at in said}
                taken = same
            if not taken:  # or somebody has ended the run without a message
                tried += 1
                continue
            self._require_same(said, there)
            await self._annotate(said, there)
            self.known += len(there)
            ids += made.message_ids[:taken]
            standing = [at for at in range(taken) if not is_left_out(drafts[at])]
            parent = made.message_ids[standing[-1]] if standing else parent
            ahead = said.get(made.message_ids[taken - 1], ahead)
            first, drafts, tried = first + taken, drafts[taken:], 0
            if not drafts:
                return

    async def _take_stream(self, stream: Stream, parent: str | None) -> str:
        """Its run, whose id is given; of a recording that goes on where the one that is there broke off, another one."""
        tried = 0
        while True:
            key = f"stream {stream.key} again {tried}" if tried else f"stream {stream.key}"
            run_id = run_id_of(self._conversation, key)
            tried += 1
            if not await self._has_ended(run_id):
                await self._add_run(run_id, stream.run_of(run_id, parent))
                return run_id
            there = {message.id: message for message, _ in await self._messages(run_id)}
            said = read_back(stream.run_of(run_id, parent))
            grown = {at for at, message in said.items() if at not in there or is_part(there[at], message)}
            if not grown or not there.keys() <= said.keys():
                self._require_same(said, there)
                self.known += len(there)
                return run_id
            self._require_same({at: message for at, message in said.items() if at not in grown}, there)

    async def _messages(self, run_id: str) -> list[tuple[Message, bool]]:
        return await self._ledger.tables.messages_of(self._conversation, run_id)

    async def _has_ended(self, run_id: str) -> bool:
        run = None if self._is_new else await self._ledger.tables.run(self._conversation, run_id)
        return run is not None and not self._is_without_end(run)

    @staticmethod
    def _is_without_end(run: RunInfo) -> bool:
        return run.outcome is None and run.recovered is None

    @staticmethod
    def _same(ids: Sequence[str], said: dict[str, Message], there: dict[str, Message]) -> int:
        """How many messages are there as the file says, or with more of it."""
        for count, at in enumerate(ids):
            if at in there and at in said and not (is_same(said[at], there[at]) or is_part(said[at], there[at])):
                return count
        return len(ids)

    def _require_same(self, said: dict[str, Message], there: dict[str, Message]) -> None:
        """Raises `ImportDiffers` unless the ledger holds of a run what the file says, or more of it."""
        for message_id, message in said.items():
            held = there.get(message_id)
            if held is not None and not is_same(message, held) and not is_part(message, held):
                raise ImportDiffers(self._conversation, message_id)

    async def _annotate(self, said: dict[str, Message], there: dict[str, Message]) -> None:
        """What a file that has grown notes of messages that are there."""
        for message_id, message in said.items():
            held = there.get(message_id)
            new = (
                {}
                if held is None
                else {n: text for n, text in message.metadata_text.items() if adds(held.metadata_text.get(n), text)}
            )
            if new:
                await self._note(to_event(ev.MessageAnnotated(message_id, raw(join_fields(new)))))

    async def _add_run(self, run_id: str, encoded: Iterable[Encoded]) -> None:
        """A run as part of a page, or where it is longer than that, or has begun already, by its own producer."""
        events: list[NewEvent] = []
        size_bytes = 0
        run = None if self._is_new else await self._ledger.tables.run(self._conversation, run_id)
        number = None if run is None else 0
        for event, media in encoded:
            if media is not None:
                await put_media(self._ledger.tables, self._conversation, media.data, media.media_type)
            if events and size_bytes + len(event.data) > self._part_bytes:
                number = await self._append_part(run_id, number or 0, events)
                events, size_bytes = [], 0
            events.append(event)
            if media is not None:
                continue
            size_bytes += len(event.data)
            if len(events) >= self._page_events or size_bytes >= self._page_bytes:
                number = await self._append_part(run_id, number or 0, events)
                events, size_bytes = [], 0
        if number is not None:
            await self._append_part(run_id, number, events)
            if self._is_beside:  # another import of the same stored a part of it: what comes next may be there, too
                raise _Overtaken
        else:
            if len(self._page) + len(events) > self._page_events or self._size_bytes + size_bytes > self._page_bytes:
                await self._flush()
            for event in events:
                self._add(event)
            self._page_runs += 1
            return
        self.runs += 1

    async def _append_part(self, run_id: str, number: int, events: list[NewEvent]) -> int:
        """A part of a long run, which is there already if a broken import stored it; gives the number of the next."""
        if not events:
            return number
        await self._flush()
        validate(events)
        result = await self._ledger.store.append(self._conversation, events, producer=Producer(run_id, 0, number))
        if result.duplicate:
            self._is_beside = True
        else:
            self._count(len(events))
            self.head = result.last_seq
        return number + 1

    async def _note(self, event: NewEvent) -> None:
        """Adds what is of no run."""
        if len(self._page) >= self._page_events or self._size_bytes + len(event.data) > self._page_bytes:
            await self._flush()
        self._add(event)

    def _add(self, event: NewEvent) -> None:
        self._page.append(event)
        self._size_bytes += len(event.data)

    async def _flush(self) -> None:
        if not self._page:
            return
        validate(self._page)
        # the name is of this append alone: what another import of the same has stored is a conflict, and then known
        name = f"import-{secrets.token_hex(16)}"
        result = await self._ledger.store.append(self._conversation, self._page, expected_seq=self.head, append_id=name)
        self.head = result.last_seq
        self.runs += self._page_runs
        self._count(len(self._page))
        self._page, self._page_runs, self._size_bytes = [], 0, 0

    def _count(self, events: int) -> None:
        self.events += events
        self._advance(events)


def _page_bytes(limits: Limits) -> int:
    """A power of two, so that limits a little beside each other cut a long run alike: its repeat must be cut as it was."""
    return min(_PAGE_BYTES, 1 << (limits.append_bytes // 2).bit_length() - 1)


def _told(drafts: Sequence[HistoryMessage], minted: Mapping[str, str]) -> Sequence[HistoryMessage]:
    """The drafts, whose calls are those of answers before them: by the id that was given to the run of each."""
    return (
        [replace(draft, blocks=tuple(_called(block, minted) for block in draft.blocks)) for draft in drafts]
        if minted
        else drafts
    )


def _called(block: Block, minted: Mapping[str, str]) -> Block:
    call = block.tool_call_id or ""
    stand_in = next((each for each in minted if each in call), None)
    return block if stand_in is None else replace(block, tool_call_id=call.replace(stand_in, minted[stand_in]))
