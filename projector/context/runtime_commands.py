"""The runtime commands that a user types between messages: `!model`, `!maxctx`, `!maxusers`, `!sessiontimeout`."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from projector.context.windows import check_limit

_USAGE: Final = {
    "model": "!model NAME",
    "maxctx": "!maxctx N [temp]",
    "maxusers": "!maxusers N",
    "sessiontimeout": "!sessiontimeout MINUTES",
}
_LINE: Final = re.compile(rf"!({'|'.join(_USAGE)})(?:[ \t]+(\S.*))?", re.DOTALL)
_NUMBER: Final = re.compile(r"-?[0-9]{1,30}", re.ASCII)


class BadCommand(ValueError):
    """A command that can't be carried out; the message is the answer to the user. Nothing has changed."""


class SetModel(msgspec.Struct, frozen=True, tag="model"):
    """`!model NAME`: another model from now on."""

    name: str


class SetMaxContext(msgspec.Struct, frozen=True, tag="maxctx"):
    """`!maxctx N`: another ceiling, in messages; with `temp` it is not written to the configuration."""

    n: int
    temp: bool = False


class SetMaxUsers(msgspec.Struct, frozen=True, tag="maxusers"):
    """`!maxusers N`: how many sessions there may be."""

    n: int


class SetSessionTimeout(msgspec.Struct, frozen=True, tag="sessiontimeout"):
    """`!sessiontimeout MINUTES`: when an idle session is saved and let go; 0 is never."""

    n: int


Command = SetModel | SetMaxContext | SetMaxUsers | SetSessionTimeout


def parse_command(text: str) -> Command | None:
    """The command that a user's message consists of; None for ordinary text, also where it only mentions one.

    Raises `BadCommand` with an answer for a command without its argument, with one too many, or a number out of range.
    """
    found = _LINE.fullmatch(text.strip())
    if found is None or "\n" in found[0]:
        return None
    name, words = found[1], (found[2] or "").split()
    temp = name == "maxctx" and words[1:] == ["temp"]
    if len(words) != (2 if temp else 1):
        raise BadCommand(f"use {_USAGE[name]}; nothing was changed")
    if name == "model":
        return SetModel(words[0])
    number = _number(name, words[0], least=0 if name == "sessiontimeout" else 1)
    if name == "maxctx":
        return SetMaxContext(number, temp)
    return SetMaxUsers(number) if name == "maxusers" else SetSessionTimeout(number)


def _number(name: str, word: str, *, least: int) -> int:
    if not _NUMBER.fullmatch(word):
        raise BadCommand(f"{word[:40]!r} is no whole number: use {_USAGE[name]}; nothing was changed")
    try:
        return check_limit(f"!{name}", int(word), least=least)
    except ValueError as error:
        raise BadCommand(f"{error}; nothing was changed") from error
