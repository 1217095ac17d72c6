"""What an installation lacks, and what stands in its way: one line that says what to do."""

from __future__ import annotations

import importlib
import json
import os
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from stream.extras import MissingExtra, needs
from tests.test_house_rules import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PARTS: Final = [
    ("ledger.http", "starlette", "server"),
    ("stream.http", "starlette", "server"),
    ("ledger.http.server", "uvicorn", "server"),
    ("ledger.http.server", "h11", "server"),
    ("stream.client", "httpx", "client"),
    ("stream.client", "httpx_sse", "client"),
    ("ledger.context.summarizer", "httpx", "summarizer"),
    ("stream.nats", "nats", "nats"),
    ("stream.testing", "pytest", "testing"),
    ("stream.testing", "hypothesis", "testing"),
]
WITHOUT: Final = """
import importlib, json, os, sys
told = []
for part, package, _ in json.loads(sys.argv[1]):
    if os.fork() == 0:
        sys.modules[package] = None
        try:
            importlib.import_module(part)
        except ImportError as error:
            os.write(1, (json.dumps([type(error).__name__, str(error), error.name]) + "\\n").encode())
        os._exit(0)
    os.wait()
"""
COMMAND: Final = """
import sys
sys.modules[sys.argv.pop(1)] = None
from ledger.admin import main
main()
"""


@pytest.mark.heavy
def test_a_part_without_its_packages_names_the_extra() -> None:
    command = [sys.executable, "-c", WITHOUT, json.dumps(PARTS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    for (part, package, extra), (kind, said, name) in zip(PARTS, told, strict=True):
        assert (kind, name) == ("MissingExtra", package)
        assert said.endswith(f" needs {package}: pip install 'tailfold[{extra}]'"), part
        assert part.startswith(said.partition(" ")[0]) or said.startswith("stream.http "), part


def test_what_is_missing_is_told_once_and_a_fault_of_our_own_is_no_missing_package() -> None:
    told = r"^inner needs nowhere: pip install 'tailfold\[a\]'$"
    with pytest.raises(MissingExtra, match=told), needs("b", "outer"), needs("a", "inner"):
        importlib.import_module("nowhere.at_all")
    with pytest.raises(ModuleNotFoundError) as fault, needs("a", "inner"):
        importlib.import_module("stream.nowhere")
    assert not isinstance(fault.value, MissingExtra)


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("package", "words", "line"),
    [
        ("typer", "conversations", "tailfold needs typer: pip install 'tailfold[admin]'"),
        ("rich", "conversations", "the command conversations needs rich: pip install 'tailfold[admin]'"),
        ("rich", "tree c", "the command tree needs rich: pip install 'tailfold[admin]'"),
        ("starlette", "serve", "stream.http needs starlette: pip install 'tailfold[server]'"),
        ("uvicorn", "serve", "ledger.http.server needs uvicorn: pip install 'tailfold[server]'"),
        ("httpx", "events c --follow --url http://127.0.0.1:1", "stream.client needs httpx: pip install 'tailfold[client]'"),
        ("yaml", "import a.yaml", 'a.yaml: cassettes need PyYAML: pip install "tailfold[formats]"'),
    ],
)
def test_a_command_without_its_packages_says_so_in_a_line(package: str, words: str, line: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("interactions:\n- request: {}\n")
    command = [sys.executable, "-c", COMMAND, package, "--data", "a.db", *words.split()]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"tailfold: {line}\n")


@pytest.mark.parametrize(("name", "where"), [("stream", "stream.py"), ("projector", "projector/__init__.py")])
def test_a_module_of_the_same_name_beside_a_program_is_named(name: str, where: str, tmp_path: Path) -> None:
    other = tmp_path / where
    other.parent.mkdir(exist_ok=True)
    other.write_text("raise RuntimeError('it is not run')\n")
    (tmp_path / "program.py").write_text("from ledger import open_ledger\n")
    command = [sys.executable, "program.py"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: tailfold is made of the packages stream, projector and ledger, and {other} stands in the place of"
        f" {name}: rename it, or take its folder from the path"
    )


@pytest.mark.heavy
def test_the_demo_and_its_process_work_beside_modules_of_the_same_names(tmp_path: Path) -> None:
    """As the script `tailfold` is run: the folder it is in is not on its path, and not on that of its children."""
    for name in ("stream", "projector", "ledger", "typing"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('it is not run')\n")
    script = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from ledger.admin import main; main()"
    command = [sys.executable, "-P", "-c", script, "demo", "--keep", "demo files"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    head, *commands = done.stdout.splitlines()[-4:]
    assert head == "Three commands to try next:"
    for line in commands:
        program, *words = shlex.split(line)
        assert (program, words[:2]) == ("tailfold", ["--data", "demo files/demo.db"])
        tried = subprocess.run(
            [*command[:4], *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert tried.returncode == 0, tried.stderr
        assert "NJ 471" in tried.stdout
