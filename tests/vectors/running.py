"""Reads the files of a folder and runs their cases."""

from __future__ import annotations

import copy
import json
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tests.vectors import find_op
from tests.vectors.values import ErrorNames, NotThereError, expand, holds

if TYPE_CHECKING:
    from pathlib import Path


class BadFileError(Exception):
    """What was named holds no vectors."""


@dataclass(frozen=True)
class Outcome:
    verdict: Literal["passed", "failed", "skipped"]
    why: str = ""


def read_folder(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The cases by file name. Other JSON files are passed over; raises `BadFileError` if nothing is left."""
    if not folder.is_dir():
        raise BadFileError(f"{folder}: there is no such folder")
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, OSError) as error:
            raise BadFileError(f"{path}: this can't be read as JSON: {error}") from error
        if isinstance(content, dict) and "cases" in content:
            found[path.name] = _check(path, content["cases"])
    if not found:
        raise BadFileError(f"{folder}: no file in it has cases")
    return found


def run_case(topic: str, case: dict[str, Any]) -> Outcome:
    """Runs one case of a file and says how it went; whatever its op raises is its result."""
    op = find_op(topic, case["given"]["op"])
    if op is None:
        return Outcome("skipped", f"no adapter for op {case['given']['op']!r}")
    given = expand(case["given"])
    before = copy.deepcopy(given)
    trace = ""
    try:
        result = op(given)
    except NotThereError as error:
        return Outcome("skipped", str(error))
    except Exception as error:  # noqa: BLE001 - an error is a result, too
        result = {"error": ErrorNames.of(error), "message": str(error)} | vars(error)
        trace = "\n" + traceback.format_exc()
    if not holds(before, given) or not holds(given, before):
        return Outcome("failed", f"what was given has changed:\n  before {before}\n  after  {given}")
    expected = expand(case["expect"])
    if not holds(expected, result):
        return Outcome("failed", f"{case['what']}\n  expected {expected}\n  result   {result}{trace}")
    return Outcome("passed")


def _check(path: Path, cases: Any) -> list[dict[str, Any]]:
    if not isinstance(cases, list):
        raise BadFileError(f"{path}: its cases are no list")
    for number, case in enumerate(cases):
        if not isinstance(case, dict) or not {"id", "what", "given", "expect"} <= case.keys():
            raise BadFileError(f"{path}: case {number} lacks one of id, what, given, expect")
        if not isinstance(case["given"], dict) or "op" not in case["given"]:
            raise BadFileError(f"{path}: case {case['id']} names no op")
    return cases
