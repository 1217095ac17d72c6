"""Who presses Ctrl-C while a command begins or ends sees its prompt again, and nothing of what was imported just then."""

from __future__ import annotations

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


def interrupted(command: Sequence[str], after_s: float) -> tuple[int, str]:
    """How a command ends that is interrupted so long after its start, and what it says then."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=hear) as process:  # noqa: PLW1509
        time.sleep(after_s)
        process.send_signal(signal.SIGINT)
        try:
            _, told = process.communicate(timeout=30)
        finally:
            process.kill()
    return process.returncode, told


@pytest.mark.heavy
@pytest.mark.parametrize("way", ["module", "script"])
def test_nothing_is_seen_of_what_was_imported(shell: Shell, tmp_path: Path, way: str) -> None:
    fill(shell, lambda ledger: record(ledger, "c", turns(3)))
    (tmp_path / "tailfold").write_text(f"import sys; sys.path.insert(0, {str(Path(PACKAGES[0]).parent)!r})\n{SCRIPT}")
    start = ["-m", "ledger"] if way == "module" else [str(tmp_path / "tailfold")]
    command = [sys.executable, *start, "--data", str(shell.data), "conversations"]
    began_at = time.monotonic()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    whole_s = time.monotonic() - began_at
    seed = random.randrange(10**6)
    dice, codes = random.Random(seed), Counter[int]()
    for number in range(60):
        after_s = whole_s * (number + dice.random()) / 60
        code, told = interrupted(command, after_s)
        # Python itself, and what starts a script, may be hit before the first line of ours.
        assert not any(name in told for name in PACKAGES), (seed, after_s, code, told)
        assert code in ((0, 130) if "Traceback" not in told else (1, -signal.SIGINT)) or (code, told) == (-2, ""), (seed, told)
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
