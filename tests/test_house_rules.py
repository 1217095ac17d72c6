"""The rules of the house, as tests: who imports whom, what is public, how a file is called, how long it is."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import types
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = ("stream", "projector", "ledger")
NEVER_IMPORTED: Final = {"stream": {"projector", "ledger"}, "projector": {"ledger"}, "ledger": set[str]()}
TOP_LEVEL: Final = {"pyproject.toml", "README.md", "ledger", "stream", "projector", "benchmarks", "tests"}
MAX_LINES: Final = 400
FORMATS: Final = ROOT / "projector" / "formats"
NO_FORMATS: Final = {"shared", "outgoing", "recordings", "validators"}
ROLES: Final = {"__init__", "stream_reader", "reader", "writer", "stream_writer", "rules", "parts", "validator"}
PARTS_OF_ROLES: Final = {
    "agui": {"client_view", "fields", "growing", "known", "open", "outgoing_message", "stream_events"},
    "ai_sdk": {"growing", "outgoing_message", "stream_chunks"},
    "bedrock": {"media"},
    "chat": {"calls", "growing", "usage"},
    "claude_code": {"stream_json"},
    "cohere": {"growing"},
    "gemini": {"arguments"},
    "gemini_interactions": {"growing"},
    "pydantic_ai": {"content"},
    "responses": {"growing", "items"},
}
"""What a format truly has beside the roles that all share."""
MADE_OF: Final = {"claude_code": {"anthropic"}, "qwen_code": {"gemini"}}
"""Logs of these programs hold what Anthropic's or Gemini's interface streamed, and are read by its adapter."""
DOCUMENTS: Final = re.compile(
    r"\blaws? \d+\b|\bEVENTS\.md|\bDESIGN\b|\bCONTEXT\b(?! #)|\bHOUSE\b|\bseeds? \d{3}\b|\bfacts/|\bthe design('s)?\b"
)
SQL: Final = re.compile(
    r"""\b(?: SELECT\s.*\bFROM | INSERT\s+(?:OR\s+\w+\s+)?INTO | UPDATE\s+\S+\s+SET | DELETE\s+FROM
    | PRAGMA\s | VACUUM | WITH\s+RECURSIVE)\b""",
    re.DOTALL | re.VERBOSE,
)
DIALECT: Final = re.compile(
    r"""\?(?!\d) | \bIS\s+(?!NULL|NOT\s+NULL) | \b(?:max|min)\([^()]*, | \b(?:instr|glob|ifnull|json_\w+|total|rowid)\b
    | \bINSERT\s+OR\b | \bREPLACE\s+INTO\b | LIMIT\s+-1 | \bPRAGMA\b | \bWHERE\s+on_path\s*(?!\s|=|>) """,
    re.IGNORECASE | re.VERBOSE,
)


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


def test_nothing_below_the_facade_knows_it() -> None:
    """Operations work on `Engine`; the facade is for those who open a ledger, serve it, and for the command line."""
    above = {"__init__.py", "opening.py", "admin", "http", "transfer"}
    below = [path for path in sources("ledger") if path.relative_to(ROOT / "ledger").parts[0] not in above]
    assert not [str(path) for path in below if re.search(r"^\s*(from|import) ledger\.ledger\b", path.read_text(), re.MULTILINE)]


def test_the_tables_of_the_ledger_know_no_operation() -> None:
    """What is done with them stands above them, and reads no log there."""
    known = r"^\s*(from|import) (ledger\.(?!tables\b|errors\b|records\b)|stream\b.*\bEventStore\b)"
    room = [path for path in sources("ledger") if path.parent.name == "tables"]
    assert not [str(path) for path in room if re.search(known, path.read_text(), re.MULTILINE)]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_no_tests_and_no_benchmarks(package: str) -> None:
    assert not [path for path in sources(package) if imported(path) & {"tests", "benchmarks"}]


def strings(path: Path) -> list[str]:
    """The texts of a module that are no docstrings, the pieces of f-strings joined."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    joined = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    parts = {id(part) for node in joined for part in ast.walk(node) if part is not node}
    texts = [
        "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        for node in joined
        if id(node) not in told | parts
    ]
    return texts + [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told | parts
    ]


def test_sql_of_the_ledger_lies_in_its_room() -> None:
    typed_by_people = "examples.py"
    outside = [path for path in sources("ledger") if path.parent.name != "tables" and path.name != typed_by_people]
    assert not [(path.name, text) for path in outside for text in strings(path) if SQL.search(text)]


def test_the_ledger_speaks_the_sql_that_databases_share() -> None:
    """Whatever else a database could do for it, the tables do."""
    room = [(path.name, text) for path in sources("ledger") if path.parent.name == "tables" for text in strings(path)]
    statements = [(name, text) for name, text in room if SQL.search(text)]
    assert len(statements) > 50
    assert not [(name, text) for name, text in statements if DIALECT.search(text)]


def test_canary_the_rules_of_sql_see_what_they_forbid(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        'def f(x):\n    """SELECT 1 FROM a docstring"""\n    return f"SELECT {x} FROM t WHERE a IS {x} LIMIT ?"\n'
    )
    [text] = strings(module)
    assert SQL.search(text)
    for bad in ("a IS ?1", "max(a, ?3)", "instr(a, ?1)", "INSERT OR IGNORE INTO t", "a = ?", "json_each(?1)", "LIMIT -1"):
        assert DIALECT.search(f"SELECT 1 FROM t {bad}")
    for good in ("a IS NULL", "a IS NOT NULL", "max(seq) + 1", "WHERE a = ?1", "substr(a, 1, 2)"):
        assert not DIALECT.search(f"SELECT 1 FROM t {good}")


OUTPUT: Final = re.compile(
    r"""(?<![.\w])print\( | \bsys\.(?:__)?std(?:out|err)\b | \btyper\.(?:echo|secho|style|prompt)\b | \bConsole\(
    | \brich\ import""",
    re.VERBOSE,
)


def test_nothing_of_the_commands_goes_round_the_one_way_to_the_terminal() -> None:
    """What others wrote is shown by it as signs; whoever printed by himself would show it as it is."""
    allowed = ("output", "standard_error", "__init__")
    others = [path for path in sources("ledger") if path.parent.name == "admin" and path.stem not in allowed]
    assert len(others) > 10
    assert not [(path.name, found[0]) for path in others if (found := OUTPUT.search(path.read_text(encoding="utf-8")))]


@pytest.mark.parametrize("text", ["print(x)", "sys.stderr.write(x)", "typer.echo(x)", "Console()", "from rich import print"])
def test_canary_a_way_round_is_found(text: str) -> None:
    assert OUTPUT.search(text)
    for fine in ("print_line(x)", "self._console.print(x)", "typer.confirm(x)", "from rich.tree import Tree"):
        assert not OUTPUT.search(fine)


@pytest.mark.parametrize("package", PACKAGES)
def test_connections_to_sqlite_are_made_in_one_place(package: str) -> None:
    """Some Pythons take numbered parameters for names, and warn: there it is seen to."""
    calls = [path for path in sources(package) if re.search(r"\bsqlite3\.(connect|Connection\()", path.read_text())]
    assert [path.stem for path in calls] == (["driver", "backend"] if package == "stream" else [])


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


def modules(package: str) -> dict[str, Path]:
    """The modules of a package by their names; a package is the module of its `__init__`."""
    names = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in sources(package)}
    return {name.removesuffix(".__init__"): path for path, name in names.items()}


def imports_of(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules among the `known` that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in known else node.module for name in inner}
    return found & known.keys()


def circle_of(start: str, graph: dict[str, set[str]]) -> list[str]:
    """The shortest way on which a module imports itself; empty where there is none."""
    ways = [[start]]
    seen: set[str] = set()
    for way in ways:
        for name in sorted(graph[way[-1]]):
            if name == start:
                return [*way, name]
            if name not in seen:
                seen.add(name)
                ways.append([*way, name])
    return []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_modules_import_each_other_in_a_circle(package: str) -> None:
    known = modules(package)
    graph = {name: imports_of(path, known) - {name} for name, path in known.items()}
    assert not [" -> ".join(circle) for name in graph if (circle := circle_of(name, graph))]


def folders() -> list[Path]:
    return [path for path in sorted(FORMATS.iterdir()) if (path / "__init__.py").is_file() and path.name not in NO_FORMATS]


def test_every_format_is_a_folder_and_a_line() -> None:
    registry = importlib.import_module("projector.formats.registry")
    assert [each.name for each in registry.NAMED.values()] == [folder.name.replace("_", "-") for folder in folders()]


@pytest.mark.parametrize("folder", folders(), ids=lambda folder: folder.name)
def test_the_files_of_a_format_have_the_agreed_names(folder: Path) -> None:
    names = {path.stem for path in folder.glob("*.py")}
    assert names - ROLES == PARTS_OF_ROLES.get(folder.name, set())
    assert {"__init__", "reader"} <= names


@pytest.mark.parametrize("folder", folders(), ids=lambda folder: folder.name)
def test_a_format_imports_what_is_shared_and_itself(folder: Path) -> None:
    known = modules("projector")
    allowed = {"format", "shared", "outgoing", folder.name, *MADE_OF.get(folder.name, set())}
    found = {name for path in folder.glob("*.py") for name in imports_of(path, known)}
    inside = {name.removeprefix("projector.formats.") for name in found if name.startswith("projector.formats")}
    assert not {name for name in inside if name.partition(".")[0] not in allowed}


@pytest.mark.parametrize("folder", ["shared", "outgoing"])
def test_what_formats_share_imports_no_format(folder: str) -> None:
    known = modules("projector")
    found = {name for path in (FORMATS / folder).glob("*.py") for name in imports_of(path, known)}
    inside = {
        name.removeprefix("projector.formats.").partition(".")[0] for name in found if name.startswith("projector.formats")
    }
    assert inside <= {"format", "shared", "outgoing"}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_library_points_at_no_document_that_a_user_does_not_have(package: str) -> None:
    texts = [path for path in sorted((ROOT / package).rglob("*")) if path.suffix in {".py", ".sql"}]
    lines = [(path, line) for path in texts for line in path.read_text(encoding="utf-8").splitlines()]
    assert not [f"{path.relative_to(ROOT)}: {line.strip()}" for path, line in lines if DOCUMENTS.search(line)]


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
