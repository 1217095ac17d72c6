"""The shared vectors, one test a case, and proof that a wrong one is noticed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.vectors import find_op
from tests.vectors.__main__ import main
from tests.vectors.engines import Engines
from tests.vectors.running import read_folder, run_case

VECTORS = Path(__file__).parents[1].parent / "shared" / "vectors"
CASES = [(name, case) for name, cases in (read_folder(VECTORS) if VECTORS.is_dir() else {}).items() for case in cases]


ON_SERVERS = ("log.json", "branches.json")
THERE = [(name, case) for name, case in CASES if find_op(name.removesuffix(".json"), case["given"]["op"])]


@pytest.mark.parametrize(("name", "case"), [pytest.param(name, case, id=f"{name}:{case['id']}") for name, case in THERE])
def test_every_vector_holds(name: str, case: dict[str, Any]) -> None:
    outcome = run_case(name.removesuffix(".json"), case)
    assert outcome.verdict == "passed", outcome.why


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("name", "case"), [pytest.param(name, case, id=f"{name}:{case['id']}") for name, case in THERE if name in ON_SERVERS]
)
def test_every_vector_of_logs_and_branches_holds_on_servers(name: str, case: dict[str, Any]) -> None:
    with Engines.all():
        outcome = run_case(name.removesuffix(".json"), case)
    assert outcome.verdict == "passed", outcome.why


def test_every_vector_has_an_adapter() -> None:
    if not CASES:
        pytest.skip("the shared vectors are not beside this repository")
    missing = Counter(f"{name} {case['given']['op']}" for name, case in CASES if (name, case) not in THERE)
    if missing:
        pytest.skip(f"{missing.total()} cases wait for code: {dict(missing)}")


def _write(folder: Path, expect: Any, steps: list[dict[str, Any]] | None = None) -> None:
    given = {"op": "steps", "steps": steps or [{"do": "append", "events": ["a"]}]}
    case = {"id": "canary", "what": "A canary.", "given": given, "expect": expect, "source": "here"}
    (folder / "canary.json").write_text(json.dumps({"about": "a canary", "ops": {}, "cases": [case]}))


def test_a_wrong_expectation_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _write(tmp_path, {"results": [{"first": 2, "last": 2}]})
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "0 passed, 1 failed, 0 skipped"


def test_a_right_expectation_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _write(tmp_path, {"results": [{"first": 1, "last": 1, "duplicate": False}]})
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 0 failed, 0 skipped"


def test_an_error_that_was_not_raised_is_a_failure(tmp_path: Path) -> None:
    _write(tmp_path, {"results": [{"error": "ValueError"}]})
    assert main([str(tmp_path)]) == 1


def test_an_unknown_op_is_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = {"id": "x", "what": "x", "given": {"op": "no such op"}, "expect": {}, "source": "here"}
    (tmp_path / "x.json").write_text(json.dumps({"cases": [case]}))
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "0 passed, 0 failed, 1 skipped"


@pytest.mark.parametrize("content", [None, "{", '{"about": "no cases"}', '{"cases": [{"id": "a"}]}', '{"cases": 1}'])
def test_a_folder_without_vectors_is_an_error_of_its_own(
    tmp_path: Path, content: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "vectors"
    if content is not None:
        folder.mkdir()
        (folder / "bad.json").write_text(content)
    assert main([str(folder)]) == 2
    assert str(folder) in capsys.readouterr().err
