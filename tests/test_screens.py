"""What each command shows, at 60, 80 and 120 columns, in colours and in a pipe, is what is stored in `tests/screens/`.

The screens are texts that somebody has looked at. To renew them after a change that is meant:

    TAILFOLD_SCREENS=write python -m pytest tests/test_screens.py -m ""

and read what `git diff tests/screens` shows.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Final

import pytest
from rich.cells import cell_len
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, DIMMED_MONOKAI, MONOKAI, NIGHT_OWLISH, SVG_EXPORT_THEME
from structlog.testing import capture_logs

from ledger import open_ledger
from ledger.admin.examples import EXAMPLES
from tests import fixed_talks
from tests.on_screen import shown
from tests.test_commands import SAMPLE

SCREENS: Final = Path(__file__).parent / "screens"
CHAT: Final = [{"role": "user", "content": "Wie spät ist es?"}, {"role": "assistant", "content": "Zehn nach drei."}]
LOOKING: Final = {
    "conversations": [
        "conversations",
        "conversations --limit 2",
        "conversations --prefix none",
        "conversations --limit 1 --json",
    ],
    "runs": ["runs", "runs --limit 2", "runs trip --status failed --json", "runs plans --status open", "runs gone"],
    "show": ["show trip --branch all", "show 日本語の会話", "show gone", "show plans --json", "show nobody"],
    "tree": ["tree trip", "tree gone"],
    "events": ["events trip --after 40", "events 日本語の会話 --after 11 --json"],
    "context": ["context trip --explain --max-ctx 2", "context trip --format chat"],
    "stats": ["stats", "stats trip", "stats gone"],
    "snapshot": ["snapshot trip"],
    "sql": ["sql 'SELECT id, run, parent, seq FROM messages LIMIT 3'", "sql 'SELECT nothing'"],
    "verify": ["verify", "reconcile"],
    "history": ["history list", "history chain-add plugin_history_token_budget", "limits max-users 7"],
    "export": ["export plans --format chat", "export trip --format anthropic --output out.json"],
    "refused": ["ls", "show", "show trip --lmit 2", "runs --data nowhere.db", "erase trip"],
}
CHANGING: Final = {
    "select": ["select trip r1.5", "tree trip"],
    "describe": ["describe trip --title 'Nach Lyon' --label privat --archive"],
    "cancel": ["cancel r4", "cancel r1"],
    "recover": ["recover r4 --action commit", "recover r4 --action fail"],
    "compact": ["compact trip --dry-run", "compact trip --replay-window 3", "compact --all"],
    "erase": ["erase plans --yes", "conversations"],
    "import": ["import chat.json --into chat", "import chat.json --into chat", "import nothing.json"],
    "play": ["play stream.sse --conversation new"],
    "backup": ["backup copy.db", "restore copy.db --data restored.db", "vacuum"],
    "copy": ["copy tailfold.db other.db", "copy tailfold.db other.db", "copy tailfold.db tailfold.db"],
}
SIZES: Final = (60, 80, 120)
HEAVY: Final = pytest.mark.heavy
CASES: Final = [
    pytest.param(name, size, id=f"{name}-{size or 'pipe'}", marks=() if name in LOOKING and size == 80 else HEAVY)
    for name in (*LOOKING, *CHANGING)
    for size in (*SIZES, 0, -80)
]
"""A name of a file, and columns: 0 is a pipe, -80 are 80 columns in colours."""
THEMES: Final = (DEFAULT_TERMINAL_THEME, NIGHT_OWLISH, MONOKAI, DIMMED_MONOKAI, SVG_EXPORT_THEME)
_STYLES: Final = {
    "0": "/", "1": "bold", "2": "dim", "3": "italic", "31": "red", "32": "green", "34": "blue", "35": "magenta", "36": "cyan",
}  # fmt: skip
COLOUR: Final = re.compile(r"\x1b\[([\d;]*)m")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is looked at: the same in every run."""
    made = tmp_path_factory.mktemp("screens")

    async def main() -> None:
        async with open_ledger(str(made / "tailfold.db"), durability="normal") as ledger:
            await fixed_talks.fill(ledger)

    with capture_logs(), pytest.MonkeyPatch.context() as patch:
        fixed_talks.stop_the_clock(patch)
        asyncio.run(main())
    (made / "chat.json").write_text(json.dumps(CHAT))
    shutil.copy(SAMPLE, made / "stream.sse")
    return made


def taken(name: str, size: int, folder: Path, place: Path) -> str:
    """All commands of a file, each as it is typed and what it shows, in a folder of its own."""
    shutil.copytree(folder, place)
    told = ""
    for line in LOOKING.get(name) or CHANGING[name]:
        with pytest.MonkeyPatch.context() as patch:
            fixed_talks.stop_the_clock(patch)
            seen = shown(f"tailfold {line}", place, columns=abs(size) or None, colours=size < 0)
        said = seen.out + seen.err
        end = f"\n(exit {seen.code})" if seen.code else ""
        told += f"$ tailfold {line}\n{_steady(_in_words(said) if size < 0 else COLOUR.sub('', said))}{end}\n\n"
    return told.rstrip() + "\n"


def _in_words(said: str) -> str:
    """Colours as they are called."""
    return COLOUR.sub(lambda found: "⟨" + " ".join(_STYLES[code] for code in (found[1] or "0").split(";")) + "⟩", said)


def _steady(said: str) -> str:
    """Without what another run, or another version of SQLite, makes otherwise; and without spaces that nobody sees."""
    said = re.sub(r"\b[0-9a-f]{32}\b", "0" * 32, said)
    said = re.sub(r"\brun [0-9a-f]{16}\b", "run 0123456789abcdef", said)
    said = re.sub(r"[\d,]+ bytes before, [\d,]+ after", "N bytes before, N after", said)
    said = re.sub(r"message, events 1 to \d+", "message, events 1 to N", said)  # as they were joined
    said = re.sub(r"[\d,]+ bytes, read back", "N bytes, read back", said)
    said = re.sub(r"(?m)^(sqlite|file bytes|wal bytes|pages|free pages|payload bytes)( +)\S+$", r"\1\2…", said)
    return "\n".join(line.rstrip() for line in said.splitlines()).rstrip("\n")


def stored(name: str, size: int, screen: str) -> str:
    """The screen that is stored; it is written first where that is asked for."""
    kind = "pipe" if size == 0 else "colours" if size < 0 else str(size)
    path = SCREENS / f"{name}.{kind}.txt"
    if os.environ.get("TAILFOLD_SCREENS") == "write":
        SCREENS.mkdir(exist_ok=True)
        path.write_text(screen, encoding="utf-8")
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "size"), CASES)
def test_a_screen_is_as_it_was_looked_at(name: str, size: int, folder: Path, tmp_path: Path) -> None:
    screen = taken(name, size, folder, tmp_path / "place")
    assert screen == stored(name, size, screen)
    assert "Traceback" not in screen


@HEAVY
@pytest.mark.parametrize("size", SIZES)
def test_help_is_as_it_was_looked_at(size: int, tmp_path: Path) -> None:
    told = [shown(f"tailfold {name} -h", tmp_path, columns=size).out for name in EXAMPLES]
    screen = "\n\n\n".join(map(_steady, told)) + "\n"
    assert screen == stored("help", size, screen)


def test_every_command_is_looked_at() -> None:
    there = {line.split()[0] for lines in (LOOKING | CHANGING).values() for line in lines}
    assert {name.split()[0] for name in EXAMPLES if name} - there == {"demo", "serve"}  # one kills a process, one does not end


@HEAVY
@pytest.mark.parametrize("size", SIZES)
def test_on_a_terminal_only_what_is_copied_is_wider_than_it(size: int, folder: Path, tmp_path: Path) -> None:
    for name in ("conversations", "runs", "show", "tree", "context", "stats", "snapshot", "verify", "history"):
        screen = taken(name, size, folder, tmp_path / name)
        wide = [line for line in screen.splitlines() if cell_len(line) > size]
        whole = (fixed_talks.LONG_ID, hashlib.sha256(fixed_talks.PNG).hexdigest(), '{"', "[{", "tailfold ", "trip: lost: ")
        assert not [line for line in wide if not any(mark in line for mark in whole)]


@HEAVY
def test_ids_and_numbers_are_never_cut(folder: Path, tmp_path: Path) -> None:
    for size in (*SIZES, 0):
        for name in ("conversations", "runs"):
            lines = taken(name, size, folder, tmp_path / f"{name}{size}").splitlines()
            assert any(fixed_talks.LONG_ID in line for line in lines), (name, size)


@HEAVY
def test_every_colour_can_be_read_on_a_light_and_on_a_dark_ground(folder: Path, tmp_path: Path) -> None:
    """None is a background, black, white, or one of 256 that a theme does not know; each has contrast on common themes."""
    used = set()
    place = tmp_path / "place"
    shutil.copytree(folder, place)
    for line in (line for lines in LOOKING.values() for line in lines):
        seen = shown(f"tailfold {line}", place, columns=80, colours=True)
        used |= {code for found in COLOUR.findall(seen.out + seen.err) for code in found.split(";")}
    colours = {code for code in used if code not in ("0", "1", "2", "3")}  # bold, dim, italic
    assert {"34", "32", "35"} <= colours <= {"31", "32", "34", "35", "36"}
    for theme in THEMES:
        ground = _light(tuple(theme.background_color))
        for code in colours:
            light = _light(tuple(theme.ansi_colors[int(code) - 30]))
            assert (max(light, ground) + 0.05) / (min(light, ground) + 0.05) >= 3, code


def _light(colour: tuple[int, ...]) -> float:
    """As the guidelines for contrast reckon it."""
    parts = [part / 255 for part in colour]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
