"""How commands are called: options of the whole program anywhere, short help with examples that work, guesses led home."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer.main
from structlog.testing import capture_logs

from ledger import open_ledger
from ledger.admin.app import app
from ledger.admin.examples import EXAMPLES
from ledger.admin.guesses import _MEANT, right_command
from tests import fixed_talks
from tests.on_screen import shown
from tests.postgres_server import Shared
from tests.test_commands import SAMPLE

if TYPE_CHECKING:
    from collections.abc import Iterator

LINES = [line for lines in EXAMPLES.values() for line in lines]
SERVER = "postgresql://user@host/database"
WITHOUT_END = {
    "tailfold demo",
    "tailfold demo --keep demo-files",
    "tailfold events trip --follow",
    "tailfold erase trip",
    *EXAMPLES["serve"],
}
"""Those that take long, or ask a person."""
CHAT = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]


def commands(of: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command, groups too, by the words that lead to it."""
    command: Any = typer.main.get_command(app) if of is None else of
    yield " ".join(path), command
    for name in getattr(command, "commands", ()):  # of a group, which loads what is asked for
        yield from commands(command.get_command(None, name), (*path, name))


NAMES = [name for name, _ in commands()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the examples speak of."""
    made = tmp_path_factory.mktemp("examples")

    async def main() -> None:
        async with open_ledger(str(made / "tailfold.db"), durability="normal") as ledger:
            await fixed_talks.fill(ledger)
            await ledger.backup(str(made / "copy.db"))

    with capture_logs():
        asyncio.run(main())
    shutil.copy(made / "tailfold.db", made / "other.db")
    shutil.copy(SAMPLE, made / "stream.sse")
    (made / "chat.json").write_text(json.dumps(CHAT))
    (made / "exports").mkdir()
    (made / "exports" / "one.json").write_text(json.dumps(CHAT))
    (made / "plugin_history_short.py").write_text(
        "NAME = 'short'\n\ndef process(history, session, model_cfg):\n    return list(history)[-2:]\n"
    )
    (made / "chain.json").write_text("{}")
    return made


def test_every_command_has_examples_and_all_of_them_are_shown() -> None:
    assert set(EXAMPLES) == set(NAMES)
    for name in NAMES:
        told = shown(f"tailfold {name} --help", Path())
        assert told.code == 0, told
        for line, what in EXAMPLES[name].items():
            assert f"  {line}" in told.out, name
            assert what in told.out, name


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_help_is_no_wider_than_its_terminal(columns: int) -> None:
    for name in NAMES:
        wide = [line for line in shown(f"tailfold {name} -h", Path(), columns=columns).out.splitlines() if len(line) > columns]
        assert not [line for line in wide if not line.startswith("  tailfold ")], name  # a command is shown whole


def test_the_short_form_is_the_help_and_names_no_type_of_python() -> None:
    for name in NAMES:
        told = shown(f"tailfold {name} -h", Path()).out
        assert told == shown(f"tailfold {name} --help", Path()).out
        assert told.startswith(f"Usage: {f'tailfold {name}'.strip()} [OPTIONS]")
        assert not [word for word in ("{", "list[", "LIST[", "RANGE", "<str>", "<path>", "<int>") if word in told]


def test_help_lists_every_command_under_what_it_is_for() -> None:
    told = shown("tailfold -h", Path()).out
    assert "More:" not in told
    for name in NAMES:
        assert not name or " " in name or f"\n  {name} " in told


@pytest.mark.heavy
@pytest.mark.parametrize("line", [line for line in LINES if line not in WITHOUT_END])
def test_an_example_does_what_it_says(line: str, folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    shutil.copytree(folder, place)
    if "backup" in line:
        (place / "copy.db").unlink()
    if "chain-remove" in line or "chain-move" in line:
        shown("tailfold history chain-add plugin_history_short --config chain.json", place)
    if SERVER in line:
        url = Shared.url()
        shown(f"tailfold copy tailfold.db '{url}'", place)
        line = line.replace(SERVER, f"'{url}'")
    told = shown(line, place)
    assert told.code == 0, told
    assert told.out


def test_an_example_is_a_command_with_options_that_there_are() -> None:
    """As far as it can be told without running it."""
    root: Any = typer.main.get_command(app)
    for line in LINES:
        words = shlex.split(line)[1:]
        command, context = root, root.make_context("tailfold", words)
        while hasattr(command, "commands"):
            name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
            context = command.make_context(name, rest, parent=context)
        assert context.args == [], line


@pytest.mark.parametrize(
    "line",
    [
        "tailfold --data other.db runs plans --json",
        "tailfold runs plans --json --data other.db",
        "tailfold runs --data=other.db plans --json",
        "tailfold --data nowhere.db runs plans --json --data other.db",
    ],
)
def test_options_of_the_whole_program_stand_before_or_after_the_command(line: str, folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "other.db", tmp_path / "other.db")
    told = shown(line, tmp_path)
    assert [run["run_id"] for run in json.loads(told.out)["runs"]] == ["p1"], told
    assert not (tmp_path / "tailfold.db").exists()


def test_every_command_takes_the_options_of_the_whole_program() -> None:
    for name, command in commands():
        if not hasattr(command, "commands") or not name:
            assert {"--data", "--log"} <= {option for param in command.params for option in param.opts}, name


def test_the_version_is_one_line() -> None:
    told = shown("tailfold --version", Path())
    assert (told.code, told.err) == (0, "")
    name, number = told.out.split()
    assert name == "tailfold"
    assert number[0].isdigit()


@pytest.mark.heavy
def test_the_package_is_the_command_too(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-m", "ledger", "--version"], capture_output=True, text=True, check=True, cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": root},
    )  # fmt: skip
    assert done.stdout.startswith("tailfold ")


@pytest.mark.parametrize(
    ("guess", "meant"),
    [
        ("list", "conversations"), ("ls", "conversations"), ("get", "show"), ("cat", "show"), ("delete", "erase"),
        ("rm", "erase"), ("log", "show"), ("tail", "events"), ("load", "import"), ("dump", "export"), ("gc", "compact"),
        ("repair", "reconcile"), ("info", "stats"), ("stop", "cancel"), ("query", "sql"), ("server", "serve"),
        ("conversation", "conversations"), ("SHOW", "show"), ("shwo", "show"), ("exports", "export"), ("help", "--help"),
        ("version", "--version"),
    ],
)  # fmt: skip
def test_a_guess_leads_to_the_right_command(guess: str, meant: str, tmp_path: Path) -> None:
    told = shown(f"tailfold {guess} trip", tmp_path)
    assert (told.code, told.out, told.err.count("\n")) == (2, "", 1), told
    assert f"use `tailfold {meant}`" in told.err
    assert list(tmp_path.iterdir()) == []


def test_what_nobody_can_guess_is_told_where_the_commands_are(tmp_path: Path) -> None:
    told = shown("tailfold frobnicate", tmp_path)
    assert told == (2, "", "tailfold: there is no command 'frobnicate': `tailfold --help` lists those that there are\n")
    within = shown("tailfold history ls", tmp_path)
    assert "use `tailfold history list`" in within.err
    assert "`tailfold limits --help` lists" in shown("tailfold limits xyz", tmp_path).err


def test_guesses_lead_to_commands_that_there_are_and_are_none_themselves() -> None:
    assert set(_MEANT) <= set(NAMES)
    guesses = [(*name.split()[:-1], guess) for name, all_of in _MEANT.items() for guess in all_of.split()]
    assert len(guesses) == len(set(guesses))
    assert not {" ".join(guess) for guess in guesses} & set(NAMES)
    assert "use `tailfold show` (s.)" not in right_command("cat", (), {"show": "S."})


def test_the_shell_completes_commands_options_and_formats(tmp_path: Path) -> None:
    def completed(*words: str) -> list[str]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("_TAILFOLD_COMPLETE", "complete_bash")
            patch.setenv("COMP_WORDS", " ".join(("tailfold", *words)))
            patch.setenv("COMP_CWORD", str(len(words)))
            return shown("tailfold", tmp_path).out.split()

    assert completed("conv") == ["conversations"]
    assert "--branch" in completed("show", "--b")
    assert "--data" in completed("show", "--d")
    assert completed("export", "c", "--format", "anthropic-") == ["anthropic-stream"]


@pytest.mark.parametrize(
    "line",
    [
        "demo --keep ''", "import ''", "play '' --conversation c", "export c --output ''", "export --all -o ''",
        "context c --policies ''", "context c --config ''", "context c --models ''", "history list --plugins ''",
        "limits max-users 7 --config ''", "serve --tokens ''", "events c --follow --url http://127.0.0.1:1 --token-file ''",
        "restore ''", "runs --data ''", "runs --log ''",
    ],
)  # fmt: skip
def test_an_empty_path_is_refused_and_is_not_the_current_folder(line: str, tmp_path: Path) -> None:
    told = shown(f"tailfold {line}", tmp_path)
    assert (told.code, told.out) == (2, "")
    assert re.search(r"it is empty: '\.' is the folder you are in|an empty path names no", told.err), told.err
    assert list(tmp_path.iterdir()) == []
