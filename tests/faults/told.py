"""What has to be true, by what processes were told alone: a small model, which knows no fold of ours and reads no log."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from tests.faults.history import NEVER, Call

if TYPE_CHECKING:
    from collections.abc import Iterable

    from projector import Message
    from stream import Event


class Fate(NamedTuple):
    """What has to be true of a run: `texts` of its messages by id, whether it has to be there whole, and to be gone.

    `deltas` is what it has streamed beside them.
    """

    run_id: str
    texts: dict[str, str]
    deltas: str
    lives: bool
    is_gone: bool
    why: str


class Told:
    """What was told of one conversation, and what follows from it."""

    def __init__(self, conversation: str, calls: Iterable[Call]) -> None:
        self.conversation = conversation
        self.calls = [call for call in calls if call.conversation == conversation]
        self._by_name: defaultdict[str, list[Call]] = defaultdict(list)
        for call in self.calls:
            self._by_name[call.name].append(call)

    def at(self, look: Call) -> Told:
        """What was told by the time of a call that looks: what had not come back when it began may be true or not."""
        return Told(self.conversation, _known_at(self.calls, look))

    def of(self, *names: str) -> list[Call]:
        return [call for name in names for call in self._by_name[name]]

    def may_be_erased(self, since: int) -> bool:
        """Whether an erasure may have been asked for after a moment."""
        return any(call.latest > since for call in self._by_name["intend"])

    def is_erased(self, before: int) -> bool:
        """Whether an erasure was asked for after that moment, and done."""
        return any(call.is_done and call.begun > before for call in self._by_name["erase"])

    def fates(self) -> list[Fate]:
        """Of every run that was begun.

        One whose end was acknowledged lives, unless an erasure was stored after its writer had looked for the last time.
        """
        said: defaultdict[str, list[Call]] = defaultdict(list)
        for call in self.of("message", "text"):
            said[call.what["run"]].append(call)
        ends = {call.what["run"]: call for call in self.of("finish")}
        fates = []
        for begin in self.of("begin"):
            run_id, end = begin.what["run"], ends.get(begin.what["run"])
            done = [call for call in said[run_id] if call.is_done]
            texts = {call.answer: call.what["text"] for call in done if call.name == "message"}
            deltas = "".join(call.what["text"] for call in done if call.name == "text")
            lives = end is not None and end.is_done and not self.may_be_erased(end.what["looked"])
            last = max((call.latest for call in (begin, *said[run_id], *([end] if end else []))), default=NEVER)
            fates.append(Fate(run_id, texts, deltas, lives, self.is_erased(last), f"{begin} … {end}"))
        return fates

    def check_runs(self, transcript: list[tuple[str, str, str]]) -> list[str]:
        """What is not true of all messages: their runs, ids and texts."""
        there: defaultdict[str, dict[str, str]] = defaultdict(dict)
        for run_id, message_id, text in transcript:
            there[run_id][message_id] = text
        wrong = []
        redacted = self._redacted()
        for fate in self.fates():
            found = there[fate.run_id]
            if found and fate.is_gone:
                wrong.append(f"run {fate.run_id} was erased and is there: {fate.why}")
            if fate.lives and not found.keys() >= fate.texts.keys():
                wrong.append(f"run {fate.run_id} was acknowledged and lacks {fate.texts.keys() - found.keys()}: {fate.why}")
            for message_id in found.keys() & fate.texts.keys():
                may_be = redacted.get(message_id, {""}) | {fate.texts[message_id]}
                if message_id in redacted and None not in redacted[message_id]:
                    may_be -= {fate.texts[message_id]}
                if found[message_id] not in may_be:
                    wrong.append(f"message {message_id} says {found[message_id]!r}, not {may_be}: {fate.why}")
            streamed = [message_id for message_id in found if message_id not in fate.texts]
            is_changed = any(message_id in redacted for message_id in streamed)
            if fate.lives and not is_changed and fate.deltas not in "".join(found[message_id] for message_id in streamed):
                wrong.append(f"run {fate.run_id} has streamed {fate.deltas!r}: {fate.why}")
        return wrong

    def _redacted(self) -> dict[str, set[str | None]]:
        """What a message may say since it was redacted; None among it where that may not have come to pass."""
        may_say: dict[str, set[str | None]] = {}
        of: defaultdict[str, list[Call]] = defaultdict(list)
        for call in self.of("redact"):
            if call.may_be_done:
                of[call.what["message"]].append(call)
        for message_id, calls in of.items():
            last = _may_be_last(calls)
            may_say[message_id] = {call.what["text"] for call in last}
            if not any(call.is_done for call in calls):
                may_say[message_id].add(None)
        return may_say

    def check_known(self, run_ids: set[str]) -> list[str]:
        """Which runs are not known, though they were begun and nobody has erased them since."""
        begun = [call for call in self.of("begin") if call.is_done and not self.may_be_erased(call.what["looked"])]
        return [f"run {call.what['run']} is gone: {call}" for call in begun if call.what["run"] not in run_ids]

    def check_recorded(self, events: Iterable[Event], floor: int) -> list[str]:
        """Which events are not where they were acknowledged, though nobody has erased them since. `events` are all above."""
        there = {event.seq: event.data.decode() for event in events}
        wrong = []
        for call in self.of("record"):
            if call.is_done and call.answer > floor and there.get(call.answer) != call.what["data"]:
                wrong.append(f"event {call.answer} is {there.get(call.answer)}: {call}")
            if call.is_done and call.answer <= floor and not self.may_be_erased(call.begun):  # compaction keeps such events
                wrong.append(f"event {call.answer} is gone: {call}")
        return wrong

    def check_origin(self, origin: int) -> list[str]:
        """Which runs that live were in the log up to a point that a deletion took away."""
        living = {fate.run_id for fate in self.fates() if fate.lives}
        flushed = [call for call in self.of("flush") if call.is_done and call.what["run"] in living]
        return [f"the log begins behind {origin}: {call}" for call in flushed if call.answer <= origin]

    def check_described(self, title: str | None) -> list[str]:
        """Whether the title is one that may be the last."""
        said = [call for call in self.of("describe") if call.may_be_done and not self.is_erased(call.latest)]
        may_be = {call.what["title"] for call in _may_be_last(said)}
        stays = any(call.is_done and not self.may_be_erased(call.begun) for call in said)
        if title not in may_be and (title is not None or stays):
            return [f"the title is {title!r}, and may be {may_be}: {[*map(str, said)]}"]
        return []

    def check_annotated(self, messages: list[Message]) -> list[str]:
        """Whether each message has what was last noted of it."""
        wrong = []
        metadata = {message.id: message.metadata_text for message in messages}
        of: defaultdict[tuple[str, str], list[Call]] = defaultdict(list)
        for call in self.of("annotate"):
            if call.may_be_done and call.what["message"] in metadata:
                of[call.what["message"], call.what["key"]].append(call)
        for (message_id, key), calls in of.items():
            said = json.loads(metadata[message_id].get(key, "null"))
            may_be = {call.what["value"] for call in _may_be_last(calls)}
            if said not in may_be and (said is not None or any(call.is_done for call in calls)):
                wrong.append(f"{key} of {message_id} is {said}, and may be {may_be}")
        return wrong


def check_order(calls: list[Call]) -> list[str]:
    """What does not rise of bounds that were looked at one after the other: no head, floor or origin falls."""
    wrong = []
    looks = sorted((call for call in calls if call.name == "bounds" and call.is_done), key=lambda call: call.latest)
    highest: dict[str, list[tuple[int, list[int]]]] = {}
    for look in looks:
        before = highest.setdefault(look.conversation, [])
        known = [bounds for ended, bounds in before if ended < look.begun]
        if known and any(now < max(column) for now, column in zip(look.answer, zip(*known, strict=True), strict=True)):
            wrong.append(f"{look} after {known[-1]}")
        before.append((look.latest, look.answer))
    return wrong


def _known_at(calls: Iterable[Call], look: Call) -> Iterable[Call]:
    for call in calls:
        if call.begun < look.latest:
            is_open = call.ended is None or call.ended > look.begun
            yield call._replace(ended=None, answer=None, error=None, died=min(call.latest, NEVER)) if is_open else call


def _may_be_last(calls: list[Call]) -> list[Call]:
    """Those that no other one was done behind."""
    behind = max((call.begun for call in calls if call.is_done), default=0)
    return [call for call in calls if call.latest > behind]
