"""The pages: their code runs as it stands, twice, and passes mypy --strict; what they list is all there is."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from ledger import File, Ledger, Run
from projector.events import BODIES
from tests.provider_server import serve_providers

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = ("README.md", "stream/README.md", "projector/README.md", "ledger/README.md", "tests/README.md")
BLOCK: Final = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
EXAMPLE: Final = re.compile(r"\n\n((?: {4}.*(?:\n|$))+)")
FRAME: Final = """\
import asyncio

from ledger import open_ledger


async def main() -> None:
    async with open_ledger("chat.db") as ledger:
{body}

asyncio.run(main())
"""
"""The program that a piece of the README stands in: the page says so."""
RUN_ALL: Final = """\
for number, program in enumerate({programs!r}):
    print(f"--- {{number}}", program, sep="\\n", flush=True)
    exec(compile(program, f"program {{number}}", "exec"), {{"__name__": "program"}})
"""
MOST_LINES: Final = 200
MOST_LINES_OF_CODE: Final = 20


class Block(NamedTuple):
    """A piece of code, and where it stands."""

    page: str
    number: int
    code: str

    @property
    def program(self) -> str:
        """As a user would run it."""
        is_piece = "asyncio" not in self.code and "await " in self.code
        return FRAME.format(body=textwrap.indent(self.code, " " * 8)) if is_piece else self.code


BLOCKS: Final = [
    Block(page, number, code)
    for page in PAGES
    for number, code in enumerate(BLOCK.findall((ROOT / page).read_text(encoding="utf-8")), 1)
]


@pytest.fixture(scope="module")
def providers() -> Iterator[dict[str, str]]:
    """What tells the clients of OpenAI and Anthropic to ask this machine."""
    with serve_providers() as url:
        yield {
            "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none", "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "none",
        }  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs_twice(page: str, tmp_path: Path, providers: dict[str, str]) -> None:
    """One piece after the other in a fresh folder, and again: a newcomer tries it again."""
    programs = [block.program for block in BLOCKS if block.page == page]
    assert programs
    (tmp_path / "run.py").write_text(RUN_ALL.format(programs=programs * 2), encoding="utf-8")
    command = [sys.executable, "-W", "error", "run.py"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False, env=os.environ | providers
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.heavy
def test_the_code_of_the_pages_is_typed(tmp_path: Path) -> None:
    names = []
    for block in BLOCKS:
        name = f"{block.page.partition('.')[0].replace('/', '_').lower()}_{block.number}.py"
        (tmp_path / name).write_text(block.program, encoding="utf-8")
        names.append(name)
    (tmp_path / "docstrings.py").write_text(program_of_docstrings(), encoding="utf-8")
    names.append("docstrings.py")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={ROOT / '.mypy_cache'}", *names]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, env=os.environ | {"MYPYPATH": str(ROOT)}
    )
    assert done.returncode == 0, done.stdout + done.stderr


def program_of_docstrings() -> str:
    """Their examples, one after the other, in the block of a run."""
    examples = [
        re.sub(r"^    ", "", example, flags=re.MULTILINE)
        for shown in (Ledger, Run, File, *vars(Ledger).values(), *vars(Run).values())
        if callable(shown)
        for example in EXAMPLE.findall(inspect.getdoc(shown) or "")
    ]
    assert len(examples) >= 2
    body = 'async with ledger.run("examples") as run:\n' + textwrap.indent("\n".join(examples), " " * 4)
    return FRAME.format(body=textwrap.indent(body, " " * 8)).replace("import open_ledger", "import File, open_ledger")


def test_the_examples_of_docstrings_run_twice(tmp_path: Path) -> None:
    """In a folder with the picture that they speak of."""
    (tmp_path / "cat.png").write_bytes(b"\x89PNG")
    (tmp_path / "run.py").write_text(RUN_ALL.format(programs=[program_of_docstrings()] * 2), encoding="utf-8")
    command = [sys.executable, "-W", "error", "run.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_readme_is_for_the_first_hour() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MOST_LINES
    for block in BLOCKS:
        if block.page == "README.md":
            assert len([line for line in block.code.splitlines() if line.strip()]) <= MOST_LINES_OF_CODE, block.code


def test_every_event_and_every_field_stands_in_the_table() -> None:
    page = (ROOT / "projector" / "README.md").read_text(encoding="utf-8")
    rows = {
        kind: set(re.findall(r"`(\w+\??)`", re.sub(r"\([^()]*\)", "", fields)))
        for kind, fields in re.findall(r"^\| `([a-z_.]+)` \| (.*?) \| .*\|$", page, re.MULTILINE)
    }
    wanted = {
        kind: {name if name in required(body) else f"{name}?" for name in body.__struct_fields__}
        for kind, body in BODIES.items()
    }
    assert {kind: rows.get(kind) for kind in wanted} == wanted


def required(body: type) -> set[str]:
    fields: tuple[str, ...] = body.__struct_fields__  # type: ignore[attr-defined]
    defaults = len(body.__struct_defaults__)  # type: ignore[attr-defined]
    return set(fields[: len(fields) - defaults])


def test_every_call_that_a_page_names_is_there_with_these_parameters() -> None:
    rooms = {"ledger": Ledger, "run": Run}
    named = [
        (room, name, given)
        for page in PAGES
        for text in re.findall(r"`([^`\n]+)`", BLOCK.sub("", (ROOT / page).read_text(encoding="utf-8")))
        for room, name, given in re.findall(r"\b(ledger|run)\.(\w+)\(([^()]*)\)", text)
    ]
    assert len(named) >= 40
    wrong: list[str] = []
    for room, name, given in named:
        call = getattr(rooms[room], name, None)
        known = inspect.signature(call).parameters if call else {}
        wrong += [f"{room}.{name}({given})"] if call is None else []
        wrong += [f"{room}.{name}: {option}" for option in re.findall(r"(\w+)=", given) if option not in known]
    assert not wrong


@pytest.mark.parametrize("page", [*PAGES, "benchmarks/README.md"])
def test_links_lead_somewhere(page: str) -> None:
    text = BLOCK.sub("", (ROOT / page).read_text(encoding="utf-8"))
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    assert not [link for link in links if not ((ROOT / page).parent / link).exists()]
