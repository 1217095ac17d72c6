"""Setting up the history chain: settings file, plugin folder, `tailfold history …` and `limits …`, runtime commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any, Final

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from ledger.history.discovery import BadPlugin, discover, load_plugin
from ledger.history.settings import HistorySettings, change_configuration, parse_configuration, read_configuration
from projector.context.model_registry import read_models
from projector.context.plugins import BUNDLED, DEFAULT, UserPlugin
from projector.context.runtime_commands import BadCommand, parse_command
from projector.context.settings_file import SettingsError
from tests.fork_server import COMMANDS
from tests.test_commands import Shell

if TYPE_CHECKING:
    from pathlib import Path

GOOD: Final = "NAME = 'mine'\n\ndef process(history, session, model_cfg):\n    return list(history)\n"
BUDGET: Final = "plugin_history_token_budget"
PAIRS: Final = "plugin_history_role_pair_enforcer"


class History(Shell):
    """Runs `tailfold history …` and `tailfold limits …` in a folder of plugins with a settings file."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder, self.config = folder, folder / "plugins-enabled.json"

    def command(self, *words: str) -> list[str]:
        return super().command(*words, "--config", str(self.config))

    def refuse(self, *words: str) -> str:
        """What is said about a command that can't be done: one line, nothing changed."""
        before = self.config.read_bytes() if self.config.is_file() else None
        told = self.run(*words, code=2)
        assert told.startswith("tailfold: ")
        assert told.count("\n") == 1
        assert (self.config.read_bytes() if self.config.is_file() else None) == before
        assert not self.data.exists()
        return told

    def chain(self) -> list[str]:
        found: list[str] = self.read("history", "list")["chain"]
        return found


@pytest.fixture
def shell(tmp_path: Path) -> History:
    return History(tmp_path)


def test_a_chain_is_built_moved_and_taken_apart(shell: History) -> None:
    (shell.folder / "plugin_history_mine.py").write_text(GOOD)
    shell.run("history", "chain-add", "plugin_history_mine")
    (shell.folder / "plugin_history_mine.py").write_text("raise SystemExit('only what is added or moved is loaded')")
    assert shell.read("history", "chain-add", BUDGET)["chain"] == [DEFAULT, "plugin_history_mine", BUDGET]
    assert shell.run("history", "chain-move", BUDGET, "1").endswith(f": {DEFAULT} → {BUDGET} → plugin_history_mine\n")
    said = [["history", "chain-remove", "plugin_history_mine"], ["history", "maxctx", "30"], ["limits", "max-users", "3"]]
    done = COMMANDS.run_each([[*one, "--config", str(shell.config)] for one in said])
    assert [code for code, _, _ in done] == [0, 0, 0]
    assert shell.run("limits", "session-timeout", "0").endswith(": idle sessions stay\n")
    shown = shell.read("history", "list")
    listed = [(plugin["name"], plugin["position"], plugin["origin"]) for plugin in shown.pop("plugins")]
    assert listed == [
        (DEFAULT, 0, "bundled"), (BUDGET, 1, "bundled"), ("plugin_history_mine", None, "folder"), (PAIRS, None, "bundled"),
    ]  # fmt: skip
    assert shown == {
        "max_users": 3, "session_idle_timeout_minutes": 0, "agent_max_ctx": 30, "chain": [DEFAULT, BUDGET], "warned": False,
    }  # fmt: skip


def test_what_can_not_be_done_is_refused_in_one_line(shell: History) -> None:
    shell.run("history", "chain-add", BUDGET)
    refusals = {
        ("history", "chain-remove", DEFAULT): "always first",
        ("history", "chain-move", DEFAULT, "1"): "always first",
        ("history", "chain-move", BUDGET, "0"): "use 1 to 1",
        ("history", "chain-move", BUDGET, "2"): "use 1 to 1",
        ("history", "chain-move", BUDGET, "-5"): "use 1 to 1",
        ("history", "chain-remove", PAIRS): "not in the chain",
        ("history", "chain-add", BUDGET): "is in the chain",
        ("history", "chain-add", "plugin_history_nope"): "there is no plugin plugin_history_nope",
        ("history", "chain-add", "../plugin_history_mine"): "no name of a plugin",
        ("history", "maxctx", "0"): "from 1 to",
        ("history", "maxctx", "-1"): "from 1 to",
        ("limits", "max-users", "0"): "from 1 to",
        ("limits", "session-timeout", "-1"): "from 0 to",
        ("history", "list", "--plugins", str(shell.folder / "nope")): "no such folder of plugins",
    }
    before = shell.config.read_bytes()
    done = COMMANDS.run_each([[*said, "--config", str(shell.config)] for said in refusals])
    for (code, shown, told), why in zip(done, refusals.values(), strict=True):
        assert (code, shown, told.count("\n")) == (2, "", 1)
        assert told.startswith("tailfold: ")
        assert why in told
    assert shell.config.read_bytes() == before


BROKEN: Final = {
    "def process(h, s, m) return h": "SyntaxError",
    "import no_such_module_at_all": "No module named 'no_such_module_at_all'",
    "raise SystemExit(0)": "SystemExit",
    "def process(h, s, m): return h": "has no NAME",
    "NAME = 'x'": "has no function process",
    GOOD + "on_model_switch = 1": "on_model_switch is no function",
}


@pytest.mark.heavy
def test_a_plugin_that_can_not_be_loaded_is_neither_added_nor_moved(shell: History) -> None:
    file = shell.folder / "plugin_history_mine.py"
    for code, why in BROKEN.items():
        file.write_text(code)
        told = shell.refuse("history", "chain-add", "plugin_history_mine")
        assert why in told
        assert str(file) in told
    assert not shell.config.exists()
    file.write_text("print('hello')\n" + GOOD)
    shell.run("history", "chain-add", BUDGET)
    done = subprocess.run(
        shell.command("history", "chain-add", "plugin_history_mine", "--json"), capture_output=True, check=True
    )
    assert json.loads(done.stdout)["chain"] == [DEFAULT, BUDGET, "plugin_history_mine"]
    assert done.stderr == b""
    file.write_text("1 // 0")
    assert "ZeroDivisionError" in shell.refuse("history", "chain-move", "plugin_history_mine", "1")
    shell.run("history", "chain-move", BUDGET, "2")  # the others can be
    shell.run("history", "chain-remove", "plugin_history_mine")
    assert shell.chain() == [DEFAULT, BUDGET]


def test_looking_makes_no_file(shell: History) -> None:
    assert "at most 200 messages; at most 50 sessions" in shell.run("history", "list")
    assert not list(shell.folder.iterdir())


def test_a_broken_file_is_named_with_its_line_and_left_as_it_is(shell: History) -> None:
    shell.config.write_text('{\n "max_users": 5,\n "plugin_config": {\n')
    for words in (["history", "list"], ["limits", "max-users", "3"]):
        assert f"{shell.config}, line 4: this is no JSON" in shell.refuse(*words)


def test_a_plugin_whose_file_is_gone_can_be_taken_out(shell: History) -> None:
    file = shell.folder / "plugin_history_mine.py"
    file.write_text(GOOD)
    shell.run("history", "chain-add", "plugin_history_mine")
    file.unlink()
    told = shell.refuse("history", "list")
    assert f"{shell.config}, plugin_config.{DEFAULT}.chain: there is no plugin plugin_history_mine" in told
    shell.run("history", "chain-remove", "plugin_history_mine")
    assert shell.chain() == [DEFAULT]


def test_a_misplaced_default_is_told_and_put_first(shell: History) -> None:
    shell.config.write_text(json.dumps({"plugin_config": {DEFAULT: {"chain": [BUDGET, DEFAULT]}}}))
    assert "which is put first" in shell.run("history", "list")
    shell.run("history", "maxctx", "9")
    assert json.loads(shell.config.read_text())["plugin_config"][DEFAULT]["chain"] == [DEFAULT, BUDGET]


def test_the_settings_file_can_be_named_by_the_environment(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ledger.admin", "limits", "max-users", "4"]
    told = {"TAILFOLD_PLUGINS": str(tmp_path / "here.json")}
    subprocess.run(command, env={**os.environ, **told}, check=True, capture_output=True, timeout=60)
    assert json.loads((tmp_path / "here.json").read_text()) == {"max_users": 4}


def test_keys_of_others_links_and_modes_stay(tmp_path: Path) -> None:
    target, link = tmp_path / "real.json", tmp_path / "plugins-enabled.json"
    others = {"enabled_plugins": ["x"], "note": "größe \ud800", "plugin_config": {"other": {"a": 1.5}, DEFAULT: {"own": None}}}
    target.write_text(json.dumps(others))
    target.chmod(0o640)
    link.symlink_to(target)
    change_configuration(link, BUNDLED, lambda before: replace(before, max_users=3, agent_max_ctx=9))
    others["plugin_config"][DEFAULT]["agent_max_ctx"] = 9  # type: ignore[index] # it is an object
    assert json.loads(target.read_text()) == others | {"max_users": 3}
    assert link.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o640
    assert sorted(file.name for file in tmp_path.iterdir()) == [link.name, target.name]


def test_changes_that_come_at_once_are_all_kept(tmp_path: Path) -> None:
    path, names = tmp_path / "plugins-enabled.json", [f"plugin_history_{number}" for number in range(12)]

    def add(name: str) -> None:
        change_configuration(path, [DEFAULT, *names], lambda before: replace(before, chain=(*before.chain, name)))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(add, names))
    assert sorted(read_configuration(path, [DEFAULT, *names]).chain) == sorted([DEFAULT, *names])


def test_a_change_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plugins-enabled.json"
    path.write_text("{}")

    def fail(descriptor: int) -> None:
        raise OSError(f"no space left for {descriptor}")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space left"):
        change_configuration(path, BUNDLED, lambda before: replace(before, max_users=3))
    assert path.read_text() == "{}"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("content", "key"),
    [
        ({"max_users": True}, "max_users"), ({"max_users": "5"}, "max_users"), ({"max_users": None}, "max_users"),
        ({"session_idle_timeout_minutes": -1}, "session_idle_timeout_minutes"), ({"plugin_config": []}, "plugin_config"),
        ({"plugin_config": {DEFAULT: 3}}, f"plugin_config.{DEFAULT}"),
        ({"plugin_config": {DEFAULT: {"chain": "x"}}}, f"plugin_config.{DEFAULT}.chain"),
        ({"plugin_config": {DEFAULT: {"chain": [3]}}}, f"plugin_config.{DEFAULT}.chain"),
        ({"plugin_config": {DEFAULT: {"chain": [DEFAULT, "../x"]}}}, f"plugin_config.{DEFAULT}.chain"),
        ({"plugin_config": {DEFAULT: {"agent_max_ctx": 2.5}}}, f"plugin_config.{DEFAULT}.agent_max_ctx"),
    ],
)  # fmt: skip
def test_a_setting_of_another_form_names_file_and_key(content: dict[str, Any], key: str) -> None:
    with pytest.raises(SettingsError, match=r"file\.json") as caught:
        parse_configuration(json.dumps(content), "file.json", BUNDLED)
    assert caught.value.key == key


def test_a_default_that_is_put_first_is_logged() -> None:
    with capture_logs() as logs:
        found = parse_configuration('{"plugin_config": {"plugin_history_default": {"chain": []}}}', "x", BUNDLED)
    assert found == HistorySettings(warned=True)
    assert [log["event"] for log in logs] == ["history.default_put_first"]


def test_a_link_out_of_the_folder_is_no_plugin(tmp_path: Path) -> None:
    folder, outside = tmp_path / "plugins", tmp_path / "plugin_history_out.py"
    folder.mkdir()
    outside.write_text(GOOD)
    (folder / "plugin_history_out.py").symlink_to(outside)
    (folder / "plugin_history_mine.py").write_text(GOOD)
    (folder / "plugin_history_too.py").symlink_to(folder / "plugin_history_mine.py")
    (folder / "plugin_history_folder.py").mkdir()
    (folder / "plugin_history_a.b.py").write_text(GOOD)
    with capture_logs() as logs:
        found = discover(folder)
    assert sorted(found.keys() - BUNDLED.keys()) == ["plugin_history_mine", "plugin_history_too"]
    assert [(log["event"], log["plugin"]) for log in logs] == [("history.plugin_refused", "plugin_history_out")]
    (folder / "plugin_history_mine.py").unlink()
    (folder / "plugin_history_mine.py").symlink_to(outside)  # behind the back of whoever looked
    with pytest.raises(BadPlugin, match="out of the folder"):
        load_plugin("plugin_history_mine", found)


def test_a_folder_does_not_come_onto_the_path_of_imports(tmp_path: Path) -> None:
    (tmp_path / "plugin_history_mine.py").write_text("import neighbour_of_mine\n" + GOOD)
    (tmp_path / "neighbour_of_mine.py").write_text("")
    before = list(sys.path)
    with pytest.raises(BadPlugin, match="ModuleNotFoundError"):
        load_plugin("plugin_history_mine", discover(tmp_path))
    assert sys.path == before
    assert not [name for name in sys.modules if name.endswith("plugin_history_mine")]


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("def process(h, s, m): return h", "has no NAME"), ("NAME = 3\ndef process(h, s, m): return h", "has no NAME"),
        ("NAME = 'x'", "has no function process"), ("NAME = 'x'\nprocess = 3", "has no function process"),
        (GOOD + "on_model_switch = 3", "on_model_switch is no function"), ("1 // 0", "ZeroDivisionError"),
        ("raise SystemExit(3)", "SystemExit"), ("def", "SyntaxError"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_plugin_is_named(tmp_path: Path, code: str, why: str) -> None:
    (tmp_path / "plugin_history_bad.py").write_text(code)
    with pytest.raises(BadPlugin, match=why) as caught:
        load_plugin("plugin_history_bad", discover(tmp_path))
    assert str(tmp_path / "plugin_history_bad.py") in str(caught.value)


def test_a_plugin_may_be_a_dataclass_of_its_own_module(tmp_path: Path) -> None:
    code = "from __future__ import annotations\nimport dataclasses\n@dataclasses.dataclass\nclass A:\n    a: int = 0\n"
    (tmp_path / "plugin_history_mine.py").write_text(code + GOOD)
    assert isinstance(load_plugin("plugin_history_mine", discover(tmp_path)), UserPlugin)


def test_a_package_offers_plugins_and_shadows_none() -> None:
    group = "tailfold.history"
    entries = [
        EntryPoint("plugin_history_far", "json", group), EntryPoint(DEFAULT, "evil", group),
        EntryPoint("../x", "evil", group), EntryPoint("plugin_history_gone", "no_such_module", group),
    ]  # fmt: skip
    with capture_logs() as logs:
        found = discover(packages=entries)
    assert {name: one.origin for name, one in found.items() if name not in BUNDLED} == {
        "plugin_history_far": "package", "plugin_history_gone": "package",
    }  # fmt: skip
    assert found[DEFAULT].origin == "bundled"
    assert [log["plugin"] for log in logs] == ["../x"]
    with pytest.raises(BadPlugin, match="has no NAME"):
        load_plugin("plugin_history_far", found)
    with pytest.raises(BadPlugin, match="no_such_module"):
        load_plugin("plugin_history_gone", found)
    with pytest.raises(BadPlugin, match=r"there is no plugin '\.\./\.\./mine'"):
        load_plugin("../../mine", found)


@pytest.mark.parametrize(
    ("content", "key", "line"),
    [
        ("{", None, 1), ("[]", None, 1), ('{"models": {}, "x": NaN}', None, 1), ("{}", "models", None),
        ('{"models": []}', "models", None), ('{"models": {"a": 3}}', "models.a", None),
        ('{"models": {"a": {}, "a": {}}}', "a", None),
        ('{"models": {"a": {"max_context": 0}}}', "models.a.max_context", None),
        ('{"models": {"a": {"token_budget": "6000"}}}', "models.a.token_budget", None),
        ('{\n"models": {"a": {"max_context": 1e400}}}', None, 1), ("[" * 100_000, None, 1),
    ],
)  # fmt: skip
def test_a_broken_registry_of_models_names_file_and_place(content: str, key: str | None, line: int | None) -> None:
    with pytest.raises(SettingsError, match=r"llm-models\.json") as caught:
        read_models(content)
    assert (caught.value.key, caught.value.line) == (key, line)


def test_a_model_without_a_preference_may_say_so() -> None:
    assert read_models('{"models": {"a": {"max_context": null}}}')["a"].max_context is None


@pytest.mark.parametrize(
    "line",
    ["!model", "!model a b", "!maxctx", "!maxctx x", "!maxctx -1", "!maxctx 1.5", "!maxctx 5 tmp", "!maxctx ٣",
     "!maxusers 0", "!maxusers 2 temp", "!sessiontimeout -1", "!sessiontimeout 1e3", "!maxctx " + "9" * 50],
)  # fmt: skip
def test_a_command_that_makes_no_sense_is_answered(line: str) -> None:
    with pytest.raises(BadCommand, match="nothing was changed"):
        parse_command(line)


@pytest.mark.parametrize(
    "line", ["", "!", "!!!", "!models", "!important", "model small", "!model small\nand more", "! model x"]
)
def test_ordinary_text_is_no_command(line: str) -> None:
    assert parse_command(line) is None
