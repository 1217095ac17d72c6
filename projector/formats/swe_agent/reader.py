"""SWE-agent trajectories (.traj): the messages of the agent's history, with what each step of the trajectory adds.

A file tells one run twice: `history` holds the messages, `trajectory` the steps. The messages are the conversation;
a step adds its state to the message it gave, and one whose message is not there is kept with the conversation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from projector.formats.format import FormatError
from projector.formats.shared.blocks import kept_block, media_block, part_text
from projector.formats.shared.fields import Fields, is_whole, shown
from projector.formats.shared.history import History, HistoryMessage, call_block, result_draft, text_block
from projector.json_text import InvalidJson, decode, dump

if TYPE_CHECKING:
    from collections.abc import Iterator

    from projector.events import Role
    from projector.json_text import JsonText
    from projector.message import Block

PROVIDER: Final = "swe-agent"
_EXPECTED: Final = 'a SWE-agent trajectory was expected: an object with "history"'
_ROLES: Final[tuple[Role, ...]] = ("system", "developer", "user", "assistant", "tool")
_PLACED: Final = ("role", "content", "tool_calls", "tool_call_ids", "name")
_IN_MESSAGE: Final = ("response", "thought", "action", "observation", "query", "messages")  # what the history says too


def read(text: str) -> Iterator[History]:
    """The conversation of a trajectory. Raises `FormatError` with the place and what was expected."""
    document = Fields(text.removeprefix("\ufeff"), "the trajectory")
    if "history" not in document:
        raise document.wrong(f"{_EXPECTED}, not one with {sorted(document.names())[:8]}")
    steps = document.objects("trajectory")
    drafts: list[HistoryMessage] = []
    outside: list[JsonText] = []
    for message in document.objects("history"):
        made = _drafts(message)
        if made[0].role == "assistant":
            step, passed = _step_of(message, steps)
            outside += passed
            made[0] = replace(made[0], metadata=made[0].metadata | step)
        drafts += made
    outside += [step.source for step in steps]
    metadata = document.rest("history", "trajectory")
    if outside:
        metadata["steps"] = f"[{','.join(outside)}]"
    yield History(tuple(_ended(drafts, document.object("info"))), metadata=metadata)


def _drafts(message: Fields) -> list[HistoryMessage]:
    role = next((role for role in _ROLES if role == message.text("role")), None)
    if role is None:
        raise message.wrong(f'"role" should be one of {", ".join(_ROLES)}, not {message.text("role")!r}')
    metadata = _metadata(message)
    if role == "tool":
        return _results(message, metadata)
    calls = tuple(_call(call) for call in message.objects("tool_calls"))
    return [HistoryMessage(role, _content(message) + calls, name=message.maybe_text("name"), metadata=metadata)]


def _results(message: Fields, metadata: dict[str, JsonText]) -> list[HistoryMessage]:
    """One observation answers all calls of an action: the first has it, the others are closed without parts."""
    said = "".join(block.text for block in _content(message) if block.kind == "text")
    own = message.maybe_text("tool_call_id")
    ids = [_id(text, place) for text, place in message.items("tool_call_ids")] or [own or ""]
    first, *others = ids
    return [
        replace(result_draft(first, f"[{part_text(said)}]"), metadata=metadata),
        *(result_draft(other, "[]") for other in others),
    ]


def _content(message: Fields) -> tuple[Block, ...]:
    content = message.raw("content")
    if content is None or content.startswith('"'):
        text = message.maybe_text("content")
        return (text_block(text),) if text else ()
    return tuple(_block(item) for item in message.objects("content"))


def _block(item: Fields) -> Block:
    if item.maybe_text("type") == "text":
        return text_block(item.text("text"))
    image = item.object("image_url")
    if item.maybe_text("type") == "image_url" and image is not None:
        return media_block(None, url=image.text("url"))
    return kept_block(PROVIDER, item.source, item.maybe_text("type"))


def _call(call: Fields) -> Block:
    function = call.need("function")
    given = function.raw("arguments") or "{}"
    arguments = function.text("arguments") if given.startswith('"') else given
    return call_block(function.text("name"), call.maybe_text("id"), arguments, is_json=is_whole(arguments))


def _metadata(message: Fields) -> dict[str, JsonText]:
    """What the content does not say already: of a response, thought and action are cut from it."""
    content = message.raw("content")
    rest = message.rest(*_PLACED)
    return {name: text for name, text in rest.items() if not (name == "thought" and text == content)}


def _step_of(message: Fields, steps: list[Fields]) -> tuple[dict[str, JsonText], list[JsonText]]:
    """What the step of a response adds, and the steps before it that have no message. Takes them from `steps`."""
    content = message.maybe_text("content") if (message.raw("content") or "").startswith('"') else None
    for at, step in enumerate(steps):
        if content is not None and step.maybe_text("response") == content:
            passed = [other.source for other in steps[:at]]
            del steps[: at + 1]
            return step.rest(*_IN_MESSAGE), passed
    return {}, []


def _ended(drafts: list[HistoryMessage], info: Fields | None) -> list[HistoryMessage]:
    reason = info.maybe_text("exit_status") if info is not None else None
    if reason is None or not drafts:
        return drafts
    ends = "completed" if reason.startswith("submitted") else "failed" if "error" in reason else "incomplete"
    error = dump({"message": reason}) if ends == "failed" else None
    return [*drafts[:-1], replace(drafts[-1], ends_run=ends, finish_reason=reason, error=error)]


def _id(text: JsonText, place: str) -> str:
    try:
        found = decode(text)
    except InvalidJson as error:
        raise FormatError(f"{place}: an id was expected ({error})") from error
    if not isinstance(found, str):
        raise FormatError(f"{place}: an id was expected, not {shown(text)}")
    return found
