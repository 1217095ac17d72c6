"""What ids, types, labels, titles, texts and paths say never steers the terminal, whatever a command prints of it and where."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest
from rich.cells import cell_len

from ledger.signs import harmless_json, one_line, printable
from projector import events as ev
from projector.json_text import raw
from stream import NewEvent
from tests.ledger_commands import fill, run_each
from tests.test_commands import Shell, shell

if TYPE_CHECKING:
    from pathlib import Path

    from ledger import Ledger

__all__ = ["shell"]

STEERING: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufeff]")
COLOUR: Final = re.compile(r"\x1b\[[\d;]*m")
EVIL: Final = "\x1b]0;owned\x07\x9b31m\x1b[2J\r\x08\x7f\u202eabc\u2066d\u200f\u061c"
MARKUP: Final = "[red]x[/red][link=http://evil.example]y[/link]:smile:[/]"
LINES: Final = "a\nb\tc"
NAMES: Final = (EVIL, MARKUP, LINES)


async def converse(ledger: Ledger) -> None:
    """A conversation whose every word is hostile, and one that is broken, too."""
    for number, name in enumerate(NAMES):
        async with ledger.run(name, run_id="r" + name, model=name, provider=name, trigger=name) as run:
            await run.message("user", name)
            await run.tool_call(name, {name: name}, id="t" + name)
            await run.tool_result("t" + name, name)
            first = run._mint()
            made = [
                ev.MessageStarted(run.run_id, first, "assistant", name=name),
                ev.BlockStarted(first, 0, "tool_call", name, "call" + name),
                ev.BlockDelta(first, 0, name),
                ev.BlockSealed(first, 0, parse="bad"),
            ]
            run._outbox.put(made)
        await ledger.describe(name, title=name, labels=[name])
        await ledger.begin_run(name, run_id="open" + name)
        odd = [ev.to_event(ev.MessageAnnotated("none" + name, raw("{}"))), NewEvent(f"ty{name}"[:20], b"{}")]
        await ledger.record(name, [*odd, ev.to_event(ev.BlockSealed("none" + name, number))])
    await ledger.record("bad" + EVIL, [ev.to_event(ev.RunStarted("r1", "nobody" + EVIL, "user", "r1"))])


def commands(name: str, folder: Path) -> list[list[str]]:
    """Every command over a conversation of this name, and every one that is refused for it."""
    run, path, none = "r" + name, f"{folder}/no{name}", "no" + name
    whole = ("tree", "events", "stats", "verify", "reconcile", "snapshot", "export", "context", "show", "compact")
    return [
        ["conversations"],
        *(["conversations", each, name] for each in ("--label", "--title", "--prefix", "--after", "--limit")),
        ["runs"], ["runs", name], ["runs", "--status", name], ["runs", none], ["show", name, "--branch", "all"],
        *(["show", name, each, name] for each in ("--select", "--before", "--limit", "--branch")),
        *([each, conversation] for each in whole for conversation in (name, none)),
        ["context", name, "--explain"], ["context", name, "--format", "chat"], ["context", name, "--format", name],
        ["context", name, "--config", path], ["select", name, name], ["select", name, f"{run}.1"],
        ["describe", name, "--title", name, "--label", name], ["cancel", run], ["cancel", none],
        ["recover", run, "--action", "commit"], ["recover", run, "--action", name],
        ["recover", "open" + name, "--action", "commit", "--conversation", name],
        ["compact", name, "--dry-run"], ["compact", "--all", "--dry-run"], ["snapshot", name, "--delete", name],
        *(["export", name, "--format", each] for each in ("chat", "messages", "anthropic", "agui-stream", name)),
        ["export", name, "--output", path + ".jsonl"], ["export", "--all", "--format", "chat", "--output", path + ".chat"],
        ["export", name, "--output", f"{folder}/none/{name}"], ["import", path], ["import", path + ".jsonl"],
        ["import", path, "--format", name], ["play", path, "--conversation", name],
        ["play", path, "--conversation", name, "--format", name],
        ["backup", path + ".db"], ["backup", path + ".db"], ["restore", path], ["erase", name], ["erase", name, "--yes"],
        ["history", "list", "--config", path], ["history", "chain-add", name, "--config", path],
        ["history", "chain-add", "default", "--config", path], ["history", "maxctx", name], ["limits", "max-users", name],
        [name], ["show", name, "--" + name], ["show", name, name], ["stats", "-" + name], ["--data", name, "runs"],
        ["--log", f"{folder}/{name}", "runs"], ["--data", "http://" + name, "runs"],
    ]  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=["escapes", "markup", "lines"])
@pytest.mark.heavy
def test_no_command_lets_what_others_wrote_steer_the_terminal(shell: Shell, tmp_path: Path, name: str) -> None:
    fill(shell, converse)
    told = run_each(shell, commands(name, tmp_path))
    wrong = []
    for words, (code, out, err) in zip(commands(name, tmp_path), told, strict=True):
        assert "Traceback" not in err, (words, err)
        wrong += [(words, code, found, out[:80], err[:80]) for found in map(STEERING.search, (out, err)) if found]
    assert not wrong
    assert {0, 2} <= {code for code, _, _ in told} <= {0, 1, 2}


def test_what_is_markup_to_others_is_shown_as_it_is(shell: Shell) -> None:
    fill(shell, converse)
    told = ["conversations"], ["runs"], ["tree", MARKUP], ["context", MARKUP], ["show", MARKUP]
    for words in (*told, ["describe", MARKUP, "--title", "x"]):
        assert MARKUP in shell.run(*words), words


@pytest.mark.heavy
def test_a_name_of_two_lines_makes_no_line_of_its_own(shell: Shell) -> None:
    async def name(ledger: Ledger) -> None:
        async with ledger.run("a\nverified: all is well", run_id="x\ty") as run:
            await run.message("user", "hi")

    fill(shell, name)
    for words in (["conversations"], ["runs"], ["tree", "a\nverified: all is well"], ["context", "a\nverified: all is well"]):
        assert not [line for line in shell.run(*words).splitlines() if line.lstrip().startswith("verified")]
    assert shell.run("show", "nowhere\nverified", code=2).count("\n") == 1


@pytest.mark.parametrize("command", ["conversations", "runs", "show", "tree", "context", "events", "export"])
def test_on_a_terminal_there_are_colours_and_nothing_else_that_steers(shell: Shell, command: str) -> None:
    fill(shell, converse)
    words = [command] if command in ("conversations", "runs") else [command, EVIL]
    shown = on_a_terminal(shell.command(*words), columns=60)
    assert "owned" in shown
    plain = COLOUR.sub("", shown.replace("\r\n", "\n"))
    assert not STEERING.search(plain)
    if command in ("conversations", "runs", "context"):
        lines = [line for line in plain.splitlines() if line[:1] in "┏┃┡│└├"]
        assert len({cell_len(line) for line in lines}) == 1, plain


def test_an_export_to_a_pipe_is_exact_and_on_a_terminal_the_same_json(shell: Shell) -> None:
    fill(shell, converse)
    piped = shell.run("export", EVIL).splitlines()
    shown = on_a_terminal(shell.command("export", EVIL), columns=60).splitlines()
    assert list(map(json.loads, shown)) == list(map(json.loads, piped))


def on_a_terminal(command: list[str], *, columns: int) -> str:
    """What a command writes to a terminal that is both its standard output and its standard error."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "40"}
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        said = b""
        while True:
            try:
                said += os.read(ours, 65536)
            except OSError:  # so a terminal says that nobody writes to it any more
                break
        process.wait(timeout=60)
    os.close(ours)
    return said.decode()


@pytest.mark.parametrize("sign", [*map(chr, range(0x20)), "\x7f", "\x80", "\x9b", "\u202e", "\u2066", "\u200f", "\u2028"])
def test_each_sign_that_steers_is_shown_as_one_that_does_not(sign: str) -> None:
    assert STEERING.search(one_line(f"a{sign}b")) is None
    assert "\n" not in one_line(sign)
    assert (printable(sign) == sign) == (sign in "\n\t")
    assert json.loads(harmless_json(f'"{sign}"') if sign not in "\n\t" else '"a"') in (sign, "a")


@pytest.mark.parametrize("text", ["plain", "naïve café", "日本語", "שלום", "👩‍👩‍👧", "a\\nb", "[red]"])
def test_what_steers_nothing_stays_as_it_is(text: str) -> None:
    assert printable(text) == one_line(text) == harmless_json(text) == text


def test_logs_and_warnings_of_a_command_steer_nothing_either() -> None:
    script = """
import sys, warnings
from ledger.admin import app
from stream.logger import Logger
def say(**_):
    warnings.warn("\x1b]0;x\x07")
    Logger("tailfold.x").info("not.news")
    Logger("tailfold.x").error("an.event", id="\x9b31m", more="\u202ex")
    print("\x1b[2J", file=sys.stderr)
app.app = say
sys.exit(app.run_app())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "[ERROR] an.event" in done.stderr
    assert "not.news" not in done.stderr + done.stdout
    assert "Warning" in done.stderr
    assert not STEERING.search(done.stderr)
