"""A Chat Completions response while it is streamed: text that goes on, details of reasoning, calls, sound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from projector.formats.chat.calls import CUSTOM, Call, Calls
from projector.formats.chat.parts import DETAILS, PLAIN_REASONING, PROVIDER, detail_block, grow_detail, keep, part_block
from projector.formats.shared.fields import items_of, says_nothing
from projector.formats.shared.payloads import opaque
from projector.formats.shared.response import OpenBlock, ResponseDraft
from projector.formats.shared.stream import maybe_text
from projector.json_text import JsonText, decode, join_fields, split

if TYPE_CHECKING:
    from collections.abc import Mapping

    from projector import events as ev
    from projector.message import Block

OF_DELTA: Final = {
    "role", "content", *PLAIN_REASONING, DETAILS, "tool_calls", "function_call", "refusal", "audio", "annotations", "images",
    "index",
}  # fmt: skip
"""Fields of a delta that are content, or say nothing else."""
_OF_CALL: Final = {"index", "id", "type", "function", "custom"}
_ONCE: Final = ("created",)
"""Fields that some change with each chunk; the first value counts."""


class Answer(ResponseDraft[OpenBlock]):
    """A response made of deltas: text that goes on, and beside it details of reasoning, calls and sound."""

    def __init__(self, run_id: str, message_id: str, step: int, ref: str | None) -> None:
        super().__init__(run_id, message_id, step, ref)
        self._calls = Calls()
        self._details: dict[object, _Detail] = {}
        self._audio: _Detail | None = None
        self.is_streamed = False
        """Whether it came in deltas."""
        self._only: dict[str, OpenBlock | None] = {}
        """The block of a kind of text, whole or not; None where there are several."""

    def learn(self, fields: Mapping[str, JsonText]) -> list[ev.Body]:
        """What is new about the response as a whole."""
        said = {name: text for name, text in fields.items() if not says_nothing(text)}
        return self.note_news({name: text for name, text in said.items() if name not in _ONCE or name not in self.noted})

    def take(self, delta: Mapping[str, JsonText]) -> list[ev.Body] | None:
        """What a delta adds; None if it adds to a response that is finished."""
        if self.is_finished:
            return None if has_content(delta) else []
        bodies = self._reason(delta)
        content = delta.get("content", "null")
        if content.lstrip().startswith("["):
            for part in items_of(content, "content"):
                bodies += self._add(part_block(part))
        elif text := decode(content):
            bodies += self.say("text", None, text)
        for image in _items(delta, "images"):
            bodies += self._add(part_block(image))
        for citation in _items(delta, "annotations"):
            bodies += self._cite(citation)
        if refused := decode(delta.get("refusal", "null")):
            bodies += self.say("refusal", None, refused)
        for call in _items(delta, "tool_calls"):
            bodies += self._take_call(split(call))
        if not says_nothing(delta.get("function_call", "null")):
            bodies += self._take_call({"index": '"function_call"', "function": delta["function_call"]})
        return bodies + self._listen(delta.get("audio", "null"))

    def say(self, kind: Any, ref: str | None, text: str, kept: JsonText | None = None) -> list[ev.Body]:
        """See `ResponseDraft.say`."""
        bodies = super().say(kind, ref, text, kept)
        if self._only.setdefault(kind, self.growing) is not self.growing:
            self._only[kind] = None
        return bodies

    def end_with(self, message: Mapping[str, JsonText]) -> list[ev.Body]:
        """The message as its server says it at the end of its deltas: it wins over them, where it says something."""
        bodies: list[ev.Body] = []
        for kind, name in (("text", "content"), ("refusal", "refusal")):
            whole, said = decode(message.get(name, "null")), self._only.get(kind)
            if not isinstance(whole, str) or not whole:
                continue
            if kind not in self._only:
                bodies += self.say(kind, None, whole)
            elif said is not None and said is self.growing:
                bodies += self.complete(said, whole)
            elif said is not None and said.beyond(whole) != "":
                said.text = whole
                bodies.append(self.sealed(said))
        for place, source in enumerate(_items(message, "tool_calls")):
            bodies += self._end_call(place, split(source))
        return bodies

    def _end_call(self, place: int, fields: Mapping[str, JsonText]) -> list[ev.Body]:
        call_id = maybe_text(fields, "id") or None
        known = [call for call in self._calls if call_id is not None and call.call_id == call_id]
        unnamed = [call for at, call in enumerate(self._calls) if at == place and None in (call_id, call.call_id)]
        call = next(iter(known or unnamed), None)
        if call is None or call.number < 0:
            return self._take_call(fields)
        whole = decode(split(fields.get("function", "{}")).get("arguments", "null"))
        return self.complete(call, whole) if isinstance(whole, str) else []

    def seal_all(self) -> list[ev.Body]:
        """The response is whole, and so are its blocks."""
        bodies = self.hush()
        for detail in self._details.values():
            said = detail_block(detail.known)
            detail.signature, detail.kept = said.signature, said.opaque
            bodies.append(self.sealed(detail))
        for call in self._calls:
            bodies += self._start_call(call, is_whole=True)
            call.end()
            call.kept = keep(call.rest)
            bodies.append(self.sealed(call))
        if self._audio is not None:
            self._audio.kept = opaque(PROVIDER, join_fields(self._audio.known))
            bodies.append(self.sealed(self._audio))
        return bodies

    def _reason(self, delta: Mapping[str, JsonText]) -> list[ev.Body]:
        bodies: list[ev.Body] = []
        has_text = False
        for text in _items(delta, DETAILS):
            fields = split(text)
            maybe_text(fields, "data")
            block = detail_block(fields)
            has_text = has_text or bool(block.text)
            key = (block.kind, fields.get("index", fields.get("id", "0")))
            detail = self._details.get(key)
            if detail is None:
                detail = self._details[key] = _Detail(block.kind, block.provider_ref)
                bodies += [*self.hush(), self.started(detail)]
            grow_detail(detail.known, {name: text for name, text in fields.items() if name not in ("text", "summary")})
            bodies += self.grow(detail, block.text)
        for name in PLAIN_REASONING:  # the same text once more, where there are details
            said = decode(delta.get(name, "null"))
            if isinstance(said, str) and said:
                return bodies if has_text else bodies + self.say("reasoning", name, said)
        return bodies

    def _add(self, block: Block) -> list[ev.Body]:
        """A part that came whole; text of it goes on where the same was said last."""
        if block.kind in ("text", "reasoning", "refusal"):
            return self.say(block.kind, block.provider_ref, block.text, block.opaque) if block.text else []
        return self.hush() + self.put(block)

    def _cite(self, citation: JsonText) -> list[ev.Body]:
        bodies = self.say("text", None, "") if self.last_text is None else []
        number = self.last_text or 0
        return bodies + self.cite(number, f'{{"kind":{split(citation).get("type", "null")},"source":{citation}}}')

    def _take_call(self, fields: Mapping[str, JsonText]) -> list[ev.Body]:
        """A fragment of a call, or the call as a whole."""
        call_id = maybe_text(fields, "id") or None
        inner = split(next((text for name in ("function", "custom") if (text := fields.get(name, "null")) != "null"), "{}"))
        given = inner.get("arguments", inner.get("input", "null"))
        said = given if given.lstrip().startswith("{") else decode(given) or ""
        call = self._calls.find(fields.get("index", "null"), call_id, maybe_text(inner, "name") or None, said)
        call.rest |= {name: text for name, text in fields.items() if name not in _OF_CALL}
        if "custom" in fields:
            call.rest["type"] = CUSTOM
        call.waiting.append(said)
        started = self._start_call(call, is_whole=False)
        if call.number < 0:
            return started  # it waits for its name
        text, call.waiting = "".join(call.waiting), []
        return started + self.grow(call, text)

    def _start_call(self, call: Call, *, is_whole: bool) -> list[ev.Body]:
        if call.number >= 0 or not (call.called or is_whole):
            return []
        sealed = self.hush()
        call.number = self.reserve()
        call.begin(call.called, call.call_id or f"{self.message_id}.{call.number}")
        return [*sealed, self.started(call, *call.begun)]

    def _listen(self, text: JsonText) -> list[ev.Body]:
        """Sound comes in pieces of base64 with what is said in it."""
        if says_nothing(text):
            return []
        fields = split(text)
        bodies: list[ev.Body] = []
        if self._audio is None:
            self._audio = _Detail("media", "audio")
            bodies = [*self.hush(), self.started(self._audio, media_type="audio")]
        self._audio.known |= {name: value for name, value in fields.items() if name not in ("data", "transcript")}
        for name in ("data", "transcript"):
            bodies += self.grow(self._audio, maybe_text(fields, name) or "", name)
        return bodies


class _Detail(OpenBlock):
    """A block of which each piece says something beside its text."""

    def __init__(self, kind: str, ref: str | None) -> None:
        super().__init__(kind, ref)
        self.known: dict[str, JsonText] = {}


def has_content(delta: Mapping[str, JsonText]) -> bool:
    """Whether a delta says anything."""
    return any(not says_nothing(text) for name, text in delta.items() if name in OF_DELTA - {"role", "index"})


def _items(fields: Mapping[str, JsonText], name: str) -> list[JsonText]:
    text = fields.get(name, "null")
    return [] if says_nothing(text) else items_of(text, name)
