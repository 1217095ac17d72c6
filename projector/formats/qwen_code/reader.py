"""Sessions of Qwen Code: a tree of records, each with a message of Gemini's interface or with what the program noted.

What is taken back stays as a branch. Compressions, commands and other notes change nothing that was said; they are kept
with the message they follow. Source: `chatRecordingService.ts` of `QwenLM/qwen-code`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from projector.formats.format import FormatError
from projector.formats.qwen_code.parts import answer_blocks, result_of, usage_of, user_block
from projector.formats.shared.fields import Fields, items_of, lines_of
from projector.formats.shared.history import History, HistoryMessage, Loss, is_left_out
from projector.formats.shared.parents import behind_parents
from projector.json_text import dump

if TYPE_CHECKING:
    from collections.abc import Iterator

    from projector.json_text import JsonText
    from projector.message import Block

_EXPECTED: Final = (
    'a record of Qwen Code was expected: an object with "uuid", "sessionId" and "type"; one of the type "user", '
    '"assistant" or "tool_result" has a "message" with "parts"'
)
_MESSAGES: Final = ("user", "assistant", "tool_result")
_ROLES: Final = {"user": ("user",), "tool_result": ("user",), "assistant": ("model", "assistant")}
_SAME: Final = ("cwd", "sessionId", "version", "gitBranch", "agentId", "agentName")  # the same in most records
_PLACED: Final = ("type", "message", "parentUuid", "isSidechain", "timestamp", "toolCallResult", "model", "usageMetadata")
_COUNTED: Final = ("ui_telemetry", "attribution_snapshot", "file_history_snapshot")
"""Notes about what stands in the messages too, or outside the session; there are many, and only their number is told."""


def read(text: str) -> Iterator[History]:
    """The conversation of each session in a file, and one for each subagent.

    Raises `FormatError` with the line and what was expected, behind the conversations as far as they could be read.
    """
    records: list[Fields] = []
    broken: FormatError | None = None
    try:
        records.extend(map(_checked, _records_of(text)))
    except FormatError as error:
        if not records:
            raise
        broken = error
    log = _Log()
    for record in behind_parents(records, "uuid", "parentUuid"):
        try:
            log.take(record)
        except FormatError as error:
            broken = error
            break
    histories = log.histories()
    if not histories and broken is None:
        raise FormatError(f"{records[0].place if records else 'the file'}: nobody says anything in it: {_EXPECTED}")
    yield from histories
    if broken is not None:
        raise broken


def _records_of(text: str) -> Iterator[Fields]:
    """The records: one a line, or a JSON list of them."""
    if text.lstrip("\ufeff \t\r\n")[:1] == "[":
        items = items_of(text.removeprefix("\ufeff"), "the document")
        return (Fields(item, f"record {number}") for number, item in enumerate(items, 1))
    return (Fields(line, place) for line, place in lines_of(text))


def _checked(record: Fields) -> Fields:
    """Raises `FormatError` for what is no record, or one of a program that keeps other messages."""
    kind = record.maybe_text("type")
    message = record.object("message")
    is_said = kind in _MESSAGES and message is not None
    if (
        kind is None
        or not (record.maybe_text("uuid") and record.maybe_text("sessionId"))
        or (is_said and message is not None and not (message.raw("parts") or "").startswith("["))
    ):
        raise record.wrong(f"{_EXPECTED}, not one with {sorted(record.names())[:8]}")
    if is_said and message is not None and message.maybe_text("role") not in (None, *_ROLES[kind]):
        raise message.wrong(f'"role" should be {_ROLES[kind][0]!r} in a record of type {kind}')
    return record


class _Thread:
    """A conversation: that of a session, or of one of its subagents."""

    def __init__(self, name: str, first: Fields) -> None:
        self.name = name
        self.drafts: list[HistoryMessage] = []
        self.open: list[Block] = []  # calls without a result, the newest last
        self.title: str | None = None
        self.same = {field: text for field in _SAME if (text := first.raw(field)) is not None}
        self.notes: dict[int | None, dict[str, list[JsonText]]] = {}
        self.losses: list[Loss] = []

    def add(self, draft: HistoryMessage, at: int | None) -> int:
        self.drafts.append(replace(draft, parent=at))
        return len(self.drafts) - 1

    def history(self) -> History:
        metadata, drafts = dict(self.same), list(self.drafts)
        for at, notes in self.notes.items():
            told = {kind: f"[{','.join(sources)}]" for kind, sources in notes.items()}
            if at is None:
                metadata |= told
            else:
                drafts[at] = replace(drafts[at], metadata=drafts[at].metadata | told)
        return History(tuple(drafts), self.name, self.title, metadata, tuple(self.losses))


class _Log:
    """The records of a file, taken in one by one."""

    def __init__(self) -> None:
        self._threads: dict[str, _Thread] = {}
        self._at: dict[str, tuple[_Thread, int | None]] = {}  # of a record, its conversation and its message
        self._left: Counter[str] = Counter()
        self._names = 0

    def take(self, record: Fields) -> None:
        kind, uuid = record.text("type"), record.text("uuid")
        known = self._at.get(uuid)
        thread, at = known if known is not None else self._place(record)
        if kind not in _MESSAGES:
            self._at[uuid] = thread, at
            self._note(thread, at, record, kind)
            return
        message = record.object("message")
        parts = message.objects("parts") if message is not None else []
        if kind == "assistant":
            goes_on = known is not None and at is not None and thread.drafts[at].role == "assistant"
            self._at[uuid] = thread, self._answer(thread, record, parts, at, goes_on=goes_on)
        else:
            self._at[uuid] = thread, self._ask(thread, record, parts, at)

    def histories(self) -> list[History]:
        threads = [thread for thread in self._threads.values() if thread.drafts]
        if threads:
            threads[0].losses += [Loss(f"{count} records of type {kind} are no messages") for kind, count in self._left.items()]
        return [thread.history() for thread in threads]

    def _place(self, record: Fields) -> tuple[_Thread, int | None]:
        parent, session = record.maybe_text("parentUuid"), record.text("sessionId")
        agent = record.maybe_text("agentId") if record.is_true("isSidechain") else None
        name = session if agent is None else f"{session}/{agent}"
        known = self._at.get(parent) if parent else None
        if known is not None and known[0].name == name:
            return known
        thread = self._threads.setdefault(name, _Thread(name, record))
        if known is not None:
            thread.notes.setdefault(None, {}).setdefault("parentUuid", []).append(dump(parent))
        elif parent:
            thread.losses.append(Loss(f"{record.place}: the record it hangs on ({parent}) is not in this file"))
        return thread, None

    def _note(self, thread: _Thread, at: int | None, record: Fields, kind: str) -> None:
        """A record that is no message: what hangs on it hangs on its parent."""
        name = record.maybe_text("subtype") or kind
        payload = record.object("systemPayload")
        if name == "custom_title" and payload is not None:
            thread.title = payload.maybe_text("customTitle") or thread.title
        if kind != "system" or name in _COUNTED:
            self._left[f"{kind} ({name})" if name != kind else kind] += 1
        else:
            thread.notes.setdefault(at, {}).setdefault(name, []).append(record.source)

    def _answer(self, thread: _Thread, record: Fields, parts: list[Fields], at: int | None, *, goes_on: bool) -> int:
        """A response, or more of one whose record has come."""
        blocks = answer_blocks(parts, self._mint)
        usage = usage_of(record.object("usageMetadata"))
        thread.open = [block for block in blocks if block.kind == "tool_call"] + (thread.open if goes_on else [])
        if goes_on and at is not None:
            old = thread.drafts[at]
            thread.drafts[at] = replace(old, blocks=(*old.blocks, *blocks), usage=usage or old.usage)
            return at
        draft = HistoryMessage(
            "assistant",
            blocks,
            created_at=record.time("timestamp"),
            metadata=_metadata(thread, record),
            usage=usage,
            model=record.maybe_text("model"),
        )
        if is_left_out(draft):
            thread.losses.append(Loss(f"{record.place}: an answer without content is no message"))
        return thread.add(draft, at)

    def _ask(self, thread: _Thread, record: Fields, parts: list[Fields], at: int | None) -> int | None:
        """Results of tools, each a message, and what the user says, or the program in his place."""
        time, metadata = record.time("timestamp"), _metadata(thread, record)
        told = record.object("toolCallResult")
        results = [part for part in parts if "functionResponse" in part]
        noted = {"toolCallResult": told.source} if told is not None else {}
        for number, part in enumerate(results):
            draft = result_of(part, _call_of(thread, part, told), told)
            own = metadata | noted if number == 0 else {}
            at = thread.add(replace(draft, created_at=time, metadata=own), at)
        blocks = tuple(user_block(part) for part in parts if "functionResponse" not in part)
        if not blocks and results:
            return at
        draft = HistoryMessage("user", blocks, created_at=time, metadata={} if results else metadata | noted)
        if is_left_out(draft):
            thread.losses.append(Loss(f"{record.place}: a message without content is left out"))
        return thread.add(draft, at)

    def _mint(self) -> str:
        self._names += 1
        return f"call.{self._names}"


def _call_of(thread: _Thread, part: Fields, told: Fields | None) -> str:
    """The call that a result answers: by its id, else the first that waits under this name."""
    response = part.need("functionResponse")
    ref = response.maybe_text("id") or (told.maybe_text("callId") if told is not None else None)
    name = response.maybe_text("name")
    call = next((call for call in thread.open if (call.tool_call_id == ref if ref else call.name == name)), None)
    if call is not None:
        thread.open.remove(call)
    return ref or (call.tool_call_id if call is not None else None) or ""


def _metadata(thread: _Thread, record: Fields) -> dict[str, JsonText]:
    return {name: text for name, text in record.rest(*_PLACED).items() if thread.same.get(name) != text}
