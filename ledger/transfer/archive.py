"""A conversation as its messages, for `export --format tailfold-messages`: all branches, runs, media, what was recorded.

It holds what the ledger keeps, also where the log is gone, and it comes back the same: one JSON object a line, a header,
media, then each run with its messages in order, then what was chosen. Values of metadata are JSON text in text. Seqs and
times of events are those of the log only.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import itertools
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import msgspec
from msgspec.structs import replace

from ledger.errors import LedgerError, UnknownConversation
from ledger.tables.choices import without_redacted
from ledger.tables.media import get_media
from ledger.transcript import read_tree
from projector import events as ev
from projector.formats.format import FormatError
from projector.formats.shared.fields import Fields, lines_of
from projector.formats.shared.history import HistoryMessage, Loss, message_bodies, usage_body
from projector.formats.shared.media_refs import Attachment
from projector.json_text import InvalidJson, decode, dump, encode, join_fields, raw
from projector.message import Message
from projector.run_draft import Usage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from ledger.engine import Engine
    from ledger.records import RunInfo
    from ledger.tables.conversations import Position

VERSION: Final = 1
HEADER: Final = "tailfold_messages"
_RUN: Final = ("run_id", "parent_message_id", "trigger", "model", "provider", "outcome", "recovered", "finish_reason", "error",
               "started_at", "usage")  # fmt: skip


class KeptRun(NamedTuple):
    """A run as the events that make it again."""

    run_id: str
    bodies: tuple[ev.Body, ...]


class Kept(NamedTuple):
    """A conversation of such a file."""

    conversation: str
    created: ev.ConversationCreated
    is_archived: bool
    media: tuple[Attachment, ...]
    runs: tuple[KeptRun, ...]
    choices: tuple[ev.Choice, ...]
    leaf: str | None


async def write_lines(ledger: Engine, conversation: str, losses: list[Loss] | None = None) -> AsyncIterator[str]:
    """The lines of a conversation as it was at one moment. The same conversation gives the same lines.

    What they have no place for is told in `losses`: runs that are open, and fields of events that this version does not
    know. Raises `UnknownConversation`, and `LedgerError` where it was erased in the meantime.
    """
    tables = ledger.tables
    before = await tables.position(conversation)
    leaf = (await read_tree(ledger, conversation)).leaf
    seen = (await tables.position(conversation)).projected_seq
    info = await tables.conversation(conversation)
    if info is None:
        raise UnknownConversation(conversation)
    header = {HEADER: VERSION, "conversation": conversation, "title": info.title, "archived": info.archived}
    fields = {name: dump(value) for name, value in header.items()}
    yield join_fields(fields | ({"metadata": dump(info.metadata_text)} if info.metadata_text else {}))
    for media_id in await tables.media_of(conversation):
        media = await get_media(tables, media_id)
        data = base64.b64encode(media.data).decode()
        yield dump({"media": media_id, "media_type": media.media_type, "data_base64": data})
    lost = losses if losses is not None else []
    async for run in tables.runs(conversation):
        if run.outcome is None or (run.end_seq or 0) > seen:  # what hangs on it is left out, too
            lost.append(Loss(f"run {run.run_id}, which is open: end it with `tailfold recover` first"))
            continue
        messages = [message for message, _ in await tables.messages_of(conversation, run.run_id)]
        yield _run_line(run, messages)
        for message in messages:
            if message.unknown:
                lost.append(Loss("fields that this version does not know", message.id))
            yield f'{{"message":{encode(replace(message, seq=0, unknown=())).decode()}}}'
    for seq, choice in await tables.look(lambda sql: without_redacted(sql, conversation)):
        if seq <= seen:
            yield f'{{"choice":{dump(choice.TYPE)},"body":{encode(choice).decode()}}}'
    _require_same(conversation, before, await tables.position(conversation))
    if leaf is not None:
        yield dump({"leaf": leaf})


def _require_same(conversation: str, before: Position, now: Position) -> None:
    if (now.rewound, now.erased) != (before.rewound, before.erased):
        raise LedgerError(f"conversation {conversation!r} was erased or put back while it was read: read it again")


def read_lines(text: str) -> Iterator[Kept]:
    """The conversations of a file. Raises `FormatError` with the line and what was expected, behind those that are whole."""
    reading: _Reading | None = None
    for line, place in lines_of(text):
        fields = Fields(line, place)
        if HEADER in fields:
            if reading is not None:
                yield reading.kept()
            reading = _Reading(fields)
        elif reading is None:
            raise fields.wrong(f'a header was expected first: {{"{HEADER}": {VERSION}, "conversation": …}}')
        else:
            reading.take(fields)
    if reading is None:
        raise FormatError("the file is empty")
    yield reading.kept()


def read_lines_left(text: str, skip: Callable[[FormatError], object]) -> Iterator[Kept]:
    """The conversations of a file but those that are broken, which go to `skip`. Raises `FormatError` for no conversation."""
    lines = text.removeprefix("\ufeff").split("\n")
    heads = [at for at, line in enumerate(lines) if line.lstrip().startswith(f'{{"{HEADER}"')]
    found = 0
    for first, behind in itertools.pairwise([*heads, len(lines)]):
        own = [*[""] * first, *lines[first:behind]]  # so that errors tell the line of the file
        try:
            kept = list(read_lines("\n".join(own)))
        except FormatError as error:
            skip(error)
            continue
        found += 1
        yield from kept
    if not found:
        raise FormatError("no conversation of it can be read")


def _run_line(run: RunInfo, messages: list[Message]) -> str:
    seqs = [message.seq for message in messages]
    said: dict[str, Any] = msgspec.to_builtins(run)
    told = {name: said[name] for name in _RUN if said[name] not in (None, {})}
    return dump({"run": told, "prompts": [bisect_left(seqs, prompt) for prompt in run.prompts]})


class _Reading:
    """One conversation on its way in."""

    def __init__(self, header: Fields) -> None:
        if header.whole(HEADER) != VERSION:
            raise header.wrong(f"its version is {header.raw(HEADER)}, this one knows {VERSION}: upgrade Tailfold")
        self._conversation = header.text("conversation")
        metadata: dict[str, str] = _convert(header, "metadata", dict[str, str]) if "metadata" in header else {}
        self._created = ev.ConversationCreated(header.maybe_text("title"), raw(join_fields(metadata) if metadata else None))
        self._is_archived = header.is_true("archived")
        self._media: list[Attachment] = []
        self._runs: list[KeptRun] = []
        self._choices: list[ev.Choice] = []
        self._leaf: str | None = None
        self._run: tuple[Fields, list[int]] | None = None
        self._messages: list[Message] = []

    def take(self, fields: Fields) -> None:
        if "message" in fields:
            if self._run is None:
                raise fields.wrong("a run was expected before its messages")
            self._messages.append(_convert(fields, "message", Message))
        elif "run" in fields:
            self._end_run()
            prompts = [int(text) for text, _ in fields.items("prompts") if text.isdigit()]
            self._run = fields.need("run"), prompts
        elif "media" in fields:
            self._media.append(_attachment(fields))
        elif "choice" in fields:
            self._choices.append(_choice(fields))
        elif "leaf" in fields:
            self._leaf = fields.text("leaf")
        else:
            raise fields.wrong("a run, a message, media, a choice or the leaf was expected")

    def kept(self) -> Kept:
        self._end_run()
        return Kept(
            self._conversation,
            self._created,
            self._is_archived,
            tuple(self._media),
            tuple(self._runs),
            tuple(self._choices),
            self._leaf,
        )

    def _end_run(self) -> None:
        if self._run is not None:
            run, prompts = self._run
            self._runs.append(KeptRun(run.text("run_id"), tuple(_bodies(run, prompts, self._messages))))
        self._run, self._messages = None, []


def _bodies(run: Fields, prompts: list[int], messages: list[Message]) -> Iterator[ev.Body]:
    run_id = run.text("run_id")
    yield ev.RunStarted(
        run_id,
        run.maybe_text("parent_message_id"),
        run.text("trigger"),
        run_id,
        run.maybe_text("model"),
        run.maybe_text("provider"),
        run.whole("started_at"),
    )
    step = 0
    for at in range(len(messages) + 1):
        for _ in range(prompts.count(at)):
            step += 1
            yield ev.RunStep(run_id, step, "started")
        if at < len(messages):
            yield from _message_bodies(run_id, messages[at])
    for request, used in _convert(run, "usage", dict[str, Usage]).items() if "usage" in run else ():
        yield usage_body(run_id, request, used)
    recovered, outcome = run.maybe_text("recovered"), run.text("outcome")
    if recovered is not None:
        yield ev.RunRecovered(run_id, cast("ev.Action", recovered), 0)
    else:
        yield ev.RunFinished(run_id, cast("ev.Outcome", outcome), run.maybe_text("finish_reason"), raw(run.maybe_text("error")))


def _message_bodies(run_id: str, message: Message) -> Iterator[ev.Body]:
    draft = HistoryMessage(
        message.role,
        message.blocks,
        status=message.status,
        name=message.name,
        provider_ref=message.provider_ref,
        created_at=message.created_at,
        metadata=message.metadata_text,
    )
    return message_bodies(run_id, message.id, draft, [block.number for block in message.blocks])


def _attachment(fields: Fields) -> Attachment:
    try:
        data = base64.b64decode(fields.text("data_base64"), validate=True)
    except (binascii.Error, ValueError) as error:
        raise fields.wrong(f"data_base64 is no base64 ({error})") from error
    media_id = fields.text("media")
    if hashlib.sha256(data).hexdigest() != media_id:
        raise fields.wrong(f"the bytes are not those of media {media_id!r}: its SHA-256 is another one")
    return Attachment(media_id, fields.text("media_type"), data)


def _choice(fields: Fields) -> ev.Choice:
    kind = fields.text("choice")
    shape = ev.BODIES.get(kind)
    if shape not in (ev.ContextCompacted, ev.ContextExpanded, ev.ProviderSessionChanged):
        raise fields.wrong(f"{kind!r} is nothing that is chosen")
    made: ev.Choice = _convert(fields, "body", shape)
    return made


def _convert(fields: Fields, name: str, kind: Any) -> Any:
    try:
        return decode(fields.raw(name) or "null", kind)
    except InvalidJson as error:
        raise fields.wrong(f'"{name}" does not fit: {error}') from error
