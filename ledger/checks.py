"""What the ledger takes of free form, and how turns, runs and pages are named: refused by the parameter's name, or kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from projector import Block
from projector.json_text import InvalidJson, JsonText, dump, encode
from projector.message import read_blocks
from stream.checks import check_kind, check_list, check_mapping, check_name, check_text, refusal, shown
from stream.limits import check_id, check_position

if TYPE_CHECKING:
    from collections.abc import Sequence

_KEPT: Final = "plain values that JSON can say: texts, finite numbers, True, False, None, lists, and dicts with texts as keys"


def check_json(what: str, value: object) -> JsonText:
    """A plain value as JSON text. Raises `InvalidJson` for what would not come back as it is, or not at all."""
    try:
        text = dump(value)
    except InvalidJson as error:
        raise InvalidJson(f"{what} must be {_KEPT}; this is not: {error}") from error
    _check_keys(what, value)
    return text


def check_patch(what: str, value: object) -> dict[str, JsonText]:
    """The fields of a dict, each as JSON text. Raises `ValueError`."""
    given = check_mapping(what, value, "names and values")
    for name in given:
        check_text(f"a name in {what}", name)
    return {name: check_json(f"{what}[{shown(name)}]", field) for name, field in given.items()}


def check_blocks(what: str, value: object) -> JsonText:
    """Blocks as JSON text. Raises `ValueError` for what is no block, or one whose fields are of another type."""
    blocks = check_list(what, value, "Blocks")
    for number, block in enumerate(blocks):
        check_kind(f"{what}[{number}]", block, Block, "a Block")
    try:
        text = encode(msgspec.to_builtins(list(blocks))).decode()
        if read_blocks(text) == list(blocks):
            return text
    except (InvalidJson, TypeError) as error:
        raise ValueError(f"{what} must be Blocks whose fields are of their types: {error}") from error
    raise ValueError(f"{what} must be Blocks whose fields are of their types, and these would not come back as they are")


def check_labels(what: str, value: object) -> list[str]:
    """Returns the labels, or raises `ValueError` for what is no list of texts."""
    return [check_name(f"{what}[{number}]", label) for number, label in enumerate(check_list(what, value, "texts"))]


def check_selections(what: str, value: object) -> None:
    """Raises `ValueError` unless it is None, or maps texts to texts: which turn counts at which message."""
    if value is not None:
        for parent, child in check_mapping(what, value, "message ids, a child for each parent").items():
            check_text(f"a parent in {what}", parent)
            check_text(f"the child of {shown(parent)} in {what}", child)


def check_ids(what: str, value: object) -> list[str]:
    """Returns ids of messages, or raises `ValueError` for what is no collection of texts."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Collection):
        raise refusal(what, "message ids", value)
    return [check_id(f"an id of {what}", one) for one in value]


def check_limit(what: str, value: object) -> None:
    """Raises `ValueError` unless it is None, or a whole number of at least 0."""
    if value is not None:
        check_position(what, value)


def _check_keys(what: str, value: object) -> None:
    """JSON makes texts of keys that are none, and would give two of them the same name."""
    left: list[object] = [value]
    while left:
        one = left.pop()
        if isinstance(one, Mapping):
            for key in one:
                if not isinstance(key, str):
                    raise InvalidJson(f"{what} must have texts as keys, not {shown(key)}")
            left += one.values()
        elif isinstance(one, list | tuple):
            left += _unlisted(one)


def _unlisted(items: Sequence[object]) -> list[object]:
    return [item for item in items if isinstance(item, list | tuple | dict)]
