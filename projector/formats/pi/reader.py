"""Sessions of the pi coding agent, versions 1 to 3: a line of entries, or a tree of them in one file.

Entries that are no messages (another model, another thinking level, compactions, labels) change nothing that was said;
they are kept with the message they follow. Version 1 has no ids: there each entry follows the one before it.
Source: the session format document of pi-mono, `docs/session.md`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from projector.formats.format import FormatError
from projector.formats.shared.blocks import kept_block, media_block, part_kept, part_media, part_said, part_text
from projector.formats.shared.fields import Fields, lines_of
from projector.formats.shared.history import History, HistoryMessage, Loss, result_draft, text_block
from projector.formats.shared.makers import ANTHROPIC
from projector.formats.shared.parents import behind_parents
from projector.formats.shared.payloads import opaque
from projector.json_text import JsonText, dump, is_json
from projector.message import Block
from projector.run_draft import Usage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from projector.events import Outcome

PROVIDER: Final = "pi"
_EXPECTED: Final = 'a pi session was expected: it begins with {"type": "session", "id": …}'
_ENTRY: Final = ("type", "id", "parentId", "timestamp", "message")
_ASSISTANT: Final = ("role", "content", "provider", "model", "usage", "stopReason", "timestamp", "errorMessage", "responseId")
_RESULT: Final = ("role", "content", "toolCallId", "isError", "timestamp")
_BASH: Final = ("role", "output", "timestamp")
_ROLES: Final = (
    "user", "assistant", "toolResult", "bashExecution", "branchSummary", "compactionSummary", "custom", "hookMessage",
)  # fmt: skip
_ENDS: Final[dict[str, Outcome]] = {"error": "failed", "aborted": "cancelled"}
_SUMMARY: Final = "The following is a summary of a branch that this conversation came back from:\n\n"


def read(text: str) -> Iterator[History]:
    """The conversation of a session file, or one message of it.

    Raises `FormatError` with the line and what was expected, behind the conversation as far as it could be read.
    """
    lines = lines_of(text)
    first = next(lines, None)
    if first is None:
        raise FormatError(f"the file is empty: {_EXPECTED}")
    if (message := _lone_message(text)) is not None:
        yield History((_message(message),))
        return
    header = Fields(*first)
    if header.maybe_text("type") != "session":
        raise header.wrong(f"{_EXPECTED}, not with {sorted(header.names())[:8]}")
    session = _Session(header)
    broken: FormatError | None = None
    entries: list[Fields] = []
    try:
        for line, place in lines:
            entries.append(Fields(line, place))
    except FormatError as error:
        broken = error
    try:
        for entry in behind_parents(entries, "id", "parentId"):
            session.take(entry)
    except FormatError as error:
        broken = error
    yield session.history()
    if broken is not None:
        raise broken


class _Session:
    """The entries of a file, taken in one by one."""

    def __init__(self, header: Fields) -> None:
        self._header = header
        self._drafts: list[HistoryMessage] = []
        self._at: dict[str, int | None] = {}  # the message an entry is, or follows
        self._last: int | None = None
        self._notes: dict[int | None, dict[str, list[JsonText]]] = {}
        self._title: str | None = None
        self._losses: list[Loss] = []

    def take(self, entry: Fields) -> None:
        kind, own = entry.text("type"), entry.maybe_text("id")
        at = self._parent(entry)
        draft = _draft(entry, kind)
        if draft is not None:
            self._drafts.append(replace(draft, parent=at, metadata=entry.rest(*_ENTRY) | draft.metadata | _ids(entry)))
            at = len(self._drafts) - 1
        else:
            if kind == "message":
                self._losses.append(Loss(f"{entry.place}: a message of a role that is not known is kept as a note"))
            self._notes.setdefault(at, {}).setdefault(kind, []).append(entry.source)
            if kind == "session_info":
                self._title = entry.maybe_text("name") or self._title
        self._last = at
        if own is not None:
            self._at[own] = at

    def history(self) -> History:
        metadata = self._header.rest("type", "id")
        drafts = list(self._drafts)
        for at, notes in self._notes.items():
            told = {kind: f"[{','.join(sources)}]" for kind, sources in notes.items()}
            if at is None:
                metadata |= told
            else:
                drafts[at] = replace(drafts[at], metadata=drafts[at].metadata | told)
        return History(tuple(drafts), self._header.maybe_text("id"), self._title, metadata, tuple(self._losses))

    def _parent(self, entry: Fields) -> int | None:
        if "id" not in entry:  # version 1
            return self._last
        parent = entry.maybe_text("parentId")
        if parent is not None and parent not in self._at:
            self._losses.append(Loss(f"{entry.place}: the entry it hangs on ({parent}) is not in this file"))
        return self._at.get(parent) if parent is not None else None


def _draft(entry: Fields, kind: str) -> HistoryMessage | None:
    """An entry as a message, if it is one that the model sees."""
    if kind == "message":
        if entry.need("message").text("role") not in _ROLES:
            return None
        draft = _message(entry.need("message"))
        return draft if draft.created_at is not None else replace(draft, created_at=entry.time("timestamp"))
    time = entry.time("timestamp")
    if kind == "custom_message":
        return HistoryMessage("user", _blocks(entry), name=entry.maybe_text("customType"), created_at=time)
    if kind == "branch_summary":
        return HistoryMessage("user", (text_block(_SUMMARY + entry.text("summary")),), name="branchSummary", created_at=time)
    return None


def _message(message: Fields) -> HistoryMessage:
    role, time = message.text("role"), message.time("timestamp")
    if role == "assistant":
        return _answer(message, time)
    if role == "toolResult":
        parts = f"[{','.join(_part(item) for item in message.objects('content'))}]"
        status = "error" if message.is_true("isError") else "ok"
        result = result_draft(message.text("toolCallId"), parts, status=status, created_at=time)
        return replace(result, metadata=message.rest(*_RESULT))
    if role == "bashExecution":
        return HistoryMessage(
            "user", (text_block(_shell(message)),), name="bash", created_at=time, metadata=message.rest(*_BASH)
        )
    if role in ("branchSummary", "compactionSummary"):
        return HistoryMessage("user", (text_block(message.text("summary")),), name=role, created_at=time)
    rest = message.rest("role", "content", "timestamp")
    return HistoryMessage("user", _blocks(message), name=message.maybe_text("customType"), created_at=time, metadata=rest)


def _answer(message: Fields, time: int | None) -> HistoryMessage:
    reason, provider = message.maybe_text("stopReason"), message.maybe_text("provider")
    ends = _ENDS.get(reason or "")
    error = message.raw("errorMessage")
    return HistoryMessage(
        "assistant",
        tuple(_block(item, provider or PROVIDER) for item in message.objects("content")),
        status="partial" if ends else "complete",
        provider_ref=message.maybe_text("responseId"),
        created_at=time,
        metadata=message.rest(*_ASSISTANT),
        usage=_usage(message.object("usage")),
        model=message.maybe_text("model"),
        provider=provider,
        ends_run=ends,
        finish_reason=reason,
        error=f'{{"message":{error}}}' if error is not None else None,
    )


def _blocks(message: Fields) -> tuple[Block, ...]:
    if (message.raw("content") or "").startswith('"'):
        text = message.text("content")
        return (text_block(text),) if text else ()
    return tuple(_block(item, PROVIDER) for item in message.objects("content"))


def _block(item: Fields, provider: str) -> Block:
    kind = item.text("type")
    if kind == "text":
        return _signed(item, provider, Block("text", text=item.text("text")), "textSignature")
    if kind == "thinking":
        return _signed(item, provider, Block("reasoning", text=item.text("thinking")), "thinkingSignature")
    if kind == "toolCall":
        torn = item.maybe_text("partialJson")
        call = Block("tool_call", name=item.text("name"), tool_call_id=item.text("id"), text=item.raw("arguments") or "{}")
        # `partialJson` stays only where the call broke off: its arguments are a guess at what was meant.
        return replace(call, text=torn) if torn is not None else _signed(item, provider, call, "thoughtSignature")
    if kind == "image" and (data := item.maybe_text("data")):
        return media_block(item.maybe_text("mimeType"), data=data)
    return kept_block(PROVIDER, item.source, kind)


def _signed(item: Fields, provider: str, block: Block, name: str) -> Block:
    """A whole block with its signature; of some providers it is a whole item, which is theirs and stays as it is."""
    signature = item.maybe_text(name)
    known = {"type", "text", "thinking", "id", "name", "arguments", name}
    parse = "ok" if block.kind == "tool_call" else None
    if signature and signature.startswith("{") and is_json(signature):
        return replace(block, sealed=True, parse=parse, opaque=opaque(provider, signature))
    kept = opaque(provider, item.source) if item.names() - known or (signature and provider != ANTHROPIC) else None
    return replace(block, sealed=True, parse=parse, signature=signature or None, opaque=kept)


def _part(item: Fields) -> JsonText:
    kind = item.maybe_text("type")
    if kind == "text" and item.names() > {"type", "text"}:
        return part_said(PROVIDER, item.text("text"), item.source)
    if kind == "text":
        return part_text(item.text("text"))
    if kind == "image" and item.names() <= {"type", "data", "mimeType"}:
        return part_media(item.maybe_text("mimeType"), data=item.maybe_text("data"))
    return part_kept(PROVIDER, item.source)


def _shell(message: Fields) -> str:
    """What a user ran in the shell, as pi tells it to the model."""
    output, code = message.maybe_text("output"), message.whole("exitCode")
    said = f"Ran `{message.text('command')}`\n" + (f"```\n{output}\n```" if output else "(no output)")
    if message.is_true("cancelled"):
        said += "\n\n(command cancelled)"
    elif code:
        said += f"\n\nCommand exited with code {code}"
    if message.is_true("truncated") and "fullOutputPath" in message:
        said += f"\n\n[Output truncated. Full output: {message.text('fullOutputPath')}]"
    return said


def _usage(usage: Fields | None) -> Usage | None:
    """Tokens as totals: pi counts what is cached beside the input."""
    if usage is None:
        return None
    fresh, cached, written, output = (usage.whole(name) for name in ("input", "cacheRead", "cacheWrite", "output"))
    total = None if fresh is None else fresh + (cached or 0) + (written or 0)
    return Usage(total, output, cached, written, None, usage.source)


def _ids(entry: Fields) -> dict[str, JsonText]:
    own = entry.maybe_text("id")
    return {"entryId": dump(own)} if own is not None else {}


def _lone_message(text: str) -> Fields | None:
    """A file that is one message and no session."""
    found: Any = None
    if text.lstrip()[:1] == "{" and is_json(text):
        found = Fields(text, "the document")
    return found if found is not None and "role" in found and "type" not in found else None
