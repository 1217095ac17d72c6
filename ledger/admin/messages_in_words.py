"""Messages as a person reads them: who says what, when, by which model; tool calls and results in words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rich.cells import cell_len
from rich.text import Text

from ledger.admin.output import moment
from ledger.admin.wrapping import wrapped
from ledger.signs import one_line, printable
from projector.json_text import InvalidJson, decode, plain, readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from projector import Block, Message

MOST_LINES: Final = 40
"""What a terminal is shown of one result at most; there is more in `--json`, and in a pipe."""
_ROLE_STYLE: Final = {"user": "bold blue", "assistant": "bold green", "tool": "bold magenta"}
_SAID: Final = {"text": "", "refusal": "(refuses) ", "reasoning": "(thinks) ", "redacted_reasoning": "(thinks) "}
_CALLS: Final = ("tool_call", "server_tool_call")
_RESULTS: Final = ("tool_result", "server_tool_result")
_MEDIA: Final = re.compile(r'"media_id"\s*:\s*"(\w+)"|tailfold:media/([0-9a-f]{64})')
_URL: Final = re.compile(r'"(?:url|uri|file_uri|fileUri)"\s*:\s*"(https?://[^"]+)"')
_SHORT: Final = 60
_DEEPEST: Final = 6


class Told(NamedTuple):
    """What a message itself does not say: its run's model, what its tool calls are called, and how wide it may be shown."""

    models: Mapping[str, str]
    tools: Mapping[str, str]
    width: int | None = None

    @classmethod
    def of(cls, messages: Iterable[Message], models: Mapping[str, str], width: int | None) -> Told:
        """Knows the tools that are called in these messages."""
        calls = [block for message in messages for block in message.blocks if block.kind in _CALLS]
        return cls(models, {block.tool_call_id or "": block.name or "" for block in calls}, width)


def describe(message: Message, told: Told, *, is_open: bool = False) -> Text:
    """A message, with an empty line behind it. Of an open run none needs to be whole."""
    text = _head(message, told, is_open=is_open)
    for block in message.blocks:
        for line, style in _lines(block, told):
            text.append("  " + line if line else "", style).append("\n")
    return text


def brief(message: Message, characters: int) -> str:
    """What it says, in one line of so many characters at most."""
    said = message.text or "  ".join(filter(None, map(_briefly, message.blocks)))
    said = " ".join(said[: 4 * characters].split())
    return said if len(said) <= characters else said[: characters - 1] + "…"


def _briefly(block: Block) -> str:
    if block.kind in _CALLS:
        return f"→ {block.name or 'a tool'}"
    if block.kind in _RESULTS:
        state = "" if block.status in (None, "ok") else f"{block.status}: "
        return f"← {state}" + " ".join(line.strip() for part in _parts(block) for line in _part(part))
    return block.text if block.kind in _SAID else f"[{_named(block)}]"


def _head(message: Message, told: Told, *, is_open: bool) -> Text:
    said = [message.id, moment(message.created_at), told.models.get(message.run_id, "") if message.role == "assistant" else ""]
    notes = ["partial: it was never finished"] if message.status == "partial" and not is_open else []
    name = f" ({one_line(message.name)})" if message.name else ""
    text = Text().append(one_line(message.role) + name, _ROLE_STYLE.get(message.role, "bold"))
    used = cell_len(text.plain)
    for piece in (one_line(piece) for piece in [*said, *notes] if piece):
        is_full = told.width is not None and used + 2 + cell_len(piece) > told.width
        text.append("\n" if is_full else "")
        text.append(f"  {piece}", "dim")
        used = (0 if is_full else used) + 2 + cell_len(piece)
    return text.append("\n")


def _lines(block: Block, told: Told) -> Iterator[tuple[str, str]]:
    """What is shown of a block, each line with its style."""
    width = None if told.width is None else told.width - 2
    if block.kind in _CALLS:
        found = _call(block, width)
    elif block.kind in _RESULTS:
        found = _result(block, told)
    elif block.kind in _SAID:
        style = "italic" if block.kind.endswith("reasoning") else ""
        said = block.text or ("nothing that can be read" if style else "")
        found = [(line, style) for line in (_SAID[block.kind] + printable(said)).split("\n")]
    else:
        found = [(f"[{one_line(_named(block))}]{_space(printable(_thing(block)))}", "")]
    for line, style in found:
        for piece in [line] if width is None else wrapped(line, width):
            yield piece, style
    yield from _marks(block, width)


def _call(block: Block, width: int | None) -> list[tuple[str, str]]:
    name = f"→ {one_line(block.name or 'a tool')}"
    given = block.input
    if given is None:
        state = "" if block.sealed and block.parse != "bad" else "  (its input is no JSON)" if block.sealed else "  (not whole)"
        return [(name + state, "bold"), *(("    " + printable(line), "") for line in block.text.split("\n") if line)]
    short = ", ".join(f"{key}: {_word(value)}" for key, value in given.items()) if isinstance(given, dict) else _word(given)
    whole = f"{name}({one_line(short)})"
    if "\n" not in short and len(short) <= _SHORT and (width is None or cell_len(whole) <= width):
        return [(whole, "bold")]
    return [(name, "bold"), *(("    " + line, "") for line in _outline(given))]


def _result(block: Block, told: Told) -> list[tuple[str, str]]:
    name = one_line(told.tools.get(block.tool_call_id or "") or block.name or block.tool_call_id or "a tool")
    is_well = block.status in (None, "ok")
    head = (f"← {name}" + ("" if is_well else f": {block.status}"), "bold" if is_well else "bold red")
    lines = [line for part in _parts(block) for line in _part(part)]
    left = len(lines) - MOST_LINES if told.width is not None else 0
    shown = [("    " + line, "") for line in (lines[:MOST_LINES] if left > 0 else lines)]
    more = [(f"    … and {left:,} more lines: --json has them all", "dim")] if left > 0 else []
    return [head, *shown, *more]


def _parts(block: Block) -> list[Any]:
    found = plain(block.parts) if block.parts else block.text
    return found if isinstance(found, list) else [found] if found else []


def _part(part: Any) -> list[str]:
    if isinstance(part, dict) and isinstance(part.get("text"), str) and part.get("kind", part.get("type")) in ("text", "data"):
        part = part["text"]
    if isinstance(part, dict):
        media = _media(readable(part))
        if media:
            kind = part.get("media_type") or part.get("kind") or "media"
            return [f"[{one_line(str(kind))}] {one_line(media)}"]
    if isinstance(part, str):
        value = _structure(part)
        return printable(part).split("\n") if value is None else _outline(value)
    return _outline(part)


def _structure(text: str) -> Any:
    """What is JSON all the same, though it came as text."""
    if text[:1] not in ("{", "["):
        return None
    try:
        decode(text)
    except InvalidJson:
        return None
    return plain(text)


def _outline(value: Any, depth: int = 0) -> list[str]:
    """Names and values, one a line, what is within a value below it."""
    if isinstance(value, dict) and value and depth < _DEEPEST:
        pairs = [(f"{one_line(str(name))}:", inner) for name, inner in value.items()]
    elif isinstance(value, list) and value and depth < _DEEPEST:
        pairs = [("-", inner) for inner in value]
    else:
        return printable(_word(value)).split("\n")
    lines = []
    for name, inner in pairs:
        below = _outline(inner, depth + 1)
        if name == "-" or (len(below) == 1 and not (isinstance(inner, dict | list) and inner)):
            lines += [f"{name} {below[0]}", *("  " + line for line in below[1:])]
        else:
            lines += [name, *("  " + line for line in below)]
    return lines


def _word(value: Any) -> str:
    return value if isinstance(value, str) and value else readable(value)


def _thing(block: Block) -> str:
    """What a block of another kind holds: where its bytes are, or what it says."""
    held = block.opaque or block.parts or block.input_text or ""
    return block.text or _media(held) or (held if block.kind not in ("media", "compaction") else "")


def _media(held: str) -> str:
    found = _MEDIA.search(held)
    if found:
        return f"media {found[1] or found[2]}"
    place = _URL.search(held)
    return place[1] if place else ""


def _named(block: Block) -> str:
    return block.media_type or " ".join(word for word in (block.kind, block.name) if word)


def _space(text: str) -> str:
    return f" {text}" if text else ""


def _marks(block: Block, width: int | None) -> Iterator[tuple[str, str]]:
    for citation in map(plain, block.citations):
        source = citation.get("source") if isinstance(citation, dict) else None
        told = source if isinstance(source, dict) else citation if isinstance(citation, dict) else {}
        words = [str(told[name]) for name in ("title", "document_title", "url", "uri") if told.get(name)]
        line = "  source: " + one_line(", ".join(words) or readable(citation))
        yield from ((piece, "dim") for piece in ([line] if width is None else wrapped(line, width)))
    if block.approval is not None:
        asked = plain(block.approval)
        given = asked.get("approved") if isinstance(asked, dict) else None
        answer = "not given yet" if given is None else "given" if given else "refused"
        yield f"    leave to run it: {answer}", "dim"
