"""Pydantic AI's message histories: each part of a request a message, each response one.

Requests say again and again the instructions that they were sent with: these are a system message where they are new.
What our own fields do not say of a part, a request or a response stays with its message. Source: `pydantic-ai-slim` 2.68.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from projector.formats.format import FormatError
from projector.formats.pydantic_ai import parts as parts_of
from projector.formats.pydantic_ai.content import PROVIDER, read_item, read_result
from projector.formats.pydantic_ai.parts import SHELL, maker_named
from projector.formats.shared.blocks import kept_block, part_data
from projector.formats.shared.fields import Fields, messages_of, shown
from projector.formats.shared.history import History, HistoryMessage, is_left_out, result_draft, text_block, text_parts
from projector.json_text import JsonText, dump, join_fields
from projector.run_draft import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from projector.events import Role
    from projector.message import Block

_EXPECTED: Final = (
    'Pydantic AI\'s messages were expected: a JSON list, one message, or an object with "messages"; a message has '
    '"kind" ("request" or "response") and "parts"'
)
_TOOLS: Final = ("tool-return", "retry-prompt")
_STATUSES: Final = {"success": "ok", "failed": "error", "retried": "error", "denied": "denied", "interrupted": "interrupted"}
_CUT_OFF: Final = ('"incomplete"', '"interrupted"')


def read(text: str) -> Iterator[History]:
    """The conversation in a list of messages, one of them, or an object with `messages`. Raises `FormatError`."""
    given = messages_of(text, _EXPECTED)
    if isinstance(given, list):
        yield _history(given)
    elif "messages" in given:
        yield replace(_history(given.objects("messages")), metadata=given.rest("messages"))
    elif "kind" in given:
        yield _history([given])
    else:
        raise FormatError(f"{_EXPECTED}, not {shown(given.source)}")


def _history(messages: Sequence[Fields]) -> History:
    reader = _Reader()
    for message in messages:
        reader.take(message)
    names = {message.maybe_text("conversation_id") for message in messages}
    return History(tuple(reader.drafts()), next(iter(names)) if len(names) == 1 else None)


class _Reader:
    """Requests and responses, taken in one by one."""

    def __init__(self) -> None:
        self._drafts: list[HistoryMessage] = []
        self._instructions: str | None = None
        self._unnamed: list[Block] = []  # calls without an id that wait for their result
        self._numbers = itertools.count(1)

    def take(self, message: Fields) -> None:
        """A message. Raises `FormatError` for what is none."""
        kind = message.maybe_text("kind")
        if kind not in ("request", "response") or not (message.raw("parts") or "").startswith("["):
            raise message.wrong(f"{_EXPECTED}, not {shown(message.source)}")
        if kind == "request":
            self._request(message)
        else:
            self._drafts.append(self._response(message))

    def drafts(self) -> Iterator[HistoryMessage]:
        """What was taken. An answer that was cut off ends its run, unless results of its calls follow."""
        for draft, behind in itertools.zip_longest(self._drafts, self._drafts[1:]):
            goes_on = behind is not None and behind.role == "tool"
            yield replace(draft, ends_run="incomplete") if draft.status == "partial" and not goes_on else draft

    def _request(self, message: Fields) -> None:
        time, shells = message.time("timestamp"), message.rest("kind", "parts", "instructions")
        parts = message.objects("parts")
        drafts = [self._part(part, part.text("part_kind")) for part in parts]
        order = sorted(range(len(drafts)), key=lambda at: drafts[at].role != "tool")
        if order != list(range(len(drafts))):
            drafts = [_with_shell(drafts[at], {"at": str(at)}) for at in order]
        told = message.maybe_text("instructions")
        if told and told != self._instructions:
            self._instructions = told
            drafts.insert(0, HistoryMessage("system", (text_block(told),), metadata=_shell({"instructions": "true"})))
        if not drafts:
            drafts = [HistoryMessage("user", (kept_block(PROVIDER, "{}", "request"),))]
        begun = {"request": join_fields(shells)} | ({"instructs": "true"} if told else {})
        drafts[0] = _with_shell(drafts[0], begun)
        if self._drafts and drafts[0].role == "system" and any(draft.role == "user" for draft in drafts):
            self._drafts[-1] = replace(self._drafts[-1], ends_run="completed")  # instructions belong to what follows
        self._drafts += [draft if draft.created_at is not None else replace(draft, created_at=time) for draft in drafts]

    def _part(self, part: Fields, kind: str) -> HistoryMessage:
        """A part of a request. What would leave nothing, or is of a kind that is not known, is kept as it came."""
        if kind in _TOOLS and (kind == "tool-return" or "tool_name" in part):
            return self._result(part, kind)
        read = _PARTS.get(kind)
        blocks = read(part) if read is not None else ()
        role: Role = "system" if kind == "system-prompt" or read is None else "user"
        draft = HistoryMessage(role, blocks, created_at=part.time("timestamp"))
        if is_left_out(draft):
            return replace(draft, blocks=(kept_block(PROVIDER, part.source, kind),))
        form = part.raw("content") or ""
        rest = part.rest("part_kind", "content") | ({"part_kind": dump(kind)} if kind in _NAMED else {})
        is_other = form.startswith("[") and (kind != "user-prompt" or _is_plain(blocks))
        shell = ({"part": join_fields(rest)} if rest else {}) | ({"form": dump("list")} if is_other else {})
        return replace(draft, metadata=_shell(shell))

    def _result(self, part: Fields, kind: str) -> HistoryMessage:
        name, ref = part.text("tool_name"), part.maybe_text("tool_call_id")
        if kind == "tool-return":
            if not part.has("content"):
                raise part.wrong('"content" is not there')
            parts, form = read_result(part.raw("content"), part.place)
            outcome = part.maybe_text("outcome") or "success"
            status = _STATUSES.get(outcome)
            if status is None:
                raise part.wrong(f'"outcome" should be one of {", ".join(_STATUSES)}, not {shown(outcome)}')
        else:
            parts, form, status = _feedback(part), None, "error"
        if ref is None:
            call = next((call for call in self._unnamed if call.name == name), None)
            if call is not None:
                self._unnamed.remove(call)
                ref = call.tool_call_id
        rest = part.rest("part_kind", "content", "tool_call_id") | ({"part_kind": dump(kind)} if kind != "tool-return" else {})
        draft = result_draft(ref or "", parts, status=status, created_at=part.time("timestamp"))
        return replace(draft, metadata=_shell({"part": join_fields(rest)} | ({"form": form} if form else {})))

    def _response(self, message: Fields) -> HistoryMessage:
        maker = maker_named(message.maybe_text("provider_name"))
        parts = message.objects("parts")
        blocks = tuple(self._named(parts_of.read_part(part, maker)) for part in parts)
        self._unnamed = [block for block in blocks if block.kind == "tool_call" and _is_minted(block)]
        draft = HistoryMessage(
            "assistant",
            blocks,
            status="partial" if message.raw("state") in _CUT_OFF else "complete",
            provider_ref=message.maybe_text("provider_response_id") or message.maybe_text("vendor_id"),
            created_at=message.time("timestamp"),
            metadata=_shell({"response": join_fields(message.rest("kind", "parts"))}),
            usage=_usage(message.object("usage")),
            model=message.maybe_text("model_name"),
            provider=maker,
            finish_reason=message.maybe_text("finish_reason"),
        )
        if not is_left_out(draft):
            return draft
        kept = [kept_block(PROVIDER, part.source, part.text("part_kind")) for part in parts]
        return replace(draft, blocks=tuple(kept or [kept_block(PROVIDER, "{}", "response")]))

    def _named(self, block: Block) -> Block:
        """Older calls may have no id: they are answered by name and order, so each is given the id of its place."""
        if block.kind != "tool_call" or block.tool_call_id:
            return block
        return replace(block, tool_call_id=f"{PROVIDER}.{next(self._numbers)}")


def _is_minted(block: Block) -> bool:
    return (block.tool_call_id or "").startswith(f"{PROVIDER}.")


def _prompt(part: Fields) -> tuple[Block, ...]:
    content = part.raw("content") or ""
    if not content.startswith("["):
        return (text_block(part.text("content")),)
    return tuple(read_item(item, place) for item, place in part.items("content"))


def _system(part: Fields) -> tuple[Block, ...]:
    return (text_block(part.text("content")),)


def _retry(part: Fields) -> tuple[Block, ...]:
    """What was wrong with an answer: text, or a list of faults, which is said as its JSON."""
    content = part.raw("content") or ""
    return (text_block(content if content.startswith("[") else part.text("content")),)


def _summary(part: Fields) -> tuple[Block, ...]:
    return (text_block(part.maybe_text("content") or ""),)


def _spoken(part: Fields) -> tuple[Block, ...]:
    return (parts_of.read_speech(part),)


_PARTS: Final[dict[str, Callable[[Fields], tuple[Block, ...]]]] = {
    "system-prompt": _system,
    "user-prompt": _prompt,
    "retry-prompt": _retry,
    "retry-feedback": _retry,
    "compaction": _summary,
    "speech": _spoken,
}
_NAMED: Final = ("retry-prompt", "retry-feedback", "compaction")
"""Parts that are users' messages, and not what a user said."""


def _feedback(part: Fields) -> JsonText:
    content = part.raw("content") or ""
    return f"[{part_data(content)}]" if content.startswith("[") else text_parts(part.text("content"))


def _is_plain(blocks: tuple[Block, ...]) -> bool:
    """Whether text that stands in a list would be the same without one."""
    return len(blocks) == 1 and blocks[0].kind == "text" and blocks[0].opaque is None


def _shell(fields: dict[str, JsonText]) -> dict[str, JsonText]:
    return {SHELL: join_fields(fields)} if fields else {}


def _with_shell(draft: HistoryMessage, fields: dict[str, JsonText]) -> HistoryMessage:
    old = draft.metadata.get(SHELL, "{}")
    return replace(draft, metadata=_shell(Fields(old, "the message").rest() | fields))


def _usage(used: Fields | None) -> Usage | None:
    """What a request used; where nobody told, Pydantic AI writes zeros."""
    if used is None:
        return None
    names = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "output_reasoning_tokens")
    taken, given, cached, written, thought = (used.whole(name) for name in names)
    details = used.object("details")
    if not thought and details is not None:
        thought = details.whole("reasoning_tokens") or details.whole("thoughts_tokens") or thought
    taken, given = taken or used.whole("request_tokens"), given or used.whole("response_tokens")
    if not any((taken, given, cached, written, thought)):
        return None
    return Usage(taken, given, cached, written, thought, used.source)
