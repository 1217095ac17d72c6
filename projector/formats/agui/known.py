"""What an AG-UI stream has said, so that a snapshot that says it again brings only what is new."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from projector.formats.shared.fields import Fields


class News(NamedTuple):
    """What a snapshot says that no event before it has said; `differs`: it says something else than they did.

    `texts` are those of whole blocks of which it has another text: by message and block of ours, `others` the same by the id
    of the answer.
    """

    messages: tuple[Fields, ...]
    arguments: dict[str, str]
    texts: dict[tuple[str, int], str]
    others: dict[str, str]
    differs: bool


class Known:
    """What a stream has said: of each message its id and a digest of its text, ids of calls and of those with a result."""

    def __init__(self) -> None:
        self._texts: dict[str, dict[str | None, Any]] = {}  # by role
        self._calls: set[str] = set()
        self._answered: set[str] = set()
        self._places: dict[str, set[tuple[str, int]]] = {}
        """Where the text of an answer stands: message and block of ours."""

    def stands(self, ref: str, message_id: str, block: int) -> None:
        """Text of an answer went into this block of ours."""
        self._places.setdefault(ref, set()).add((message_id, block))

    def say(self, role: str, ref: str | None, text: str) -> None:
        """A piece of a message's text."""
        said = self._texts.setdefault(role, {})
        if ref not in said:
            said[ref] = _digest("")
        said[ref].update(_bytes(text))

    def call(self, tool_call_id: str) -> bool:
        """A call begins; false if it did before."""
        is_new = tool_call_id not in self._calls
        self._calls.add(tool_call_id)
        return is_new

    def answer(self, tool_call_id: str) -> None:
        """A call has its result."""
        self._answered.add(tool_call_id)

    def compare(self, messages: Sequence[Fields], waiting: Iterable[str], growing: AbstractSet[tuple[str, int]]) -> News:
        """What of a snapshot is new: behind what the stream has said, or behind the last user where it has said nothing.

        What stands before that is the conversation the run was given. While some text of the stream is in no message
        of the snapshot, a message with another text may be the same answer in other words, and is no news. A message
        that is known by its id has the text that the snapshot says it has, unless it is still `growing`.
        """
        found = {at: match for at, message in enumerate(messages) if (match := self._find(message)) is not None}
        if self._texts or self._calls:
            first = min(found, default=len(messages))
            fresh = [at for at in range(first, len(messages)) if at not in found]
        else:
            users = [at for at, message in enumerate(messages) if message.text("role") == "user"]
            fresh = list(range(max(users, default=-1) + 1, len(messages)))
        missed = self._texts.get("assistant", {}).keys() - {match.ref for match in found.values()}
        has_rivals = any(self._texts["assistant"][ref].digest() != _NO_TEXT for ref in missed)
        taken = ("tool",) if has_rivals else ("tool", "assistant", "reasoning", "activity")
        news = [messages[at] for at in fresh if messages[at].text("role") in taken]
        texts: dict[tuple[str, int], str] = {}
        others: dict[str, str] = {}
        for at, match in found.items():
            places = self._places.get(match.ref or "", set()) - growing
            if match.ref is None or match.is_same or messages[at].text("role") != "assistant" or len(places) != 1:
                continue
            text = messages[at].maybe_text("content")
            if text:
                texts |= dict.fromkeys(places, text)
                others[match.ref] = text
        corrected = [match for match in found.values() if not match.is_same]
        differs = has_rivals or len(news) < len(fresh) or len(texts) < len(corrected)
        return News(tuple(news), _arguments(messages, set(waiting)), texts, others, differs)

    def become(self, texts: dict[str, str]) -> None:
        """Answers have these texts, whatever was streamed of them."""
        self._texts.get("assistant", {}).update({ref: _digest(text) for ref, text in texts.items()})

    def learn(self, message: Fields) -> None:
        """A message of a snapshot is taken in."""
        role = message.text("role")
        if role == "tool":
            self.answer(message.text("toolCallId"))
        elif role != "activity":
            self.say(role, message.maybe_text("id"), message.maybe_text("content") or "")
            for call in message.objects("toolCalls"):
                self.call(call.text("id"))

    def _find(self, message: Fields) -> _Found | None:
        role, ref = message.text("role"), message.maybe_text("id")
        if role == "tool":
            return _Found(None, is_same=True) if message.text("toolCallId") in self._answered else None
        said = self._texts.get(role, {})
        if role not in ("assistant", "reasoning"):
            return _Found(ref, is_same=True) if ref in said else None
        text = message.maybe_text("content") or ""
        digest = _digest(text).digest()
        if ref in said:
            return _Found(ref, is_same=said[ref].digest() == digest)
        same = [name for name, other in said.items() if text and other.digest() == digest]
        if any(call.text("id") in self._calls for call in message.objects("toolCalls")):
            return _Found(same[0] if same else None, is_same=bool(same) or not text)
        return _Found(same[0], is_same=True) if same else None


class _Found(NamedTuple):
    ref: str | None
    is_same: bool


def _arguments(messages: Sequence[Fields], waiting: set[str]) -> dict[str, str]:
    """The arguments of calls whose end came without any."""
    calls = [call for message in messages for call in message.objects("toolCalls") if call.text("id") in waiting]
    return {call.text("id"): call.need("function").maybe_text("arguments") or "" for call in calls}


def _digest(text: str) -> Any:
    return hashlib.blake2b(_bytes(text), digest_size=16)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


_NO_TEXT: Final = _digest("").digest()
