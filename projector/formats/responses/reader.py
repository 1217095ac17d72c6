"""Items of the Responses API, as input and output have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from projector.formats.shared.fields import Fields, items_of
from projector.formats.shared.history import History
from projector.formats.shared.openai_messages import ItemReader
from projector.json_text import JsonText, join_fields

if TYPE_CHECKING:
    from collections.abc import Iterator


def read(text: str) -> Iterator[History]:
    """The one history in a document: a list of items, or an object that has it as `input` or as `output`.

    Raises `FormatError` with the place and what was expected.
    """
    text = text.removeprefix("\ufeff")
    metadata: dict[str, JsonText] = {}
    instructions: list[tuple[JsonText, str]] = []
    if text.lstrip().startswith("["):
        items = [(item, f"item {at}") for at, item in enumerate(items_of(text, "the document"))]
    else:
        document = Fields(text, "the document")
        name = next((name for name in ("input", "output") if name in document), None)
        if name is None:
            raise document.wrong('a list of items was expected, or an object with "input" or "output"')
        said = document.raw(name) or ""
        one = join_fields({"role": '"user"', "content": said})
        items = [(one, f'the document, in "{name}"')] if said.startswith('"') else document.items(name)
        metadata = document.rest(name, *(("instructions",) if name == "input" else ()))
        instructions = _instructions(document) if name == "input" else []
    reader = ItemReader()
    for item, place in [*instructions, *items]:
        reader.read(Fields(item, place))
    yield History(tuple(reader.drafts), metadata=metadata)


def _instructions(document: Fields) -> list[tuple[JsonText, str]]:
    """What stands before all that is said: text as a system message, or items as they are."""
    given = document.raw("instructions") or ""
    if given.startswith("["):
        return document.items("instructions")
    text = document.maybe_text("instructions")
    said = join_fields({"role": '"system"', "content": given})
    return [(said, f'{document.place}, in "instructions"')] if text else []
