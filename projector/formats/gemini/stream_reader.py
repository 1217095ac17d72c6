"""Google Gemini `streamGenerateContent`: text, thoughts, signatures, tool calls whole or in pieces, grounding, usage.

Each chunk is a whole `GenerateContentResponse`; parts of one kind that follow each other are one block. A part with a
`thoughtSignature` is a block of its own and kept byte for byte, as Google asks to send it back: never joined.
Source: the reference of `generateContent` and *Thought signatures* of the Gemini API documentation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from projector import events as ev
from projector.formats.format import FormatError, StreamEnd
from projector.formats.gemini.arguments import Arguments
from projector.formats.shared.payloads import opaque
from projector.json_text import InvalidJson, JsonText, decode, dump, join_fields, raw, split, split_array

if TYPE_CHECKING:
    from collections.abc import Callable

PROVIDER: Final = "google"
_EXPECTED: Final = 'a response of generateContent was expected: an object with "candidates"'
_HEADS: Final = ("candidates", "promptFeedback", "usageMetadata", "error")
_OF_RESPONSE: Final = ("candidates", "usageMetadata", "responseId")
_OF_CANDIDATE: Final = ("content", "finishReason", "index")
_TEXT: Final = {"text", "thought", "thoughtSignature"}
_CALL: Final = {"functionCall", "thoughtSignature"}
_REFUSED: Final = ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "MODEL_ARMOR")
_KINDS: Final = {
    "executableCode": "server_tool_call",
    "toolCall": "server_tool_call",
    "codeExecutionResult": "server_tool_result",
    "toolResponse": "server_tool_result",
    "inlineData": "media",
    "fileData": "media",
}


class GeminiStream:
    """Turns the chunks of one or more streamed responses of a run into events of the conversation.

    `mint()` gives the id of the next message. A response that came whole is one chunk. Candidates beside the first
    are kept as `raw`. Nothing in the stream says that a response ends but its `finishReason`.
    """

    def __init__(self, run_id: str, mint: Callable[[], str]) -> None:
        self._run_id = run_id
        self._mint = mint
        self._response: _Response | None = None
        self._steps = 0
        self._end = StreamEnd("incomplete")

    def feed(self, chunk: bytes | str | dict[str, Any]) -> list[ev.Body]:
        """The events that one chunk becomes: its JSON text (the `data` of an SSE event), or the parsed form.

        Raises `FormatError` for what is no Gemini response.
        """
        try:
            text = dump(chunk) if isinstance(chunk, dict) else chunk if isinstance(chunk, str) else chunk.decode()
            fields = split(text)
        except (InvalidJson, UnicodeDecodeError) as error:
            raise FormatError(f"{_EXPECTED} ({error})") from error
        if "event_type" in fields:
            raise FormatError(f"{_EXPECTED}; this is an event of Google's Interactions, another interface")
        if not fields.keys() & set(_HEADS):
            if self._response is None:
                raise FormatError(f"{_EXPECTED}, not {sorted(fields)[:8]}")
            return [ev.RawEvent(PROVIDER, raw(text))]
        try:
            return self._take(fields, text)
        except (InvalidJson, KeyError, TypeError, ValueError, AttributeError) as error:
            raise FormatError(f"the response lacks what it needs ({type(error).__name__}: {error})") from error

    def end(self) -> StreamEnd:
        """How the run would end here: `incomplete` without a `finishReason`, `failed` after an error."""
        return self._end

    def _take(self, fields: dict[str, JsonText], text: JsonText) -> list[ev.Body]:
        if "error" in fields:
            self._end = StreamEnd("failed", error=fields["error"])
            return []
        ref = decode(fields.get("responseId", "null"))
        candidates = [split(item) for item in split_array(fields.get("candidates", "[]"))]
        first = next((item for item in candidates if decode(item.get("index", "null")) in (None, 0)), {})
        parts = [split(part) for part in split_array(split(first.get("content", "{}")).get("parts", "[]"))]
        sources = split_array(split(first.get("content", "{}")).get("parts", "[]"))
        bodies, response = self._response_of(ref, has_content=bool(parts) or "promptFeedback" in fields)
        for part, source in zip(parts, sources, strict=True):
            bodies += response.take_part(part, source)
        bodies += response.annotate({name: value for name, value in fields.items() if name not in _OF_RESPONSE})
        bodies += response.annotate({name: value for name, value in first.items() if name not in _OF_CANDIDATE})
        bodies += response.cite(first.get("groundingMetadata"))
        bodies += response.use(fields.get("usageMetadata", "null"))
        if any(item is not first for item in candidates):
            bodies.append(ev.RawEvent(PROVIDER, raw(text)))
        return bodies + self._finish(response, fields, first)

    def _response_of(self, ref: str | None, *, has_content: bool) -> tuple[list[ev.Body], _Response]:
        """The response this chunk belongs to; content behind a `finishReason` needs another message."""
        old = self._response
        if old is not None and ref in (None, old.ref) and not (old.is_finished and has_content):
            return [], old
        bodies = [] if old is None or old.is_finished else old.finish("partial")
        response = _Response(self._run_id, self._mint(), ref, self._steps + 1)
        self._response, self._steps = response, response.step
        self._end = StreamEnd("incomplete") if self._end.outcome != "failed" else self._end
        return [*bodies, *response.start()], response

    def _finish(self, response: _Response, fields: dict[str, JsonText], candidate: dict[str, JsonText]) -> list[ev.Body]:
        feedback = split(fields.get("promptFeedback", "{}"))
        reason = decode(candidate.get("finishReason", "null")) or decode(feedback.get("blockReason", "null"))
        if reason is None or response.is_finished:
            return []
        bodies: list[ev.Body] = []
        if reason in _REFUSED or "blockReason" in feedback:
            why = candidate.get("finishMessage") or feedback.get("blockReasonMessage")
            bodies += response.refuse(decode(why or '""'))
        if self._end.outcome != "failed":
            self._end = StreamEnd("completed", finish_reason=reason)
        return bodies + response.finish("complete")


class _Response:
    """One response that is being streamed."""

    def __init__(self, run_id: str, message_id: str, ref: str | None, step: int) -> None:
        self.run_id, self.message_id, self.ref, self.step = run_id, message_id, ref, step
        self.is_finished = False
        self._blocks = 0
        self._text: tuple[int, str] | None = None  # the block of text that is open, and its kind
        self._last_text: int | None = None
        self._call: tuple[int, Arguments, JsonText | None] | None = None  # a call whose arguments come in pieces
        self._calls = 0
        self._usage: dict[str, JsonText] = {}
        self._said: dict[str, JsonText] = {}
        self._cited: set[JsonText] = set()

    def start(self) -> list[ev.Body]:
        return [
            ev.RunStep(self.run_id, self.step, "started"),
            ev.MessageStarted(self.run_id, self.message_id, "assistant", provider_ref=self.ref),
        ]

    def finish(self, status: Any) -> list[ev.Body]:
        sealed = self._seal_text() + self._seal_call() if status == "complete" else []
        self.is_finished = True
        return [*sealed, ev.MessageFinished(self.message_id, status), ev.RunStep(self.run_id, self.step, "finished")]

    def take_part(self, part: dict[str, JsonText], source: JsonText) -> list[ev.Body]:
        signature = decode(part.get("thoughtSignature", "null"))
        if "functionCall" in part and part.keys() <= _CALL:
            return self._seal_text() + self._take_call(split(part["functionCall"]), signature, source)
        before = self._seal_call()
        if "text" in part and part.keys() <= _TEXT:
            kind = "reasoning" if decode(part.get("thought", "null")) is True else "text"
            return before + self._take_text(kind, decode(part["text"]), signature, source)
        return before + self._seal_text() + self._take_other(part, signature, source)

    def annotate(self, fields: dict[str, JsonText]) -> list[ev.Body]:
        """What is said once more in each chunk is told once."""
        news = {name: text for name, text in fields.items() if text != "null" and self._said.get(name) != text}
        self._said |= news
        return [ev.MessageAnnotated(self.message_id, raw(join_fields(news)))] if news else []

    def cite(self, grounding: JsonText | None) -> list[ev.Body]:
        """The sources of an answer, at its text; where they apply stays in the message's metadata."""
        if grounding is None or self._last_text is None:
            return []
        news = [chunk for chunk in split_array(split(grounding).get("groundingChunks", "[]")) if chunk not in self._cited]
        self._cited.update(news)
        cited = [f'{{"kind":"grounding","source":{chunk}}}' for chunk in news]
        return [ev.BlockAnnotated(self.message_id, self._last_text, raw(text)) for text in cited]

    def use(self, usage: JsonText) -> list[ev.Body]:
        """Each chunk tells totals; thoughts and prompts of tools stand beside them, what is cached lies inside."""
        said = {name: text for name, text in split(usage).items() if text != "null"} if usage != "null" else {}
        if not said or said.items() <= self._usage.items():
            return []
        self._usage |= said
        return [
            ev.RunUsage(
                run_id=self.run_id,
                request_id=self.ref or self.message_id,
                input=self._count("promptTokenCount", "toolUsePromptTokenCount"),
                output=self._count("candidatesTokenCount", "thoughtsTokenCount"),
                cached=self._count("cachedContentTokenCount"),
                reasoning=self._count("thoughtsTokenCount"),
                raw=raw(join_fields(self._usage)),
            )
        ]

    def refuse(self, text: str) -> list[ev.Body]:
        """A refusal has no part of its own; without one an empty message would vanish."""
        sealed = self._seal_text() + self._seal_call()
        number, started = self._start_block("refusal")
        return [*sealed, started, *self._delta(number, text), ev.BlockSealed(self.message_id, number)]

    def _take_text(self, kind: Any, text: str, signature: str | None, source: JsonText) -> list[ev.Body]:
        if signature is not None:
            sealed = self._seal_text()
            number, started = self._start_block(kind)
            self._last_text = number if kind == "text" else self._last_text
            kept = ev.BlockSealed(self.message_id, number, signature, raw(opaque(PROVIDER, source)))
            return [*sealed, started, *self._delta(number, text), kept]
        if not text:
            return []
        bodies: list[ev.Body] = []
        if self._text is None or self._text[1] != kind:
            bodies += self._seal_text()
            number, started = self._start_block(kind)
            self._text = number, kind
            self._last_text = number if kind == "text" else self._last_text
            bodies.append(started)
        return bodies + self._delta(self._text[0], text)

    def _take_call(self, call: dict[str, JsonText], signature: str | None, source: JsonText) -> list[ev.Body]:
        bodies: list[ev.Body] = []
        if "name" not in call and self._call is None:  # the end of a call that has ended, or nothing we know
            return self._take_other({"functionCall": dump(None)}, signature, source) if call else []
        if "name" in call or self._call is None:
            bodies += self._seal_call()
            # Without an id of its own a call is paired by its order; the id must be the same when it is read again.
            self._calls += 1
            ref = decode(call.get("id", "null")) or f"{self.message_id}.call{self._calls}"
            number, started = self._start_block("tool_call", decode(call.get("name", "null")), ref)
            bodies.append(started)
            kept = opaque(PROVIDER, source) if signature is not None else None
            if "partialArgs" not in call and decode(call.get("willContinue", "null")) is not True:
                return [*bodies, self._seal(number, signature, kept, call.get("args", "{}"))]
            self._call = number, Arguments(signature), kept
        number, arguments, _ = self._call
        if "partialArgs" in call:
            arguments.take(split_array(call["partialArgs"]))
            bodies.append(ev.BlockDelta(self.message_id, number, call["partialArgs"], "partialArgs"))
        return bodies if decode(call.get("willContinue", "null")) is True else bodies + self._seal_call()

    def _take_other(self, part: dict[str, JsonText], signature: str | None, source: JsonText) -> list[ev.Body]:
        name = next((name for name in part if name in _KINDS), next(iter(part.keys() - {"thoughtSignature"}), "part"))
        fields = split(part[name]) if name in _KINDS else {}
        number, started = self._start_block(
            _KINDS.get(name, "provider"),
            decode(fields.get("toolType", fields.get("name", "null"))),
            decode(fields.get("id", "null")),
            media_type=decode(fields.get("mimeType", "null")),
            ref=name,
        )
        bodies: list[ev.Body] = [started]
        for ours, theirs in (("data", "data"), ("url", "fileUri")):
            if theirs in fields and started.kind == "media":
                bodies.append(ev.BlockDelta(self.message_id, number, decode(fields[theirs]), ours))
        is_said = started.kind == "media" and signature is None and fields.keys() <= {"mimeType", "data", "fileUri"}
        kept = "" if is_said and len(part) == 1 else opaque(PROVIDER, source)
        return [*bodies, ev.BlockSealed(self.message_id, number, signature, raw(kept))]

    def _start_block(
        self, kind: Any, name: str | None = None, call: str | None = None, media_type: str | None = None, ref: str | None = None
    ) -> tuple[int, ev.BlockStarted]:
        number = self._blocks
        self._blocks += 1
        return number, ev.BlockStarted(self.message_id, number, kind, name, call, media_type, ref)

    def _seal_text(self) -> list[ev.Body]:
        text, self._text = self._text, None
        return [ev.BlockSealed(self.message_id, text[0])] if text is not None else []

    def _seal_call(self) -> list[ev.Body]:
        if self._call is None:
            return []
        (number, arguments, kept), self._call = self._call, None
        return [self._seal(number, arguments.signature, kept, arguments.text())]

    def _seal(self, number: int, signature: str | None, kept: JsonText | None, given: JsonText | None) -> ev.BlockSealed:
        parse: Any = "bad" if given is None else "ok"
        return ev.BlockSealed(self.message_id, number, signature, raw(kept), raw(given), parse)

    def _delta(self, number: int, text: Any) -> list[ev.Body]:
        if not isinstance(text, str):
            raise TypeError(f"text was expected, not {text!r}")
        return [ev.BlockDelta(self.message_id, number, text)] if text else []

    def _count(self, *names: str) -> int | None:
        counts = [decode(self._usage[name]) for name in names if name in self._usage]
        return sum(counts) if counts else None
