"""The arguments of a Gemini call that come as values at JSON paths, put together as one JSON object."""

from __future__ import annotations

import re
from typing import Any, Final

from projector.formats.shared.stream import need_text
from projector.json_text import JsonText, dump, split

_STEP: Final = re.compile(r"""\.([^.\[\]]+)|\[(\d{1,9})\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""")
_VALUES: Final = ("stringValue", "numberValue", "boolValue", "nullValue", "structValue", "listValue")


Partial = tuple[str, str | None, str]
"""A path, of which sort its value is, and the text or JSON of it."""


def read_partials(sources: list[JsonText]) -> list[Partial]:
    """What `partialArgs` say. Raises `InvalidJson`, `FormatError`."""
    partials: list[Partial] = []
    for source in sources:
        fields = split(source)
        name = next((name for name in _VALUES if name in fields), None)
        value = "" if name is None else need_text(fields, name) if name == "stringValue" else fields[name]
        partials.append((need_text(fields, "jsonPath") if "jsonPath" in fields else "", name, value))
    return partials


class _Leaf:
    """A value: the pieces of a text, or JSON text as it came."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.given: JsonText | None = None

    def text(self) -> JsonText:
        return dump("".join(self.pieces)) if self.given is None else self.given


class Arguments:
    """Grows by `partialArgs`. What does not fit makes them bad; they are never guessed."""

    def __init__(self) -> None:
        self._root: dict[str, Any] = {}
        self._is_bad = False

    def take(self, partials: list[Partial]) -> None:
        """The values of one chunk. A text that goes on is joined to what its path has."""
        for path, name, value in partials:
            leaf = self._leaf(path)
            if leaf is None or name is None:
                self._is_bad = True
            elif name == "stringValue":
                leaf.pieces.append(value)
            else:
                leaf.given = "null" if name == "nullValue" else value

    def text(self) -> JsonText | None:
        """All of them as a JSON object, None where they do not fit together."""
        return None if self._is_bad else _write(self._root)

    def _leaf(self, path: str) -> _Leaf | None:
        steps = _steps(path)
        if not steps:
            return None
        here: Any = self._root
        for step, following in zip(steps, [*steps[1:], None], strict=True):
            fresh: Any = _Leaf() if following is None else [] if isinstance(following, int) else {}
            if isinstance(step, int) and isinstance(here, list) and step <= len(here):
                if step == len(here):
                    here.append(fresh)
            elif isinstance(step, str) and isinstance(here, dict):
                here.setdefault(step, fresh)
            else:
                return None
            here = here[step]
        return here if isinstance(here, _Leaf) else None


def _steps(path: str) -> list[str | int]:
    steps: list[str | int] = []
    at = 1 if path.startswith("$") else len(path)
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None:
            return []
        name, index, single, double = match.groups()
        quoted = single if single is not None else double
        steps.append(int(index) if index is not None else name if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
        at = match.end()
    return steps


def _write(value: Any) -> JsonText:
    """Bottom up and without recursion: a path may be as deep as its sender likes."""
    done: list[JsonText] = []
    waiting: list[tuple[Any, bool]] = [(value, False)]
    while waiting:
        node, is_open = waiting.pop()
        if isinstance(node, _Leaf):
            done.append(node.text())
        elif not is_open:
            waiting.append((node, True))
            waiting += [(child, False) for child in (node.values() if isinstance(node, dict) else node)]
        else:
            parts = [done.pop() for _ in range(len(node))]
            if isinstance(node, dict):
                done.append("{" + ",".join(f"{dump(name)}:{part}" for name, part in zip(node, parts, strict=True)) + "}")
            else:
                done.append("[" + ",".join(parts) + "]")
    return done[0]
