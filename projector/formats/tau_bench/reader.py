"""tau-bench: trajectories in the form of OpenAI Chat messages, and dialogues that are shown as plain text.

In the plain text an assistant that only calls a tool says `None`, and the call itself is not there: the result that
follows stands alone, and the loss is told.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from projector.formats.format import FormatError
from projector.formats.shared.blocks import kept_block, part_text
from projector.formats.shared.fields import Fields, is_whole, items_of, lines_of
from projector.formats.shared.history import History, HistoryMessage, Loss, call_block, result_draft, text_block

if TYPE_CHECKING:
    from collections.abc import Iterator

    from projector.events import Role
    from projector.message import Block

PROVIDER: Final = "tau-bench"
_EXPECTED: Final = 'a tau-bench trajectory was expected: an object with "traj", or with "messages_display"'
_ROLES: Final[dict[str, Role]] = {"system": "system", "user": "user", "assistant": "assistant"}
_PLACED: Final = ("role", "content", "tool_calls", "tool_call_id")
_SPEAKER: Final = re.compile(r"^(system|user|assistant|tool): ", re.MULTILINE)
_ERROR: Final = "Error:"  # how the tools of the benchmark say that they failed
_CALLS_ONLY: Final = "None"


def read(text: str) -> Iterator[History]:
    """The conversations of a document: one a line, or one JSON list of them.

    Raises `FormatError` with the place and what was expected, behind the conversations that are whole.
    """
    text = text.removeprefix("\ufeff")
    if text.lstrip()[:1] == "[":
        items = ((item, f"item {number}") for number, item in enumerate(items_of(text, "the document"), 1))
    else:
        items = ((line, place) for line, place in lines_of(text))
    is_empty = True
    for item, place in items:
        is_empty = False
        yield _history(Fields(item, place))
    if is_empty:
        raise FormatError(f"the file is empty: {_EXPECTED}")


def _history(record: Fields) -> History:
    if "traj" in record:
        drafts = [_draft(message) for message in record.objects("traj")]
        task, trial = record.raw("task_id"), record.raw("trial")
        name = None if task is None else f"{task}.{trial}" if trial is not None else task
        return History(tuple(drafts), name, metadata=record.rest("traj"))
    if "messages_display" in record:
        shows = record.text("messages_display")
        shown_drafts, losses = _read_display(shows, record)
        return History(tuple(shown_drafts), metadata=record.rest("messages_display"), losses=losses)
    raise record.wrong(f"{_EXPECTED}, not one with {sorted(record.names())[:8]}")


def _draft(message: Fields) -> HistoryMessage:
    role, said = message.text("role"), message.maybe_text("content") or ""
    metadata = message.rest(*_PLACED)
    if role == "tool":
        return replace(_result(message.text("tool_call_id"), said), metadata=metadata)
    if role not in _ROLES:
        raise message.wrong(f'"role" should be system, user, assistant or tool, not {role!r}')
    texts = (text_block(said),) if said else ()
    return HistoryMessage(_ROLES[role], texts + tuple(_call(call) for call in message.objects("tool_calls")), metadata=metadata)


def _call(call: Fields) -> Block:
    function = call.need("function")
    arguments = function.text("arguments")
    return call_block(function.text("name"), call.maybe_text("id"), arguments, is_json=is_whole(arguments))


def _result(call: str, said: str) -> HistoryMessage:
    return result_draft(call, f"[{part_text(said)}]", status="error" if said.startswith(_ERROR) else "ok")


def _read_display(shows: str, record: Fields) -> tuple[list[HistoryMessage], tuple[Loss, ...]]:
    """Messages as they are shown: each begins a line with its role."""
    found = list(_SPEAKER.finditer(shows))
    if not found or found[0].start() != 0:
        raise record.wrong('"messages_display" should begin with a role, as in "user: …"')
    drafts: list[HistoryMessage] = []
    lost = 0
    for here, following in zip(found, [*found[1:], None], strict=True):
        role = here.group(1)
        said = shows[here.end() : following.start() - 1 if following is not None else len(shows)]
        if role == "tool":
            drafts.append(_result("", said))
        elif role == "assistant" and said == _CALLS_ONLY:
            lost += 1
            drafts.append(HistoryMessage("assistant", (kept_block(PROVIDER, "null"),)))
        else:
            drafts.append(HistoryMessage(_ROLES[role], (text_block(said),) if said else ()))
    return drafts, (Loss(f"{lost} messages only called a tool, and the calls are not in the file"),) if lost else ()
