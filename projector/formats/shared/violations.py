"""What the rules of all providers share: how they are applied, and text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Rule: TypeAlias = "Callable[[Any], Iterator[str]]"
"""The violations of one rule, each beginning with its place in the payload."""


def apply(shape: Rule, rules: Sequence[Rule], payload: Any) -> list[str]:
    """All violations; those of the shape alone where it is wrong, for the other rules rely on it."""
    return list(shape(payload)) or [violation for rule in rules for violation in rule(payload)]


def texts(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Every string in a value, names of fields included, with its place."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from texts(item, f"{place}[{number}]")
    elif isinstance(value, dict):
        for name, item in value.items():
            yield f"{place}.{name!r}", name
            yield from texts(item, f"{place}.{name}")


def lone_surrogates(value: Any, place: str) -> Iterator[str]:
    """Strings that no UTF-8 can hold."""
    for where, text in texts(value, place):
        if any("\ud800" <= character <= "\udfff" for character in text):
            yield f"{where}: a lone surrogate, no UTF-8 can hold it"


def nuls(value: Any, place: str) -> Iterator[str]:
    """Strings with a NUL."""
    for where, text in texts(value, place):
        if "\0" in text:
            yield f"{where}: a NUL"


def is_text(value: Any) -> bool:
    """Whether this is text that says something."""
    return isinstance(value, str) and bool(value.strip())
