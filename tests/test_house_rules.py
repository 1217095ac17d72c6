"""The rules of the house, as tests: who imports whom, what is public, how long a file is, code in the README."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = ("stream", "projector", "ledger")
NEVER_IMPORTED: Final = {"stream": {"projector", "ledger"}, "projector": {"ledger"}, "ledger": set[str]()}
TOP_LEVEL: Final = {"pyproject.toml", "README.md", "ledger", "stream", "projector", "benchmarks", "tests"}
MAX_LINES: Final = 400
README: Final = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS: Final = re.findall(r"^```python[^\n]*\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imported(path: Path) -> set[str]:
    """The top-level names a file imports, inside functions and `TYPE_CHECKING` too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_the_arrow_of_imports_goes_one_way(package: str) -> None:
    wrong = {str(path.relative_to(ROOT)): imported(path) & NEVER_IMPORTED[package] for path in sources(package)}
    assert not {path: names for path, names in wrong.items() if names}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_no_tests_and_no_benchmarks(package: str) -> None:
    assert not [path for path in sources(package) if imported(path) & {"tests", "benchmarks"}]


@pytest.mark.parametrize("package", PACKAGES)
def test_all_is_true(package: str) -> None:
    module = importlib.import_module(package)
    names = getattr(module, "__all__", [])
    assert list(names) == sorted(set(names))
    assert not [name for name in names if not hasattr(module, name)]
    public = {name for name, value in vars(module).items() if name[0] != "_" and not isinstance(value, types.ModuleType)}
    future = {"annotations", "TYPE_CHECKING"}
    assert public - future == set(names) - {"__version__"}


@pytest.mark.parametrize("package", PACKAGES)
def test_no_private_name_is_public(package: str) -> None:
    assert not [name for name in getattr(importlib.import_module(package), "__all__", []) if name.startswith("_")]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_ships_its_types(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


@pytest.mark.parametrize("package", PACKAGES)
def test_no_file_grows_a_second_job(package: str) -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in sorted((ROOT / package).rglob("*"))
        if path.suffix in {".py", ".sql"}
    }
    assert not {path: length for path, length in lengths.items() if length > MAX_LINES}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_module_opens_with_a_sentence(package: str) -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in sources(package)}
    assert not [path for path, text in texts.items() if text.strip() and not ast.get_docstring(ast.parse(text))]


def test_the_top_level_holds_only_what_was_agreed() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git working copy")
    entries = {name.partition("/")[0] for name in listed.stdout.split("\0") if name}
    assert not {entry for entry in entries - TOP_LEVEL if not entry.startswith(".")}


def test_the_readme_shows_code() -> None:
    assert BLOCKS, "README.md has no ```python block: show how the library is used"


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_code_of_the_readme_runs(number: int, tmp_path: Path) -> None:
    script = tmp_path / "readme.py"
    script.write_text(BLOCKS[number], encoding="utf-8")
    command = [sys.executable, "-W", "error", str(script)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"block {number} of README.md fails:\n{BLOCKS[number]}\n{done.stderr}"


def strangers(job: ast.AsyncFunctionDef) -> list[int]:
    """The lines where a job waits for something that is neither a statement nor given its `sql`."""
    lines = []
    inner = list(job.body)
    while inner:
        node: ast.AST = inner.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.AsyncFor | ast.AsyncWith) or (isinstance(node, ast.comprehension) and node.is_async):
            lines.append(job.lineno)
        if isinstance(node, ast.Await) and not is_of_the_job(node.value):
            lines.append(node.lineno)
        inner += ast.iter_child_nodes(node)  # type: ignore[arg-type]
    return lines


def is_of_the_job(awaited: ast.expr) -> bool:
    if not isinstance(awaited, ast.Call):
        return False
    given = [awaited.func, *awaited.args, *(keyword.value for keyword in awaited.keywords)]
    return any(isinstance(each, ast.Name) and each.id == "sql" for each in given)


@pytest.mark.parametrize("package", PACKAGES)
def test_jobs_await_only_their_statements(package: str) -> None:
    """So a job can be driven to its end in one trip, and run again where another process was in the way."""
    wrong, jobs = [], 0
    for path in sources(package):
        if "testing" in path.parts:  # there they are run twice, and watched
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.AsyncFunctionDef) and "sql" in {arg.arg for arg in node.args.args}:
                jobs += 1
                wrong += [f"{path.relative_to(ROOT)}:{line} in {node.name}" for line in strangers(node)]
    assert not wrong
    assert jobs or package == "projector"


@pytest.mark.parametrize(
    "body", ["await store.read(1)", "async for row in rows: pass", "[x async for x in y]", "await gather(sql())", "await sql"]
)
def test_a_job_that_awaits_something_else_is_found(body: str) -> None:
    [job] = ast.parse(f"async def job(sql):\n  await sql('')\n  await other(1, sql)\n  {body}").body
    assert isinstance(job, ast.AsyncFunctionDef)
    assert strangers(job)
