"""What a ledger tells: transcripts, trees, runs, conversations. Everything here looks, after catching up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import structlog
from msgspec.structs import replace

from ledger.catchup import CatchUp
from ledger.errors import (
    LedgerBehind,
    LedgerDamaged,
    LedgerDiverged,
    UnknownConversation,
    UnknownMedia,
    UnknownMessage,
    UnknownRun,
)  # fmt: skip
from ledger.following import open_runs_of
from ledger.tables.media import get_media
from ledger.tables.tables import Page
from projector import fork_points, load, open_runs
from projector.formats import STREAM_WRITERS, WRITERS, Export, write_stream
from projector.formats.outgoing.metadata import leftovers
from projector.formats.registry import NAMED
from projector.formats.shared.history import Loss
from projector.formats.shared.media_refs import attach, names_of
from stream import CorruptEvent, SnapshotUnreadable
from stream.limits import check_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from ledger.catchup import Caught
    from ledger.following import OpenRun
    from ledger.records import ConversationInfo, RunInfo
    from ledger.tables.tables import LedgerTables
    from projector import ForkPoint, Message, Node, State
    from projector.run_draft import Anomaly
    from stream import EventStore

_LOG: Final = structlog.get_logger("tailfold.ledger")
_BATCH: Final = 500


class Tree(NamedTuple):
    """The messages of a conversation as a tree, in the order of the log; `leaf` is the active one."""

    nodes: list[Node]
    forks: list[ForkPoint]
    leaf: str | None


class Reader:
    """The half of a `Ledger` that changes nothing but the ledger's lag behind its log."""

    def __init__(self, store: EventStore, tables: LedgerTables) -> None:
        self.store = store
        self.tables = tables
        self._catch_up = CatchUp(store, tables)

    async def transcript(
        self,
        conversation: str,
        *,
        branch: Literal["active", "all"] = "active",
        selections: Mapping[str, str] | None = None,
        before: str | None = None,
        limit: int | None = None,
    ) -> list[Message]:
        """The committed messages of the active path in order; with `limit` the last ones, with `before` those ahead of it.

        `selections` are other turns at forks, `{parent: child}` with '' for the root; one that names nothing is passed
        over. `branch="all"` gives every message in the order of the log, also what is left of failed runs. Where events
        are gone that the ledger has not taken in, it gives what there is (`reconcile` tells). Raises `UnknownMessage`
        for a `before` that the conversation does not have.
        """
        if limit is not None and limit < 0:
            raise ValueError(f"limit must be 0 or more, not {limit}")
        if branch not in ("active", "all"):
            raise ValueError(f"{branch!r} is no branch: use 'active' or 'all', or name turns by selections")
        await self._read_up(conversation)
        end = None
        if before is not None:
            end = await self.tables.message(conversation, before)
            if end is None:
                raise UnknownMessage(conversation, before)
        if branch == "all":
            return await self.tables.last(conversation, end, -1 if limit is None else limit)
        return await self._path(conversation, selections or {}, end, limit)

    async def _path(
        self, conversation: str, selections: Mapping[str, str], end: Message | None, limit: int | None
    ) -> list[Message]:
        position = await self.tables.position(conversation)
        if position.orphans:
            path = await self.tables.scattered_path(conversation, selections)
            ids = [message.id for message in path]
            if end is not None and end.id not in ids:  # of another branch: what is ahead of it
                return [] if end.parent_id is None else await self.tables.path(conversation, end.parent_id, limit)
            path = path if end is None else path[: ids.index(end.id)]
            return path[max(0, len(path) - limit) :] if limit is not None else path
        leaf = await self.tables.leaf(conversation, selections) if selections else position.leaf
        leaf = leaf if end is None else end.parent_id
        return [] if leaf is None or limit == 0 else await self.tables.path(conversation, leaf, limit)

    async def export(
        self,
        conversation: str,
        format: str,  # noqa: A002 - the word users know from the command line
        *,
        selections: Mapping[str, str] | None = None,
        messages: Sequence[Message] | None = None,
    ) -> Export:
        """The active path as a provider or program takes it, with what was lost or mended on the way.

        `format` is one of `projector.formats.WRITERS`, or of `STREAM_WRITERS` for what would have been streamed. With
        `messages` it is those of a view that are written (`Ledger.context`). Bytes of media are put in from the store.
        Log and ledger stay as they are. Raises `ValueError` for a format that is none.
        """
        if format not in WRITERS and format not in STREAM_WRITERS:
            raise ValueError(f"{format!r} is no format to export to: use one of {', '.join((*WRITERS, *STREAM_WRITERS))}")
        path = await self.transcript(conversation, selections=selections) if messages is None else messages
        found: dict[str, bytes] = {}
        missing: list[Loss] = []
        own = set(await self.tables.media_of(conversation))  # whoever writes another's name gets nothing of it
        for media_id in names_of(path):
            try:
                if media_id not in own:
                    raise UnknownMedia(media_id)
                found[media_id] = (await get_media(self.tables, media_id)).data
            except (UnknownMedia, LedgerDamaged) as error:
                missing.append(Loss(str(error)))
        whole = [attach(message, found.get) for message in path]
        export = WRITERS[format](whole) if format in WRITERS else write_stream(whole, format)
        name = format.removesuffix("-stream")
        return replace(export, losses=(*missing, *export.losses, *leftovers(whole, NAMED[name])))

    async def tree(self, conversation: str) -> Tree:
        """All messages as a tree, and where it forks."""
        await self._read_up(conversation)
        nodes = await self.tables.nodes(conversation)
        return Tree(nodes, fork_points(nodes), (await self.tables.position(conversation)).leaf)

    async def open_runs(self, conversation: str) -> list[OpenRun]:
        """The runs that have no end, with what they have said so far; nothing of it is committed."""
        return open_runs_of((await self._known(conversation)).state)

    async def anomalies(self, conversation: str) -> list[Anomaly]:
        """The events that could not be applied, as far as the log or a snapshot of it still tells."""
        await self._known(conversation)
        try:
            loaded = await load(open_runs, self.store, self.store.snapshots, conversation)
        except SnapshotUnreadable:
            return []
        return list(loaded.state.anomalies)

    async def runs(self, conversation: str | None = None, *, status: str | None = None) -> AsyncIterator[RunInfo]:
        """Runs by conversation and start, of one conversation or of all; `status` as in `RunInfo`, or `open`."""
        if conversation is not None:
            await self._read_up(conversation)
        else:
            await self.catch_up_all()
        states = _States(self)
        async for run in self.tables.runs(conversation, only_open=status in ("open", "created", "streaming")):
            told = await states.of(run) if run.status == "open" else run
            if status in (None, told.status) or (status == "open" and told.outcome is None):
                yield told

    async def conversations(
        self,
        *,
        after: ConversationInfo | None = None,
        limit: int | None = None,
        prefix: str = "",
        label: str | None = None,
        title: str | None = None,
        archived: bool = False,
    ) -> AsyncIterator[ConversationInfo]:
        """Conversations, newest activity first; the next page is the one `after` the last of this one.

        `prefix` is of the id, `title` a part of the title, `label` one of its labels; with `archived` those, too.
        """
        if limit is not None and limit < 0:
            raise ValueError(f"limit must be 0 or more, not {limit}")
        await self.catch_up_all()
        async for info in self.tables.conversations(Page(after, limit, archived, prefix, label, title)):
            yield info

    async def find_run(self, run_id: str) -> str:
        """The conversation of a run. Raises `UnknownRun`, also where several have one of that id."""
        await self.catch_up_all()
        homes = await self.tables.homes(run_id)
        if len(homes) != 1:
            raise UnknownRun(run_id)
        return homes[0]

    async def catch_up(self, conversation: str) -> Caught:
        """Takes in what is new in the log of a conversation."""
        return await self._catch_up.run(check_id("conversation id", conversation))

    async def catch_up_all(self) -> None:
        """Takes in what is new in every log."""
        heads: dict[str, int] = {}
        async for info in self.store.streams():
            heads[info.stream_id] = info.head
            if len(heads) == _BATCH:
                await self._catch_up_some(heads)
                heads = {}
        await self._catch_up_some(heads)

    async def _catch_up_some(self, heads: Mapping[str, int]) -> None:
        positions = await self.tables.positions(heads)
        for conversation, head in heads.items():
            if head > positions.get(conversation, 0):
                try:
                    await self.catch_up(conversation)
                except (CorruptEvent, LedgerBehind) as error:  # one bad conversation does not bar the others
                    _LOG.error("ledger.behind", conversation=conversation, error=str(error))

    async def _known(self, conversation: str) -> Caught:
        check_id("conversation id", conversation)
        if (await self.store.bounds(conversation)).head == 0:
            raise UnknownConversation(conversation)
        return await self.catch_up(conversation)

    async def _read_up(self, conversation: str) -> None:
        """Catches up as far as it goes: what is committed can be read whatever has become of the log."""
        try:
            await self._known(conversation)
        except (LedgerBehind, LedgerDiverged, CorruptEvent) as error:
            _LOG.error("ledger.behind", conversation=conversation, error=str(error))
        except UnknownConversation:
            if await self.tables.conversation(conversation) is None:
                raise


class _States:
    """How far open runs have come, each conversation looked at once."""

    def __init__(self, ledger: Reader) -> None:
        self._ledger = ledger
        self._states: dict[str, State | None] = {}

    async def of(self, run: RunInfo) -> RunInfo:
        """The run as `created` or `streaming`; as it is where the log does not tell."""
        if run.conversation not in self._states:
            try:
                self._states[run.conversation] = (await self._ledger.catch_up(run.conversation)).state
            except (LedgerBehind, LedgerDiverged, CorruptEvent):
                self._states[run.conversation] = None
        state = self._states[run.conversation]
        draft = None if state is None else state.open.get(run.run_id)
        return run if draft is None else replace(run, status="streaming" if draft.is_streaming else "created")
