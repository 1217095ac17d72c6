"""Content of Qwen Code's records: parts of Gemini's interface, results of tools, usage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from projector.formats.format import FormatError
from projector.formats.gemini.stream_reader import PROVIDER as GEMINI
from projector.formats.gemini.stream_reader import GeminiStream
from projector.formats.shared.blocks import blocks_of, kept_block, media_block, part_data, part_kept, part_media, part_text
from projector.formats.shared.history import HistoryMessage, result_draft, text_block
from projector.run_draft import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from projector.formats.shared.fields import Fields
    from projector.json_text import JsonText
    from projector.message import Block

PROVIDER: Final = GEMINI
_MEDIA: Final = ("inlineData", "fileData")
_MEDIA_FIELDS: Final = {"mimeType", "data", "fileUri", "displayName"}
_RESPONSE: Final = {"id", "name", "response", "parts"}
_SAID: Final = {"success": "ok", "error": "error", "cancelled": "interrupted"}
_DENIED: Final = "did not allow tool call"


def answer_blocks(parts: Sequence[Fields], mint: Callable[[], str]) -> tuple[Block, ...]:
    """The blocks of an answer; `mint` names the answer that calls without an id are named after. Raises `FormatError`."""
    if not parts:
        return ()
    stream = GeminiStream("", mint)
    told = ",".join(part.source for part in parts)
    try:
        content = f'{{"role":"model","parts":[{told}]}}'
        return blocks_of(stream.feed(f'{{"candidates":[{{"content":{content},"finishReason":"STOP"}}]}}'))
    except FormatError as error:
        raise parts[0].wrong(str(error)) from error


def user_block(part: Fields) -> Block:
    """A part of what a user or the program says; one that has no other form is kept as it came."""
    if part.names() == {"text"}:
        return text_block(part.text("text"))
    source, name = _media_of(part)
    if source is not None and part.names() == {name}:
        data, url = source.maybe_text("data"), source.maybe_text("fileUri")
        return media_block(source.maybe_text("mimeType"), data=data, url=url, name=source.maybe_text("displayName"))
    return kept_block(PROVIDER, part.source, next(iter(sorted(part.names())), None))


def result_of(part: Fields, tool_call_id: str, told: Fields | None) -> HistoryMessage:
    """The result of a tool; `told` is what the program noted of it. Raises `FormatError`."""
    response = part.need("functionResponse")
    given = response.object("response")
    said = given.names() if given is not None else set[str]()
    kept = [part_kept(PROVIDER, response.source)] if not response.names() <= _RESPONSE else []
    parts = [*kept, *(_value(given, said) if given is not None else []), *map(_result_part, response.objects("parts"))]
    return result_draft(tool_call_id, f"[{','.join(parts)}]", status=_status(told, given, said))


def usage_of(used: Fields | None) -> Usage | None:
    """What a request used, as totals. Whether thoughts lie inside of the output or beside it only the total tells."""
    if used is None:
        return None
    asked, tools = used.whole("promptTokenCount"), used.whole("toolUsePromptTokenCount")
    answered, thought = used.whole("candidatesTokenCount"), used.whole("thoughtsTokenCount")
    total = used.whole("totalTokenCount")
    taken = None if asked is None and tools is None else (asked or 0) + (tools or 0)
    given = None if answered is None and thought is None else (answered or 0) + (thought or 0)
    if given is not None and answered is not None and total is not None and total == (taken or 0) + answered:
        given = answered
    if taken is None and given is None:
        return None
    return Usage(taken, given, used.whole("cachedContentTokenCount"), None, thought, used.source)


def _value(given: Fields, said: set[str]) -> list[JsonText]:
    for name in ("output", "error"):
        text = given.raw(name)
        if said == {name} and text is not None and text.startswith('"'):
            return [part_text(given.text(name))]
    return [part_data(given.source)]


def _result_part(part: Fields) -> JsonText:
    """Media beside what a tool said."""
    source, name = _media_of(part)
    if source is not None and part.names() == {name}:
        return part_media(source.maybe_text("mimeType"), data=source.maybe_text("data"), url=source.maybe_text("fileUri"))
    return part_text(part.text("text")) if part.names() == {"text"} else part_kept(PROVIDER, part.source)


def _media_of(part: Fields) -> tuple[Fields | None, str]:
    for name in _MEDIA:
        source = part.object(name)
        if source is not None and source.names() <= _MEDIA_FIELDS and ("data" in source or "fileUri" in source):
            return source, name
    return None, ""


def _status(told: Fields | None, given: Fields | None, said: set[str]) -> str:
    noted = told.maybe_text("status") if told is not None else None
    status = _SAID.get(noted or "", "error" if "error" in said else "ok")
    if status != "ok" and given is not None and _DENIED in (given.raw("error") or ""):
        return "denied"
    return status
