"""The CLI of Claude Code with `--output-format stream-json`: finished messages, beside the deltas that made them.

Finished messages are the conversation. The raw deltas of the same responses are in the log too and count once: they
tell usage and why a response stopped, and they stand in for the blocks that never came whole where the log breaks off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from projector.formats.anthropic.stream_reader import AnthropicStream
from projector.formats.claude_code.parts import (
    PROVIDER,
    assistant_blocks,
    require_content,
    results_of,
    total,
    usage_of,
    user_blocks,
)
from projector.formats.format import FormatError
from projector.formats.shared.blocks import blocks_of
from projector.formats.shared.history import History, HistoryMessage, Loss
from projector.json_text import JsonText, dump, join_fields

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from projector import events as ev
    from projector.events import Outcome
    from projector.formats.shared.fields import Fields

_EXPECTED: Final = 'a record of stream-json was expected: an object with "type" and "session_id" or "parent_tool_use_id"'
_PLACED: Final = ("type", "message", "session_id", "parent_tool_use_id", "timestamp", "tool_use_result")
_IN_MESSAGE: Final = ("id", "type", "role", "model", "content", "stop_reason", "usage")


def is_stream(record: Fields) -> bool:
    """Whether a record is one of stream-json; those of session logs name their session otherwise."""
    return record.has("type") and (record.has("session_id") or record.has("parent_tool_use_id"))


def read_stream(records: Iterator[Fields]) -> Iterator[History]:
    """The conversation of a run of the CLI, and one for each subagent.

    Raises `FormatError` with the line and what was expected, behind the conversations as far as they could be read.
    """
    log = _Log()
    broken: FormatError | None = None
    try:
        for record in records:
            log.take(record)
    except FormatError as error:
        if not log.threads:
            raise
        broken = error
    yield from log.histories()
    if broken is not None:
        raise broken


class _Deltas:
    """The raw events of one response."""

    def __init__(self, ref: str) -> None:
        self.ref = ref
        self.bodies: list[ev.Body] = []
        self.reason: str | None = None
        self.usage: Fields | None = None
        self.is_whole = False
        self._stream = AnthropicStream("", lambda: "")

    def feed(self, event: Fields) -> None:
        self.bodies += self._stream.feed(event.source)
        kind = event.maybe_text("type")
        if kind == "message_start":
            self.usage = event.need("message").object("usage")
        elif kind == "message_delta":
            self.reason = event.need("delta").maybe_text("stop_reason")
            self.usage = event.object("usage") or self.usage
        self.is_whole = self.is_whole or kind == "message_stop"


class _Thread:
    """The run of the CLI, or of one of its subagents."""

    def __init__(self) -> None:
        self.drafts: list[HistoryMessage] = []
        self.responses: dict[str, int] = {}
        self.deltas: dict[str, _Deltas] = {}
        self.current: _Deltas | None = None

    def feed(self, event: Fields) -> None:
        if event.maybe_text("type") == "message_start":
            ref = event.need("message").text("id")
            self.current = self.deltas.setdefault(ref, _Deltas(ref))
        if self.current is not None:
            self.current.feed(event)

    def finish(self) -> None:
        """What deltas tell of the messages, and the message that never came whole."""
        for ref, deltas in self.deltas.items():
            number = self.responses.get(ref)
            if number is None:
                self.drafts.append(HistoryMessage("assistant", (), provider_ref=ref, provider=PROVIDER))
                number = self.responses[ref] = len(self.drafts) - 1
            draft, blocks = self.drafts[number], blocks_of(deltas.bodies)
            more = blocks[len(draft.blocks) :] if not deltas.is_whole else ()
            usage, reason = usage_of(deltas.usage) or draft.usage, deltas.reason or draft.finish_reason
            status, ends = ("complete", draft.ends_run) if deltas.is_whole else ("partial", "incomplete")
            self.drafts[number] = replace(
                draft, blocks=draft.blocks + more, usage=usage, finish_reason=reason, status=status, ends_run=ends
            )


class _Log:
    """The records of a file, taken in one by one."""

    def __init__(self) -> None:
        self.threads: dict[str | None, _Thread] = {}
        self._session: str | None = None
        self._metadata: dict[str, JsonText] = {}
        self._left: dict[str, int] = {}
        self._results: list[tuple[int, Fields]] = []
        """How a turn ended, and how many messages there were by then."""

    def take(self, record: Fields) -> None:
        kind = record.maybe_text("type")
        if kind is None or not is_stream(record):
            raise record.wrong(f"{_EXPECTED}, not one with {sorted(record.names())[:8]}")
        self._session = self._session or record.maybe_text("session_id")
        thread = self.threads.setdefault(record.maybe_text("parent_tool_use_id"), _Thread())
        if kind == "system" and record.maybe_text("subtype") == "init":
            self._metadata |= record.rest("type", "subtype", "session_id", "uuid")
        elif kind == "stream_event":
            _feed(thread, record)
        elif kind == "assistant":
            require_content(record.need("message"))
            _answer(thread, record, record.need("message"))
        elif kind == "user":
            require_content(record.need("message"))
            _ask(thread, record, record.need("message"))
        elif kind == "result":
            self._results.append((len(self.threads.setdefault(None, _Thread()).drafts), record))
            self._metadata["result"] = record.source
        else:
            name = record.maybe_text("subtype")
            kind = f"{kind} {name}" if name else kind
            self._left[kind] = self._left.get(kind, 0) + 1

    def histories(self) -> Iterator[History]:
        losses = tuple(Loss(f"{count} records of type {kind} are no messages") for kind, count in self._left.items())
        for call, thread in self.threads.items():
            thread.finish()
            if call is None:
                earlier = [record.source for _, record in self._results[:-1]]
                told = {"earlier_results": f"[{','.join(earlier)}]"} if earlier else {}
                drafts = tuple(self._ended(thread.drafts))
                yield History(drafts, self._session, metadata=self._metadata | told, losses=losses)
            else:
                metadata = {"isSidechain": "true", "parent_tool_use_id": dump(call)}
                yield History(tuple(thread.drafts), f"{self._session or ''}/{call}", metadata=metadata)

    def _ended(self, drafts: Sequence[HistoryMessage]) -> Iterator[HistoryMessage]:
        """The messages of each turn, the last of them with how it ended and what it used."""
        begin = 0
        for number, (count, result) in enumerate(self._results, 1):
            behind = len(drafts) if number == len(self._results) else count
            turn = list(drafts[begin:behind])
            begin = behind
            yield from total(turn[:-1] + [_end(draft, result) for draft in turn[-1:]], usage_of(result.object("usage")))
        yield from drafts[begin:-1]
        yield from (_end(draft, None) for draft in drafts[begin:][-1:])


def _feed(thread: _Thread, record: Fields) -> None:
    try:
        thread.feed(record.need("event"))
    except FormatError as error:
        raise record.wrong(str(error)) from error


def _answer(thread: _Thread, record: Fields, message: Fields) -> None:
    """A record of a response: a message, or more blocks of one."""
    blocks = assistant_blocks(message.raw("content") or "[]", record.place)
    ref, usage = message.maybe_text("id"), usage_of(message.object("usage"))
    metadata = record.rest(*_PLACED) | message.rest(*_IN_MESSAGE)
    number = thread.responses.get(ref) if ref else None
    if number is not None:
        old = thread.drafts[number]
        uuids = [old.metadata.get("uuids", "[]")[1:-1] or old.metadata.get("uuid", ""), metadata.get("uuid", "")]
        thread.drafts[number] = replace(
            old,
            blocks=old.blocks + blocks,
            usage=usage or old.usage,
            finish_reason=message.maybe_text("stop_reason") or old.finish_reason,
            metadata=metadata | old.metadata | {"uuids": f"[{','.join(uuid for uuid in uuids if uuid)}]"},
        )
        return
    model = message.maybe_text("model")
    thread.drafts.append(
        HistoryMessage(
            "assistant",
            blocks,
            provider_ref=ref,
            created_at=record.time("timestamp"),
            metadata=metadata,
            usage=usage,
            model=model,
            provider=PROVIDER if model else None,
            finish_reason=message.maybe_text("stop_reason"),
        )
    )
    if ref:
        thread.responses[ref] = len(thread.drafts) - 1


def _ask(thread: _Thread, record: Fields, message: Fields) -> None:
    """A user's record: results of tools, each a message, and what the user says."""
    content, time, metadata = message.raw("content") or '""', record.time("timestamp"), record.rest(*_PLACED)
    results = results_of(content, record.place)
    form = record.raw("tool_use_result")
    for number, result in enumerate(results):
        own = metadata | ({"tool_use_result": form} if form else {}) if number == 0 else {}
        thread.drafts.append(replace(result, created_at=time, metadata=own))
    blocks = user_blocks(content, record.place)
    if blocks or not results:
        thread.drafts.append(HistoryMessage("user", blocks, created_at=time, metadata={} if results else metadata))


def _end(draft: HistoryMessage, result: Fields | None) -> HistoryMessage:
    """The last message of a run, with how the run ended."""
    if result is None:
        return draft if draft.ends_run else replace(draft, ends_run="incomplete")
    kind = result.text("subtype")
    is_wrong = result.is_true("is_error") or kind != "success"
    ends: Outcome = "completed" if not is_wrong else "incomplete" if kind == "error_max_turns" else "failed"
    reason = kind if is_wrong else result.maybe_text("stop_reason") or draft.finish_reason
    told = {name: text for name, text in result.rest().items() if name in ("subtype", "result", "errors", "api_error_status")}
    error = join_fields(told)
    return replace(draft, ends_run=ends, finish_reason=reason, error=error if is_wrong else None)
