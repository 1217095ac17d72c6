"""The history plugins that there are: bundled ones, `plugin_history_*.py` of a folder, and those of installed packages.

Looking for them imports nothing. Only what a chain names is imported, and nothing from outside the folder.
"""

from __future__ import annotations

import hashlib
import sys
from importlib.machinery import SourceFileLoader
from importlib.metadata import EntryPoint, entry_points
from importlib.util import module_from_spec, spec_from_file_location
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from projector.context.plugins import BUNDLED, UserPlugin
from stream.logger import Logger

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from projector.context.plugins import Plugin

GROUP: Final = "tailfold.history"
"""The group of entry points by which an installed package offers plugins."""
_PREFIX: Final = "plugin_history_"
_LOG: Final = Logger("tailfold.history")


class BadPlugin(ValueError):
    """A plugin can't be loaded; the message names it, where it lies, and what is wrong with it."""


class Found(NamedTuple):
    """A plugin that a chain may name; with its file, or its entry point."""

    name: str
    origin: Literal["bundled", "folder", "package"]
    file: Path | None = None
    entry: EntryPoint | None = None

    @property
    def place(self) -> str:
        """Where it lies, for a message."""
        return str(self.file or (self.entry and self.entry.value) or self.origin)


def discover(folder: Path | None = None, *, packages: Iterable[EntryPoint] | None = None) -> dict[str, Found]:
    """All plugins by name; a file of the folder comes before a bundled one, and that before one of a package.

    `packages` are the entry points of the group `tailfold.history`, those of the environment by default. A file that
    a link brings in from elsewhere, and an entry point of another form of name, is left out with a warning. Raises
    `ValueError` for a folder that is none.
    """
    found: dict[str, Found] = {}
    offered = entry_points(group=GROUP) if packages is None else packages
    for entry in sorted(offered, key=lambda one: (one.name, one.value)):
        if not _is_name(entry.name):
            _LOG.warning("history.plugin_refused", plugin=entry.name, why="its name is none of a history plugin")
        elif entry.name not in found:
            found[entry.name] = Found(entry.name, "package", entry=entry)
    found |= {name: Found(name, "bundled") for name in BUNDLED}
    if folder is None:
        return found
    if not folder.is_dir():
        raise ValueError(f"{folder}: there is no such folder of plugins")
    for file in sorted(folder.glob(f"{_PREFIX}*.py")):
        if not _is_name(file.stem) or not file.is_file():
            continue
        if not _lies_in(folder, file):
            _LOG.warning("history.plugin_refused", plugin=file.stem, why="it is a link out of the folder")
            continue
        found[file.stem] = Found(file.stem, "folder", file)
    return found


def load_chain(names: Iterable[str], found: Mapping[str, Found]) -> list[Plugin]:
    """The plugins of a chain, loaded, in its order. Raises `BadPlugin` for one that is unknown or can't be loaded.

    A file is run when it is loaded; one that never comes back from that can't be stopped.
    """
    return [load_plugin(name, found) for name in names]


def load_plugin(name: str, found: Mapping[str, Found]) -> Plugin:
    """One plugin. Raises `BadPlugin`: unknown, raises when it is loaded, or without `NAME` or `process`."""
    if name not in found:
        raise BadPlugin(f"there is no plugin {name[:60]!r}: there are {', '.join(sorted(found))}")
    plugin = found[name]
    if plugin.file is None and plugin.entry is None:
        return BUNDLED[name]
    try:
        module = _run_file(name, plugin.file) if plugin.file is not None else plugin.entry and plugin.entry.load()
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}"
        raise BadPlugin(f"{name} ({plugin.place}) can't be loaded: {why}; mend it, or leave it out of the chain") from error
    strategy, process = getattr(module, "NAME", None), getattr(module, "process", None)
    on_model_switch = getattr(module, "on_model_switch", None)
    if not isinstance(strategy, str) or not strategy:
        raise BadPlugin(f"{name} ({plugin.place}) has no NAME: a text was expected")
    if not callable(process):
        raise BadPlugin(f"{name} ({plugin.place}) has no function process(history, session, model_cfg)")
    if on_model_switch is not None and not callable(on_model_switch):
        raise BadPlugin(f"{name} ({plugin.place}): on_model_switch is no function")
    return UserPlugin(name, process, on_model_switch, strategy=strategy)


class _Reader(SourceFileLoader):
    """Leaves nothing compiled in a folder that somebody else keeps."""

    def set_data(self, path: str, data: Any, *, _mode: int = 0o666) -> None:
        """Nothing is written."""


def _run_file(name: str, file: Path) -> Any:
    if not _lies_in(file.parent, file):  # it may have become a link since it was found
        raise BadPlugin("it is a link out of the folder")
    # A name of its own, so that no other module of that name is taken for it, nor it for another.
    own = f"_tailfold_{hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:12]}_{name}"
    spec = spec_from_file_location(own, file, loader=_Reader(own, str(file)))
    if spec is None or spec.loader is None:
        raise BadPlugin("it is no Python file")
    module = module_from_spec(spec)
    sys.modules[own] = module  # dataclasses look their module up there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[own]
        raise
    return module


def _is_name(name: str) -> bool:
    return name.startswith(_PREFIX) and name != _PREFIX and name.isidentifier()


def _lies_in(folder: Path, file: Path) -> bool:
    return file.resolve().parent == folder.resolve()
