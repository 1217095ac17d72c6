"""What is imported, and when: who asks for one thing need not wait for all of them, and still sees the types of all."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import os
import statistics
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from ledger import open_ledger
from ledger.admin.commands import PLACES, load
from projector.formats.registry import NAMED, READERS, STREAM_WRITERS, STREAMS, WRITERS
from tests.test_house_rules import PACKAGES, ROOT, sources

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NOT_BY_IMPORT: Final = {"asyncio", "sqlite3", "aiosqlite", "anyio", "ledger.ledger", "stream.sqlite", "projector"}
NOT_BY_OPENING: Final = {
    *("structlog", "typer", "click", "rich", "pydantic", "httpx", "starlette", "uvicorn", "yaml", "pytest"),
    *("importlib.metadata", "importlib.resources", "email", "zipfile"),
    *("ledger.admin", "ledger.http", "ledger.history", "ledger.upkeep", "ledger.context", "ledger.exports"),
    *("ledger.transfer.sources", "ledger.transfer.file_import", "ledger.transfer.importing", "ledger.transfer.jsonl"),
    *("projector.context.pipeline", "projector.formats.outgoing", "projector.formats.recordings"),
    *(f"projector.formats.{name.replace('-', '_')}" for name in NAMED),
}
NOT_BY_HELP: Final = {"asyncio", "sqlite3", "pydantic", "rich.console", "ledger.admin.listing", "ledger.ledger", "projector"}
NOT_BY_LISTING: Final = {*NOT_BY_OPENING, "rich.progress", "ledger.admin.context"} - {
    *("ledger.admin", "typer", "rich"),
    *("zipfile", "importlib.resources"),  # the loop of anyio's has them
}
ROUNDS: Final = 9
FACES: Final = [path for package in PACKAGES for path in sources(package) if "_on_demand(" in path.read_text(encoding="utf-8")]
LOADED: Final = """
import json, sys
told = []
def tell():
    told.append(list(sys.modules))
{}
print(json.dumps(told))
"""


def loaded(program: str) -> list[set[str]]:
    """What was imported at each `tell()` of a program."""
    done = subprocess.run([sys.executable, "-c", LOADED.format(program)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [set(names) for names in json.loads(done.stdout.splitlines()[-1])]


def test_an_import_loads_nothing_that_is_not_asked_for() -> None:
    [imported, opened] = loaded("import ledger; tell(); from ledger import open_ledger; import ledger.ledger; tell()")
    assert "ledger" in imported
    assert not imported & (NOT_BY_IMPORT | NOT_BY_OPENING)
    assert opened >= {"ledger.ledger", "ledger.runs.run", "stream.sqlite"}
    assert not opened & NOT_BY_OPENING


@pytest.mark.anyio
async def test_a_command_loads_what_it_needs(tmp_path: Path) -> None:
    data = str(tmp_path / "a.db")
    async with open_ledger(data):
        pass
    helped, looked = loaded(f"""
import contextlib, io
from ledger.admin.app import run_app
for words in (["--help"], ["--data", {data!r}, "conversations"]):
    sys.argv = ["tailfold", *words]
    with contextlib.redirect_stdout(io.StringIO()):
        assert run_app() == 0
    tell()
""")
    assert not helped & NOT_BY_HELP
    assert "ledger.admin.listing" in looked
    assert not looked & NOT_BY_LISTING


def test_a_command_that_lives_long_leaves_no_garbage(tmp_path: Path) -> None:
    """What is imported is not looked through; from then on the collector looks as in any other program."""
    program = """
import gc, sys
before = gc.get_threshold()
sys.argv = ["tailfold", "--data", "none.db", "stats"]
from ledger.admin import main
try:
    main()
except SystemExit:
    assert gc.get_threshold() == before, gc.get_threshold()
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_format_is_loaded_when_it_is_asked_for() -> None:
    [before, after] = loaded("from projector.formats import READERS; sorted(READERS); tell(); READERS['pi']; tell()")
    assert {name for name in after - before if name.startswith("projector.formats.")} >= {"projector.formats.pi"}
    assert not after & {"projector.formats.anthropic", "projector.formats.chat"}


@pytest.mark.parametrize("path", FACES, ids=lambda path: str(path.relative_to(ROOT)))
def test_types_and_names_of_a_face_are_the_same(path: Path) -> None:
    """What tools read stands under `TYPE_CHECKING`, and what programs get beside it, in a table."""
    module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
    [block] = [
        node for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and node.orelse
    ]  # fmt: skip
    typed = {alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    [call] = [node for node in ast.walk(ast.Module(block.orelse, [])) if isinstance(node, ast.Call)]
    table: dict[str, str] = ast.literal_eval(call.args[1])
    assert {name: home for home, names in table.items() for name in names.split()} == typed
    assert all(getattr(module, name) is getattr(importlib.import_module(str(home)), name) for name, home in typed.items())
    assert set(typed) <= set(module.__all__) <= set(dir(module))
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        module.nonsense  # noqa: B018


def test_the_roles_of_formats_are_those_they_have() -> None:
    for name, each in NAMED.items():
        assert (each.stream is not None) == (name in STREAMS), name
        assert (each.read is not None) == (name in READERS), name
        assert (each.write is not None) == (name in WRITERS), name
        assert (each.write_stream is not None) == (f"{name}-stream" in STREAM_WRITERS), name


@pytest.mark.parametrize("name", PLACES)
def test_a_command_is_told_of_as_it_tells_of_itself(name: str) -> None:
    command = load(name)
    assert command.name == name
    assert PLACES[name].summary == inspect.cleandoc(command.help).partition("\n\n")[0].replace("\n", " ")


def cpu_ms(command: Sequence[str], environment: dict[str, str]) -> float:
    """What a process used of the processor, its own and the system's for it."""
    child = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    return (used.ru_utime + used.ru_stime) * 1000


@pytest.mark.heavy
@pytest.mark.anyio
async def test_a_start_takes_no_more_than_a_few_of_what_any_program_like_it_takes(tmp_path: Path) -> None:
    """Medians of rounds in which each is measured in its turn, so that whatever else goes on is in all of them alike."""
    data = str(tmp_path / "a.db")
    async with open_ledger(data) as ledger:
        for number in range(20):
            async with ledger.run(f"c{number}") as run:
                await run.message("user", "Hi")
    admin = [sys.executable, "-m", "ledger.admin"]
    commands: dict[str, list[str]] = {
        "nothing": [sys.executable, "-c", "pass"],
        "any program": [sys.executable, "-c", "import asyncio, sqlite3, msgspec"],
        "import ledger": [sys.executable, "-c", "import ledger"],
        "open_ledger": [sys.executable, "-c", "from ledger import open_ledger"],
        "--help": [*admin, "--help"],
        "conversations": [*admin, "--data", data, "conversations"],
    }
    environment = os.environ | {"PYTHONPYCACHEPREFIX": str(tmp_path / "compiled"), "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    measured: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(ROUNDS + 1):
        for name, command in commands.items():
            used = cpu_ms(command, environment)
            if number:  # the first one compiles
                measured[name].append(used)
    took: dict[str, Any] = {name: statistics.median(values) for name, values in measured.items()}
    unit = took["any program"] - took["nothing"]
    ratios = {name: round((used - took["nothing"]) / unit, 2) for name, used in took.items()}
    allowed = {"import ledger": 2, "open_ledger": 3, "--help": 3, "conversations": 4}
    assert not {name: (ratios[name], most) for name, most in allowed.items() if ratios[name] > most}, ratios
