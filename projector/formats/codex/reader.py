"""Rollouts of the Codex CLI: lines of records, of which those of type `response_item` are what was said.

They are items of the Responses API. Of the events beside them only those are taken that say more than the items do: what
a response used, that a turn was aborted or failed. Contexts of turns, compactions and snapshots change nothing that was
said; they are kept with the message they follow.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from projector.formats.format import FormatError
from projector.formats.shared.fields import Fields, lines_of
from projector.formats.shared.history import History, Loss
from projector.formats.shared.makers import OPENAI
from projector.formats.shared.openai_messages import ItemReader
from projector.json_text import join_fields
from projector.run_draft import Usage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from projector.events import Outcome
    from projector.json_text import JsonText

_EXPECTED: Final = 'a Codex rollout was expected: lines such as {"timestamp": …, "type": "session_meta", "payload": …}'
_NOTES: Final = ("turn_context", "compacted", "session_meta")
_SNAPSHOT: Final = "ghost_snapshot"
_SAID_AGAIN: Final = (
    "user_message", "agent_message", "agent_reasoning", "agent_reasoning_raw_content", "agent_reasoning_section_break",
    "task_started", "task_complete", "turn_started", "turn_complete", "context_compacted",
)  # fmt: skip
"""Events that say nothing which the items and records beside them do not say."""


def read(text: str) -> Iterator[History]:
    """The conversation of a rollout.

    Raises `FormatError` with the line and what was expected, behind the conversation as far as it could be read.
    """
    rollout = _Rollout()
    broken: FormatError | None = None
    try:
        for line, place in lines_of(text):
            rollout.take(Fields(line, place))
    except FormatError as error:
        broken = error
    if rollout.has_begun:
        yield rollout.history()
    if broken is not None:
        raise broken
    if not rollout.has_begun:
        raise FormatError(f"the file is empty: {_EXPECTED}")


class _Rollout:
    """The records of a file, taken in one by one."""

    def __init__(self) -> None:
        self.has_begun = False
        self._items = ItemReader()
        self._header: Fields | None = None
        self._model: str | None = None
        self._notes: dict[int, dict[str, list[JsonText]]] = {}  # by the message they follow, -1 before the first
        self._last_note: dict[str, JsonText] = {}
        self._total: JsonText | None = None
        self._left: Counter[str] = Counter()
        self._losses: list[Loss] = []

    def take(self, record: Fields) -> None:
        kind, payload = record.maybe_text("type"), record.object("payload")
        if kind is None or payload is None:
            raise record.wrong(f"{_EXPECTED}, not one with {sorted(record.names())[:8]}")
        self.has_begun = True
        if kind == "session_meta" and self._header is None:
            self._header = payload
        elif kind == "response_item" and payload.maybe_text("type") != _SNAPSHOT:
            self._say(payload, record.time("timestamp"))
        elif kind == "response_item" or kind in _NOTES:
            self._note(_SNAPSHOT if kind == "response_item" else kind, payload)
        elif kind == "event_msg":
            self._hear(payload.text("type"), payload)
        else:
            self._left[f"records of type {kind}"] += 1

    def history(self) -> History:
        drafts = list(self._items.drafts)
        header = self._header
        metadata = {} if header is None else header.rest("id")
        for at, notes in self._notes.items():
            told = {kind: f"[{','.join(payloads)}]" for kind, payloads in notes.items()}
            if at < 0:
                metadata |= told
            else:
                drafts[at] = replace(drafts[at], metadata=drafts[at].metadata | told)
        left = [Loss(f"{count} {what} are no messages") for what, count in self._left.items()]
        return History(
            tuple(drafts),
            None if header is None else header.maybe_text("id"),
            metadata=metadata,
            losses=(*self._losses, *left),
        )

    def _say(self, item: Fields, time: int | None) -> None:
        drafts = self._items.drafts
        known = len(drafts)
        self._items.read(item)
        for at in range(known, len(drafts)):
            drafts[at] = replace(drafts[at], created_at=time)
            if drafts[at].role == "assistant":
                maker = self._header.maybe_text("model_provider") if self._header is not None else None
                drafts[at] = replace(drafts[at], model=self._model, provider=maker or OPENAI)

    def _note(self, kind: str, payload: Fields) -> None:
        if kind == "turn_context":
            self._model = payload.maybe_text("model") or self._model
        if self._last_note.get(kind) != payload.source:  # a context is told again with each turn
            self._last_note[kind] = payload.source
            self._notes.setdefault(len(self._items.drafts) - 1, {}).setdefault(kind, []).append(payload.source)

    def _hear(self, kind: str, event: Fields) -> None:
        if kind == "token_count":
            self._use(event.object("info"))
        elif kind in ("turn_aborted", "error") and self._items.drafts:
            last = self._items.drafts[-1]
            reason = event.maybe_text("reason")
            error = join_fields({"message": message}) if (message := event.raw("message")) is not None else None
            ends: Outcome = "failed" if kind == "error" else "cancelled"
            said = error if kind == "error" else None
            self._items.drafts[-1] = replace(last, ends_run=ends, error=said, finish_reason=reason or last.finish_reason)
            self._items.end_answer()
        elif kind == "thread_rolled_back":
            turns = event.whole("num_turns")
            self._losses.append(Loss(f"{event.place}: {turns} turns were taken back; they are kept in the line"))
        elif kind not in _SAID_AGAIN:
            self._left[f"events of type {kind}"] += 1

    def _use(self, info: Fields | None) -> None:
        """What the last response used, once: the same count is told again with each new limit."""
        used = None if info is None else info.object("last_token_usage")
        total = None if info is None else info.raw("total_token_usage")
        if used is None or (total is not None and total == self._total):
            return
        self._total = total
        drafts = self._items.drafts
        at = next((at for at in reversed(range(len(drafts))) if drafts[at].role == "assistant"), None)
        if at is None or drafts[at].usage is not None:
            self._left["counts of tokens that stand behind no answer"] += 1
            return
        names = ("input_tokens", "output_tokens", "cached_input_tokens", "cache_write_input_tokens", "reasoning_output_tokens")
        given, made, cached, written, reasoning = (used.whole(name) for name in names)
        drafts[at] = replace(drafts[at], usage=Usage(given, made, cached, written, reasoning, used.source))
        self._items.end_answer()
