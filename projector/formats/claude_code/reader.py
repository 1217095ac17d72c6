"""Claude Code: session logs as trees of messages, sidechains as conversations of their own, and the CLI's stream-json.

Records hang on each other by `parentUuid`. One model response may be several records, and parallel results hang on
the record of their call, which is no fork: calls and results stay one group. Only records with a `uuid` are messages.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from projector.formats.claude_code.parts import PROVIDER, assistant_blocks, require_content, results_of, usage_of, user_blocks
from projector.formats.claude_code.stream_json import is_stream, read_stream
from projector.formats.format import FormatError
from projector.formats.shared.fields import Fields, items_of, lines_of
from projector.formats.shared.history import History, HistoryMessage, Loss
from projector.formats.shared.parents import behind_parents
from projector.json_text import JsonText, decode, dump, join_fields

if TYPE_CHECKING:
    from collections.abc import Iterator

_EXPECTED: Final = 'a record of Claude Code was expected: an object with "type" and "uuid" or "sessionId"'
_UNNAMED: Final = ("summary", "file-history-snapshot", "queue-operation")  # the types without a uuid
_SAME: Final = ("cwd", "sessionId", "version", "gitBranch", "userType", "agentId", "slug")  # the same in most records
_PLACED: Final = ("type", "message", "parentUuid", "isSidechain", "timestamp", "toolUseResult")
_IN_MESSAGE: Final = ("id", "type", "role", "model", "content", "stop_reason", "usage")


def read(text: str) -> Iterator[History]:
    """The conversations of a session log or of the output of `--output-format stream-json`.

    Raises `FormatError` with the line and what was expected, behind the conversations as far as they could be read.
    """
    records = _records_of(text)
    first = next(records, None)
    if first is None:
        raise FormatError(f"the file is empty: {_EXPECTED}")
    yield from (read_stream if is_stream(first) else _read_session)(chain([first], records))


def _records_of(text: str) -> Iterator[Fields]:
    """The records: one a line, or a JSON list of them."""
    if (lines := _log_lines(text)) is not None:
        return iter(lines)
    if text.lstrip("\ufeff \t\r\n")[:1] == "[":
        items = items_of(text.removeprefix("\ufeff"), "the document")
        return (Fields(item, f"record {number}") for number, item in enumerate(items, 1))
    return (Fields(line, place) for line, place in lines_of(text))


def _log_lines(text: str) -> list[Fields] | None:
    """The records of a session that was kept as one document: a line of them, without ids."""
    try:
        document = Fields(text.removeprefix("\ufeff"), "the document")
    except FormatError:
        return None
    if "loglines" not in document:
        return None
    found: list[Fields] = []
    before = None
    for number, record in enumerate(document.objects("loglines"), 1):
        own = record.maybe_text("uuid") or f"line-{number}"
        said = {"uuid": dump(own), "parentUuid": dump(before)} | record.rest()
        found.append(Fields(join_fields(said), record.place))
        before = own if record.maybe_text("type") in ("user", "assistant") else before
    return found


def _read_session(given: Iterator[Fields]) -> Iterator[History]:
    log = _Log()
    records: list[Fields] = []
    broken: FormatError | None = None
    try:
        records.extend(_checked(given))
    except FormatError as error:
        if not records:
            raise
        broken = error
    log.linear = _linear_sessions(records)
    for record in behind_parents(records, "uuid", "parentUuid", "logicalParentUuid"):
        try:
            log.take(record)
        except FormatError as error:
            broken = error
            break
    yield from log.histories()
    if broken is not None:
        raise broken


def _checked(records: Iterator[Fields]) -> Iterator[Fields]:
    for record in records:
        kind = record.maybe_text("type")
        if kind is None or not ("uuid" in record or "sessionId" in record or kind in _UNNAMED):
            raise record.wrong(f"{_EXPECTED}, not one with {sorted(record.names())[:8]}")
        yield record


def _linear_sessions(records: list[Fields]) -> set[str]:
    """Sessions in which answers have no parent either: there a missing parent means the record before."""
    begun: set[str] = set()
    linear: set[str] = set()
    for record in records:
        session = record.maybe_text("sessionId") or ""
        is_answer = record.text("type") == "assistant" or "toolUseResult" in record
        if session in begun and is_answer and not _parent(record) and not record.is_true("isSidechain"):
            linear.add(session)
        if "message" in record:
            begun.add(session)
    return linear


class _Thread:
    """A conversation: that of a session, or one of its sidechains."""

    def __init__(self, name: str, first: Fields, *, is_sidechain: bool) -> None:
        self.name = name
        self.is_sidechain = is_sidechain
        self.drafts: list[HistoryMessage] = []
        self.responses: dict[str, int] = {}  # the draft of each response, by the id it had at its provider
        self.ends: dict[int, int] = {}  # of a response, its last result so far
        self.groups: dict[int, int] = {}  # of a result, the response that called
        self.same = {field: record for field in _SAME if (record := first.raw(field)) is not None}
        self.metadata = dict(self.same) | ({"isSidechain": "true"} if is_sidechain else {})
        self.summaries: list[str] = []
        self.system: dict[int | None, list[JsonText]] = {}
        self.losses: list[Loss] = []

    def behind(self, at: int | None) -> int | None:
        """Where a message hangs whose parent stands at `at`: behind all results of a group."""
        if at is None:
            return None
        response = self.groups.get(at, at)
        return self.ends.get(response, at)

    def add(self, draft: HistoryMessage, at: int | None) -> int:
        self.drafts.append(replace(draft, parent=self.behind(at)))
        return len(self.drafts) - 1

    def add_result(self, draft: HistoryMessage, at: int | None) -> int:
        number = self.add(draft, at)
        if at is not None:
            response = self.groups.get(at, at)
            if any(block.tool_call_id == draft.blocks[0].tool_call_id for block in self.drafts[response].blocks):
                self.groups[number] = response
                self.ends[response] = number
        return number

    def history(self) -> History:
        drafts = list(self.drafts)
        for at, notes in self.system.items():
            told = f"[{','.join(notes)}]"
            if at is None:
                self.metadata["system"] = told
            else:
                drafts[at] = replace(drafts[at], metadata=drafts[at].metadata | {"system": told})
        if len(self.summaries) > 1:
            self.metadata["summaries"] = dump(self.summaries)
        title = self.summaries[-1] if self.summaries else None
        return History(tuple(drafts), self.name or None, title, self.metadata, tuple(self.losses))


class _Log:
    """The records of a file, taken in one by one."""

    def __init__(self) -> None:
        self.linear: set[str] = set()
        self._threads: dict[str, _Thread] = {}
        self._at: dict[str, tuple[_Thread, int | None]] = {}  # of a record, its conversation and its message
        self._left: dict[str, int] = {}
        self._lost_summaries = 0

    def take(self, record: Fields) -> None:
        kind, uuid = record.text("type"), record.maybe_text("uuid")
        if kind == "summary":
            self._summarize(record)
        elif uuid is None or uuid in self._at:
            self._leave(kind if uuid is None else f"{kind} (there twice)")
        elif kind not in ("user", "assistant"):
            self._pass(record, kind, uuid)
        else:
            thread, at = self._place(record, uuid)
            message = record.need("message")
            require_content(message)
            number = self._ask(thread, record, message, at) if kind == "user" else _answer(thread, record, message, at)
            self._at[uuid] = thread, number

    def histories(self) -> list[History]:
        threads = sorted((thread for thread in self._threads.values() if thread.drafts), key=lambda thread: thread.is_sidechain)
        if threads:
            left = [f"{count} records of type {kind} are no messages" for kind, count in self._left.items()]
            if self._lost_summaries:
                left.append(f"{self._lost_summaries} summaries are of messages that are not in this file")
            threads[0].losses += [Loss(what) for what in left]
        return [thread.history() for thread in threads]

    def _ask(self, thread: _Thread, record: Fields, message: Fields, at: int | None) -> int | None:
        """A user's record: results of tools, each a message, and what the user says."""
        content, time, metadata = message.raw("content") or '""', record.time("timestamp"), _metadata(thread, record, message)
        results = results_of(content, record.place)
        for number, result in enumerate(results):
            own = metadata | _other_form(record, result) if number == 0 else {}
            at = thread.add_result(replace(result, created_at=time, metadata=own), at)
        blocks = user_blocks(content, record.place)
        if blocks or not results:
            at = thread.add(HistoryMessage("user", blocks, created_at=time, metadata={} if results else metadata), at)
        return at

    def _place(self, record: Fields, uuid: str) -> tuple[_Thread, int | None]:
        parent, session = _parent(record), record.maybe_text("sessionId") or ""
        is_sidechain = record.is_true("isSidechain")
        known = self._at.get(parent) if parent else None
        if known is not None and known[0].is_sidechain == is_sidechain:
            return known
        name = f"{session}/{record.maybe_text('agentId') or uuid}" if is_sidechain else session
        is_new = name not in self._threads
        thread = self._threads.setdefault(name, _Thread(name, record, is_sidechain=is_sidechain))
        if known is not None and is_new:
            thread.metadata["parentUuid"] = dump(parent)
        elif parent and known is None:
            thread.losses.append(Loss(f"{record.place}: the record it hangs on ({parent}) is not in this file"))
        is_linear = not parent and not is_sidechain and session in self.linear
        return thread, len(thread.drafts) - 1 if is_linear and thread.drafts else None

    def _pass(self, record: Fields, kind: str, uuid: str) -> None:
        """A record that is no message: what hangs on it hangs on its parent."""
        thread, at = self._place(record, uuid)
        self._at[uuid] = thread, at
        if kind == "system":
            thread.system.setdefault(at, []).append(record.source)
        else:
            self._leave(kind)

    def _summarize(self, record: Fields) -> None:
        known = self._at.get(record.maybe_text("leafUuid") or "")
        if known is None:
            self._lost_summaries += 1
        else:
            known[0].summaries.append(record.text("summary"))

    def _leave(self, kind: str) -> None:
        self._left[kind] = self._left.get(kind, 0) + 1


def _answer(thread: _Thread, record: Fields, message: Fields, at: int | None) -> int:
    """A record of a response: a message, or more blocks of one."""
    blocks = assistant_blocks(message.raw("content") or "[]", record.place)
    ref, usage = message.maybe_text("id"), usage_of(message.object("usage"))
    metadata = _metadata(thread, record, message)
    known = thread.responses.get(ref) if ref else None
    if known is not None and (at is None or thread.groups.get(at, at) == known):
        old = thread.drafts[known]
        uuids = f"[{old.metadata.get('uuids', '[]')[1:-1] or old.metadata['uuid']},{metadata['uuid']}]"
        thread.drafts[known] = replace(
            old,
            blocks=old.blocks + blocks,
            usage=usage or old.usage,
            finish_reason=message.maybe_text("stop_reason") or old.finish_reason,
            metadata=metadata | old.metadata | {"uuids": uuids},
        )
        return known
    failed = record.is_true("isApiErrorMessage")
    model = message.maybe_text("model")
    draft = HistoryMessage(
        "assistant",
        blocks,
        provider_ref=ref,
        created_at=record.time("timestamp"),
        metadata=metadata,
        usage=usage,
        model=model,
        provider=PROVIDER if model else None,
        ends_run="failed" if failed else None,
        finish_reason=message.maybe_text("stop_reason"),
        error=dump({"message": "".join(block.text for block in blocks)}) if failed else None,
    )
    number = thread.add(draft, at)
    if ref:
        thread.responses[ref] = number
    return number


def _parent(record: Fields) -> str | None:
    return record.maybe_text("parentUuid") or record.maybe_text("logicalParentUuid")


def _metadata(thread: _Thread, record: Fields, message: Fields) -> dict[str, JsonText]:
    own = record.rest(*_PLACED).items()
    return {name: text for name, text in own if thread.same.get(name) != text} | message.rest(*_IN_MESSAGE)


def _other_form(record: Fields, result: HistoryMessage) -> dict[str, JsonText]:
    """The structured form of a result; where it is only the same text once more it is left out."""
    form = record.raw("toolUseResult")
    if form is None:
        return {}
    if form.startswith('"'):
        text = record.text("toolUseResult")
        parts = decode(result.blocks[0].parts or "[]")
        if parts in ([{"kind": "text", "text": said}] for said in (text, text.removeprefix("Error: "))):
            return {}
    return {"toolUseResult": form}
