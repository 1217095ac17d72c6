"""Who presses Ctrl-C while a command begins or ends sees its prompt again, and nothing of what was imported just then."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from ledger.early_interrupt import is_command
from tests.ledger_commands import fill, record, turns
from tests.test_commands import Shell, shell
from tests.test_stopping_commands import hear

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["shell"]
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes are not interrupted so there")
PACKAGES: Final = [str(Path(__file__).parent.parent / name) for name in ("ledger", "stream", "projector")]
SCRIPT: Final = "import sys\nfrom ledger.admin import main\nsys.exit(main())\n"


# What Python is told before anything else: to say when the first line of ours has been run. What it prints of an interrupt
# before that is nothing of ours.
TELL: Final = """
import os, sys
def hook(event, args):
    if event == "import" and args[0] == "ledger.name_clashes":
        os.write(int(os.environ["TELL"]), b".")
sys.addaudithook(hook)
"""


def interrupted(command: Sequence[str], folder: Path, after_s: float | None = None) -> tuple[int, str, float]:
    """How a command ends that is interrupted so long after its first line, what it says then, and how long it ran."""
    hears, tells = os.pipe()
    environment = os.environ | {"PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}", "TELL": str(tells)}
    with subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear,  # noqa: PLW1509
        pass_fds=[tells],
        env=environment,
    ) as process:
        os.close(tells)
        assert os.read(hears, 1) == b"."
        os.close(hears)
        began_at = time.monotonic()
        if after_s is not None:
            time.sleep(after_s)
            process.send_signal(signal.SIGINT)
        try:
            _, told = process.communicate(timeout=60)
        finally:
            process.kill()
        return process.returncode, told, time.monotonic() - began_at


@pytest.mark.heavy
@pytest.mark.parametrize("way", ["module", "script"])
def test_nothing_is_seen_of_what_was_imported(shell: Shell, tmp_path: Path, way: str) -> None:
    fill(shell, lambda ledger: record(ledger, "c", turns(3)))
    (tmp_path / "tailfold").write_text(f"import sys; sys.path.insert(0, {str(Path(PACKAGES[0]).parent)!r})\n{SCRIPT}")
    start = ["-m", "ledger"] if way == "module" else [str(tmp_path / "tailfold")]
    command = [sys.executable, *start, "--data", str(shell.data), "conversations"]
    (tmp_path / "sitecustomize.py").write_text(TELL)
    code, told, whole_s = interrupted(command, tmp_path)
    assert (code, told) == (0, "")
    seed = random.randrange(10**6)
    dice, codes = random.Random(seed), Counter[int]()
    for number in range(60):
        after_s = whole_s * (number + dice.random()) / 60
        code, told, _ = interrupted(command, tmp_path, after_s)
        assert told == "", (seed, after_s, code)
        assert code in (0, 130, -signal.SIGINT), (seed, after_s)  # Python hears nothing any more while it ends
        codes[code] += 1
    assert codes[130] > 20, codes


@pytest.mark.parametrize(
    ("argv", "orig_argv", "expected"),
    [
        (["/usr/bin/tailfold", "runs"], ["python", "/usr/bin/tailfold", "runs"], True),
        (["-m", "runs"], ["python", "-X", "dev", "-m", "ledger", "runs"], True),
        (["-m"], ["python", "-mledger.admin"], True),
        (["-m", "ledger"], ["python", "-m", "pytest", "ledger"], False),
        (["program.py", "tailfold"], ["python", "program.py", "tailfold"], False),
        (["-c"], ["python", "-c", "import ledger"], False),
        ([""], ["python"], False),
        ([], [], False),
    ],
)
def test_a_program_that_imports_the_library_is_no_command(
    argv: list[str], orig_argv: list[str], *, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(sys, "orig_argv", orig_argv)
    assert is_command() is expected


@pytest.mark.parametrize("first", ["", "import ledger", "import ledger.admin", "import ledger.admin.app"])
def test_a_program_that_imports_the_library_keeps_what_it_does_on_ctrl_c(first: str) -> None:
    said = f"{first}\nimport signal\nassert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    subprocess.run([sys.executable, "-c", said], check=True, preexec_fn=hear, cwd=Path(PACKAGES[0]).parent)
